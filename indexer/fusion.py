"""Reciprocal rank fusion (Cormack, Clarke and Büttcher, SIGIR 2009, equation 1).

Ranks count from 1. Scores are not used, so legs with unlike scales, one hit, equal hits or none need no special case.
"""

from collections.abc import Sequence

import numpy as np

from indexer.ranking import NO_HITS, Hits, Rows, best_rows


def reciprocal_rank_fusion(rankings: Sequence[Rows], *, rrf_k: int = 60) -> Hits:
    """Return every row of the rankings, by the sum of 1 / (rrf_k + rank) over the rankings that hold it.

    Worked example, rrf_k = 60: the rankings [7, 3] and [3] give row 3 the score 1/62 + 1/61 = 0.03252… and row 7
    1/61 = 0.01639…, so the order is 3, 7.

    Args:
        rankings: each best first, its rows distinct.
        rrf_k: at least 0; larger flattens the difference between ranks.
    """
    if not any(ranking.size for ranking in rankings):
        return NO_HITS
    rows, positions = np.unique(np.concatenate(rankings), return_inverse=True)
    reciprocals = np.concatenate([1.0 / (rrf_k + np.arange(1, ranking.size + 1)) for ranking in rankings])
    largest_first = np.argsort(-reciprocals, kind="stable")  # so the order of the rankings changes no bit of a sum
    sums = np.zeros(rows.size)
    np.add.at(sums, positions[largest_first], reciprocals[largest_first])
    return best_rows(rows, sums, rows.size)
