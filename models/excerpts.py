"""The part of a passage that holds most of what a query asks for, to be read in the passage's place (ADR 25)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.tokenization import TokenIds

_UNIT = 1000  # weights are whole thousandths of a nat, so that parts with the same tokens have the same sum
_UNSEEN = 0.5  # how often a token counts that the sample lacks


class TokenRarity:
    """How rare each token is in a sample of passages; with an empty one all are equally rare."""

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
class Excerpts:
    """Takes n_tokens tokens side by side out of a passage: those with the most information that the query shares."""

    rarity: TokenRarity
    n_tokens: int

    def of(self, query_ids: TokenIds, passages: Sequence[TokenIds]) -> list[TokenIds]:
        """Return the excerpt of each passage: all of one that is no longer, the beginning of one that shares nothing.

        Each occurrence counts. Equally good excerpts that start at neighbouring tokens are a run; of the first run the
        middle one is taken, of two in the middle the former. Worked example: the query's token is 9, an excerpt has 3
        tokens, the passage is 1 2 9 4 5 6 7. Those that start at its first, second and third token hold the 9, so
        2 9 4 is taken.
        """
        asked = np.unique(query_ids)
        if not asked.size:
            return [passage[: self.n_tokens] for passage in passages]
        weights = self.rarity.weights(asked)
        return [self._excerpt(passage, asked, weights) for passage in passages]

    def _excerpt(self, passage: TokenIds, asked: TokenIds, weights: NDArray[np.int64]) -> TokenIds:
        if passage.size <= self.n_tokens:
            return passage
        places = np.minimum(np.searchsorted(asked, passage), asked.size - 1)
        held = np.concatenate([[0], np.cumsum(np.where(asked[places] == passage, weights[places], 0))])
        sums = held[self.n_tokens :] - held[: -self.n_tokens]
        first = int(sums.argmax())
        if sums[first] == 0:
            return passage[: self.n_tokens]
        n_equal = int(np.append(sums[first:] != sums[first], True).argmax())
        start = first + (n_equal - 1) // 2
        return passage[start : start + self.n_tokens]


def _in_units(nats: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.rint(nats * _UNIT).astype(np.int64)
