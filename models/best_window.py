"""The window of a passage that holds most of what a query asks for, to be read in the passage's place (ADR 25)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.tokenization import TokenIds

_UNIT = 1000  # weights are whole thousandths of a nat, so that windows with the same tokens have the same sum
_UNSEEN = 0.5  # how often a token counts that the sample lacks


class TokenRarity:
    """How rare each token is in a sample of passages."""

    def __init__(self, passages: Sequence[TokenIds]) -> None:
        """Count the tokens of the sample."""
        counts = np.bincount(np.concatenate([np.empty(0, np.int64), *passages]))
        n = max(1, counts.sum())
        self._weights = _in_units(np.log(n / np.maximum(counts, _UNSEEN)))
        self._unseen = _in_units(np.log(n / _UNSEEN))

    def weights(self, ids: TokenIds) -> NDArray[np.int64]:
        """Return the (n,) information of tokens (n,): -log of a token's share of all, in thousandths of a nat."""
        found = np.full(ids.size, self._unseen, np.int64)
        is_known = ids < self._weights.size
        found[is_known] = self._weights[ids[is_known]]
        return found


@dataclass(frozen=True, slots=True)
class BestWindow:
    """What is read of a passage: the n_tokens of it that hold the most information of the query's tokens."""

    rarity: TokenRarity
    n_tokens: int

    def of(self, query_ids: TokenIds, passages: Sequence[TokenIds]) -> list[TokenIds]:
        """Return the best window of each passage, all of one that is no longer.

        Of equally good windows the first, or the middle of those that begin at the tokens after it. Worked example:
        with n_tokens 3 and 9 the query's only token, of 1 2 9 4 5 6 7 the windows from 0, 1 and 2 are equally good:
        that from 1, 2 9 4.
        """
        asked = np.unique(query_ids)
        if not asked.size:
            return [passage[: self.n_tokens] for passage in passages]
        weights = self.rarity.weights(asked)
        return [self._best(passage, asked, weights) for passage in passages]

    def _best(self, passage: TokenIds, asked: TokenIds, weights: NDArray[np.int64]) -> TokenIds:
        if passage.size <= self.n_tokens:
            return passage
        places = np.minimum(np.searchsorted(asked, passage), asked.size - 1)
        held = np.concatenate([[0], np.cumsum(np.where(asked[places] == passage, weights[places], 0))])
        sums = held[self.n_tokens :] - held[: -self.n_tokens]
        first = int(sums.argmax())
        n_equal = int(np.append(sums[first:] != sums[first], True).argmax())
        start = first + (n_equal - 1) // 2
        return passage[start : start + self.n_tokens]


def _in_units(nats: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.rint(nats * _UNIT).astype(np.int64)
