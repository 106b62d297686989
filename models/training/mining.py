"""Mine hard negatives: passages that retrieval puts near a query and that do not answer it.

BM25 and the dual encoder each propose their best. A margin keeps false negatives rare: a proposal whose cosine reaches
MARGIN of the positive's is left out (Moreira et al. 2024, "NV-Retriever", section 4: a share of the positive's score
beats a fixed rank or score).
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import bm25s
import numpy as np
import Stemmer
from numpy.typing import NDArray

from models.dual_encoder import DualEncoder

MARGIN = 0.95
_DEPTH = 30
_TEXTS_AT_ONCE = 1024


@dataclass(frozen=True, slots=True)
class Wanted:
    """How many negatives a query gets, and how they are chosen.

    A negative's cosine stays below margin times the positive's; is_lexical takes BM25's proposals only, so that not
    every passage has to be encoded.
    """

    n_negatives: int
    seed: int
    margin: float = MARGIN
    is_lexical: bool = False


class Miner:
    """Finds hard negatives; keeps the vector of every text that it was shown."""

    def __init__(self, encoder: DualEncoder, *, report: Callable[[int, int], None] = lambda done, total: None) -> None:
        """Start with no text known; report learns how many texts of how many are encoded."""
        self._encoder = encoder
        self._report = report
        self._rows: dict[str, int] = {}
        self._vectors = np.zeros((0, encoder.dimension), np.float32)

    def vectors_of(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the (n, dimension) unit vectors of texts, in order."""
        new = [text for text in dict.fromkeys(texts) if text not in self._rows]
        found = [self._vectors]
        for start in range(0, len(new), _TEXTS_AT_ONCE):
            found.append(self._encoder.encode_passages(new[start : start + _TEXTS_AT_ONCE]).vectors)
            self._report(min(start + _TEXTS_AT_ONCE, len(new)), len(new))
        self._rows |= {text: len(self._rows) + number for number, text in enumerate(new)}
        self._vectors = np.concatenate(found)
        return np.asarray(self._vectors[[self._rows[text] for text in texts]], np.float32)

    def cosines(self, queries: Sequence[str], texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the (n,) cosine of each query with its text."""
        return np.asarray((self.vectors_of(queries) * self.vectors_of(texts)).sum(axis=1), np.float32)

    def hard_negatives(
        self,
        queries: Sequence[str],
        positives: Sequence[str],
        passages: Sequence[str],
        wanted: Wanted,
        *,
        is_right: Callable[[int, str], bool],
    ) -> list[tuple[str, ...]]:
        """Return the wanted passages for each query, or none where there are fewer, BM25's and the encoder's in turn.

        Args:
            positives: the relevant passage of each query.
            passages: where negatives are looked for; each distinct.
            is_right: whether a text answers the query of that number; such a one is no negative.
        """
        if not queries:
            return []
        n_negatives = wanted.n_negatives
        generator = random.Random(wanted.seed)
        bars = wanted.margin * self.cosines(queries, positives)
        lexical = bm25_hits(passages, queries, depth=_DEPTH)
        dense = [[] for _ in queries] if wanted.is_lexical else self._dense_hits(passages, queries)
        proposals = zip(lexical, dense, strict=True)
        mined = []
        for number, (query, halves) in enumerate(zip(queries, proposals, strict=True)):
            fitting = []
            for hits in halves:
                cosines = self.cosines([query] * len(hits), hits)
                fits = [
                    text
                    for text, cosine in zip(hits, cosines, strict=True)
                    if cosine < bars[number] and text != positives[number] and not is_right(number, text)
                ][: 2 * n_negatives]
                fitting.append(generator.sample(fits, len(fits)))
            chosen = list(dict.fromkeys(_alternating(*fitting)))[:n_negatives]
            mined.append(tuple(chosen) if len(chosen) == n_negatives else ())
        return mined

    def _dense_hits(self, passages: Sequence[str], queries: Sequence[str]) -> list[list[str]]:
        """Return each query's best passages by cosine, best first."""
        matrix = self.vectors_of(passages)
        depth = min(_DEPTH, len(passages))
        hits: list[list[str]] = []
        for start in range(0, len(queries), _TEXTS_AT_ONCE):
            cosines = self.vectors_of(queries[start : start + _TEXTS_AT_ONCE]) @ matrix.T
            best = np.argpartition(-cosines, depth - 1, axis=1)[:, :depth]
            order = np.argsort(-np.take_along_axis(cosines, best, axis=1), axis=1, kind="stable")
            hits += [[passages[row] for row in rows] for rows in np.take_along_axis(best, order, axis=1)]
        return hits


def _alternating(first: Sequence[str], second: Sequence[str]) -> list[str]:
    both = [text for pair in zip(first, second, strict=False) for text in pair]
    rest = first if len(first) > len(second) else second
    return [*both, *rest[min(len(first), len(second)) :]]


def bm25_hits(passages: Sequence[str], queries: Sequence[str], *, depth: int) -> list[list[str]]:
    """Return each query's best passages in BM25 (Lucene's variant), best first, at most depth of them.

    None where no passage holds a word that BM25 counts: it leaves out stop words and single letters.
    """
    stemmer = Stemmer.Stemmer("english")
    words = bm25s.tokenize(list(passages), stopwords="en", stemmer=stemmer, show_progress=False)
    if not queries or not words.vocab:
        return [[] for _ in queries]
    index = bm25s.BM25()
    index.index(words, show_progress=False)
    tokens = bm25s.tokenize(list(queries), stopwords="en", stemmer=stemmer, show_progress=False)
    rows, _ = index.retrieve(tokens, k=min(depth, len(passages)), show_progress=False)
    return [[passages[row] for row in hits] for hits in rows]
