"""Find the passages that can be among the best k without adding up all postings (MaxScore, Turtle and Flood 1995).

Terms are taken from the rarest on. As soon as k passages score more than the terms left could give together, a passage
that holds none of the terms taken so far is out of the running; from there on the common terms are only looked up in
the passages that are still in it. The cost goes with the postings of the rare terms, not with the passages.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from indexer.ranking import Mask

Sums: TypeAlias = NDArray[np.float32]
PostingRows: TypeAlias = NDArray[np.int32]

_SLACK = 1e-4  # sums here are in float32: what is this share below a bound is not below it for sure
_TINY = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True, slots=True, eq=False)
class Postings:
    """The passages that hold a term, ascending, what it adds to the score of each, and no less than it can add."""

    rows: PostingRows
    weights: NDArray[np.float32]
    times: int  # that the query repeats the term
    bound: float

    def added(self) -> Sums:
        """Return what the term adds to each of its passages."""
        return self.weights if self.times == 1 else self.weights * np.float32(self.times)

    def added_to(self, rows: PostingRows) -> Sums:
        """Return what the term adds to given passages, 0 to those that do not hold it."""
        places = np.minimum(np.searchsorted(self.rows, rows), self.rows.size - 1)
        return np.where(self.rows[places] == rows, self.weights[places] * np.float32(self.times), np.float32(0))


class MaxScore:
    """Narrows down the passages of a query; thread-safe."""

    def __init__(self, n_passages: int) -> None:
        self._n_passages = n_passages
        self._spare: list[Sums] = []  # arrays of zeros; a list's pop and append are atomic

    def candidates(self, terms: Sequence[Postings], k: int, allowed: Mask | None) -> PostingRows:
        """Return distinct rows, in no order, among which the best k surely are.

        Args:
            terms: at least one.
            k: at least 1.
            allowed: (n_passages,) the passages to choose from, None for all.
        """
        terms = sorted(terms, key=lambda term: term.rows.size)
        left = [*np.cumsum([term.bound for term in terms[::-1]])[::-1].tolist(), 0.0]  # by the terms from i on
        sums = self._spare.pop() if self._spare else np.zeros(self._n_passages, np.float32)
        least, taken = 0.0, list[PostingRows]()
        while len(taken) < len(terms) and not least > left[len(taken)] * (1 + _SLACK):
            term = terms[len(taken)]
            sums[term.rows] += term.added()
            taken.append(term.rows)
            held = term.rows if allowed is None else term.rows[allowed[term.rows]]
            least = max(least, _kth(sums[held], k))
        rows, found = _drain(sums, taken, least - left[len(taken)])
        self._spare.append(sums)
        if allowed is not None:
            found, rows = found[allowed[rows]], rows[allowed[rows]]
        for i in range(len(taken), len(terms)):
            found += terms[i].added_to(rows)
            least = max(least, _kth(found, k))
            is_in = found >= (least - left[i + 1]) * (1 - _SLACK)
            rows, found = rows[is_in], found[is_in]
        return rows


def _kth(sums: Sums, k: int) -> float:
    """Return the k-th greatest, 0 where there are fewer."""
    return float(np.partition(sums, sums.size - k)[sums.size - k]) if sums.size >= k else 0.0


def _drain(sums: Sums, taken: Sequence[PostingRows], least: float) -> tuple[PostingRows, Sums]:
    """Return each row taken that has at least so much, and its sum; leave zeros."""
    rows, found = [], []
    for each in taken:
        own = sums[each]
        sums[each] = 0  # so that no row comes twice
        is_in = own >= max(least * (1 - _SLACK), _TINY)
        rows.append(each[is_in])
        found.append(own[is_in])
    return np.concatenate(rows), np.concatenate(found)
