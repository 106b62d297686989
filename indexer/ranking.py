"""A ranking of rows, and the one total order that every leg uses: score descending, then row ascending."""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Rows: TypeAlias = NDArray[np.int64]
Scores: TypeAlias = NDArray[np.float64]
Mask: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Hits:
    """Passages by row, best first, ties by row: rows (n,) int64, scores (n,) float64.

    A row is a passage's number in the order of (document_id, ordinal), from 0.
    """

    rows: Rows
    scores: Scores


NO_HITS = Hits(np.zeros(0, np.int64), np.zeros(0, np.float64))


def best_rows(rows: Rows, scores: Scores, k: int) -> Hits:
    """Return the k best of the given rows, or all if there are fewer; equal scores stand in order of row.

    Args:
        rows: (n,) distinct.
        scores: (n,) finite.
        k: at least 0.
    """
    if 0 < k < rows.size:
        kept = scores >= np.partition(scores, rows.size - k)[rows.size - k]  # all that tie with the k-th
        rows, scores = rows[kept], scores[kept]
    order = np.lexsort((rows, -scores))[:k]
    return Hits(rows[order].astype(np.int64), scores[order].astype(np.float64))
