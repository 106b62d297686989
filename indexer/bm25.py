"""BM25 (Robertson and Zaragoza 2009, equation 3.15) in Lucene's variant, as an inverted index of precomputed weights.

    weight(term, passage) = idf * tf / (tf + k1 * (1 - b + b * length / average_length))
    idf = ln(1 + (N - df + 0.5) / (df + 0.5))

idf is positive even for a term of every passage. As in Lucene 8 and later there is no factor (k1 + 1): it changes no
order. Lengths are exact, where Lucene rounds them to a byte. A term that a query repeats counts as often.
Left out: positions, phrases.
"""

from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from indexer.errors import SnapshotError
from indexer.mapped import SortedTexts, mapped_array, mapped_bytes
from indexer.native_postings import PostingLists, native_postings
from indexer.ranking import NO_HITS, Hits, Mask, Rows, Scores, best_rows

K1 = 1.2
B = 0.75

_TERMS, _TERM_ENDS = "terms.bin", "term_ends.npy"
_STARTS, _ROWS, _WEIGHTS = "posting_starts.npy", "posting_rows.npy", "posting_weights.npy"
_COUNTS = "posting_counts.npy"  # read only by the next build
BM25_FILES = (_TERMS, _TERM_ENDS, _STARTS, _ROWS, _WEIGHTS, _COUNTS)
_MOST_COUNTED = 65_535  # a term that a passage repeats more often counts as often


def inverse_document_frequency(n_passages: int, frequencies: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return Lucene's idf of terms that occur in the given numbers of passages; always positive.

    Worked example: 2 of 4 passages give ln(1 + 2.5 / 2.5) = ln 2 = 0.693…
    """
    return np.log1p((n_passages - frequencies + 0.5) / (frequencies + 0.5))


def term_weights(
    frequencies: NDArray[np.int64], lengths: NDArray[np.int64], *, average_length: float, k1: float, b: float
) -> NDArray[np.float64]:
    """Return the saturated term frequencies, in (0, 1): frequencies and lengths (n,) are those of each posting."""
    return frequencies / (frequencies + k1 * (1 - b + b * lengths / average_length))


@dataclass(frozen=True, slots=True, eq=False)
class Forward:
    """The terms of each passage by number, and how often it has each.

    Those of a row stand from its start to the next one's: starts (n_passages + 1,), terms and counts (n_postings,).
    texts holds the terms by number.
    """

    starts: NDArray[np.int64]
    terms: NDArray[np.int32]
    counts: NDArray[np.uint16]
    texts: SortedTexts


@dataclass(frozen=True, slots=True)
class TermWeight:
    """What a term of a query adds to a passage's score: its weight there, as often as the query has it."""

    term: str
    n_in_query: int
    weight: float


class Bm25Builder:
    """Collects the terms of passages in row order, then writes the index; 12 bytes of memory a posting meanwhile."""

    def __init__(self, *, k1: float = K1, b: float = B) -> None:
        """Start empty; k1 saturates term frequencies, b in [0, 1] is how much length counts."""
        self._k1, self._b = k1, b
        self._term_ids: dict[str, int] = {}
        self._posting_terms, self._posting_rows, self._posting_counts = array("i"), array("i"), array("i")
        self._lengths = array("q")
        self._adopted = np.zeros(0, np.int32)  # this builder's id of each term of an adopted index, -1 before it came

    def add(self, terms: Sequence[str]) -> None:
        """Add the terms of the next passage."""
        row = len(self._lengths)
        for term, count in Counter(terms).items():
            self._posting_terms.append(self._term_ids.setdefault(term, len(self._term_ids)))
            self._posting_rows.append(row)
            self._posting_counts.append(min(count, _MOST_COUNTED))
        self._lengths.append(len(terms))

    def adopt(self, forward: Forward, row: int) -> None:
        """Add the next passage with the terms of a passage of another index, always the same one."""
        if not self._adopted.size:
            self._adopted = np.full(len(forward.texts) + 1, -1, np.int32)
        where = slice(int(forward.starts[row]), int(forward.starts[row + 1]))
        numbers, counts = forward.terms[where], forward.counts[where].astype(np.int32)
        for number in numbers[self._adopted[numbers] < 0].tolist():
            self._adopted[number] = self._term_ids.setdefault(forward.texts[number].decode(), len(self._term_ids))
        self._posting_terms.frombytes(self._adopted[numbers].tobytes())
        self._posting_rows.frombytes(np.full(numbers.size, len(self._lengths), np.int32).tobytes())
        self._posting_counts.frombytes(counts.tobytes())
        self._lengths.append(int(counts.sum()))

    def write(self, folder: Path) -> None:
        """Write the index into a new folder; the same passages give the same bytes."""
        folder.mkdir()
        terms = sorted(term.encode() for term in self._term_ids)
        rank_of = np.zeros(len(terms), np.int64)
        for rank, term in enumerate(terms):
            rank_of[self._term_ids[term.decode()]] = rank
        ranks = rank_of[np.frombuffer(self._posting_terms, np.intc)]
        order = np.argsort(ranks, kind="stable")  # by term, then by row
        rows = np.frombuffer(self._posting_rows, np.intc)[order]
        frequencies = np.bincount(ranks, minlength=len(terms))
        counts = np.frombuffer(self._posting_counts, np.intc)[order]
        weights = self._weights(ranks[order], rows, counts, frequencies)
        (folder / _TERMS).write_bytes(b"".join(terms))
        np.save(folder / _TERM_ENDS, np.cumsum([len(term) for term in terms], dtype=np.int64))
        np.save(folder / _STARTS, np.concatenate(([0], np.cumsum(frequencies))).astype(np.int64))
        np.save(folder / _ROWS, rows.astype(np.int32))
        np.save(folder / _WEIGHTS, weights.astype(np.float32))
        np.save(folder / _COUNTS, counts.astype(np.uint16))

    def _weights(
        self, ranks: NDArray[np.int64], rows: NDArray[np.intc], counts: NDArray[np.intc], frequencies: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        if not rows.size:
            return np.zeros(0)
        lengths = np.frombuffer(self._lengths, np.int64)
        saturated = term_weights(
            counts.astype(np.int64), lengths[rows], average_length=float(lengths.mean()), k1=self._k1, b=self._b
        )
        return saturated * inverse_document_frequency(lengths.size, frequencies)[ranks]


class Bm25Index:
    """A written index, memory-mapped; thread-safe."""

    def __init__(self, folder: Path, *, n_passages: int) -> None:
        """Open the index that `Bm25Builder.write` wrote for n_passages passages.

        Raises:
            SnapshotError: a file is of another kind, or they do not fit together.
        """
        self._folder, self._n_passages = folder, n_passages
        self._terms = SortedTexts(mapped_bytes(folder / _TERMS), mapped_array(folder / _TERM_ENDS, np.int64))
        self._starts = mapped_array(folder / _STARTS, np.int64)
        self._rows = mapped_array(folder / _ROWS, np.int32)
        self._weights = mapped_array(folder / _WEIGHTS, np.float32)
        self.n_terms = len(self._terms)
        n_postings = int(self._starts[-1]) if self._starts.size == self.n_terms + 1 else -1
        if not n_postings == self._rows.size == self._weights.size:
            raise SnapshotError(f"{folder} holds no BM25 index, or files of several")
        lists = PostingLists(self._terms, self._starts, self._rows, self._weights, n_passages)
        self._native = native_postings(lists)

    def search(self, terms: Sequence[str], k: int, allowed: Mask | None = None) -> Hits:
        """Return the k best passages that hold at least one of the terms; none if the terms are unknown or none.

        Args:
            terms: those of the query, in any order.
            k: at least 0.
            allowed: (n_passages,) the passages to choose from, None for all. It changes no score.
        """
        if not terms or k <= 0:
            return NO_HITS
        if self._native is not None:
            return self._native.search(_counted(terms), k, allowed)
        sums = self._sums(self._postings(terms))
        # Every weight is positive, so zero means that no term is there.
        rows = np.flatnonzero(sums) if allowed is None else np.flatnonzero((sums > 0) & allowed)
        return best_rows(rows, sums[rows], k)

    def _sums(self, postings: list[tuple[slice, int]]) -> Scores:
        """Return the score of every passage (n_passages,), as `scores`."""
        sums = np.zeros(self._n_passages)
        for where, count in postings:
            sums[self._rows[where]] += count * self._weights[where].astype(np.float64)  # rows of a term are distinct
        return sums.astype(np.float32).astype(np.float64)

    def matching(self, terms: Sequence[str]) -> Mask:
        """Return which passages (n_passages,) hold at least one of the terms: those that `search` could give."""
        mask = np.zeros(self._n_passages, np.bool_)
        for where, _ in self._postings(terms):
            mask[self._rows[where]] = True
        return mask

    def forward(self) -> Forward:
        """Return the index by passage instead of by term; takes a while, and 14 bytes of memory a posting."""
        order = np.argsort(self._rows, kind="stable")  # by passage, then by term
        terms = np.repeat(np.arange(self.n_terms, dtype=np.int32), np.diff(self._starts))[order]
        counts = mapped_array(self._folder / _COUNTS, np.uint16)[order]
        starts = np.concatenate(([0], np.cumsum(np.bincount(self._rows, minlength=self._n_passages)))).astype(np.int64)
        return Forward(starts, terms, counts, self._terms)

    def scores(self, terms: Sequence[str], rows: Rows) -> Scores:
        """Return the scores (n,) of given rows, rounded to float32 so that equal passages tie; 0 for no term."""
        sums, wanted = np.zeros(rows.size), rows.astype(np.int32)  # of the postings' type, or they would be converted
        for where, count in self._postings(terms):
            postings = self._rows[where]
            places = np.minimum(np.searchsorted(postings, wanted), postings.size - 1)
            is_there = postings[places] == wanted
            sums[is_there] += count * self._weights[where][places[is_there]].astype(np.float64)
        return sums.astype(np.float32).astype(np.float64)

    def explain(self, terms: Sequence[str], row: int) -> list[TermWeight]:
        """Return what each term that a passage holds adds to its score, the most first, ties by term.

        Together they are the score of `search` but for rounding to float32.
        """
        found = []
        for term, count in sorted(Counter(terms).items()):
            for where, _ in self._postings([term]):
                place = int(np.searchsorted(self._rows[where], row))
                if place < where.stop - where.start and self._rows[where][place] == row:
                    found.append(TermWeight(term, count, count * float(self._weights[where][place])))
        return sorted(found, key=lambda each: -each.weight)

    def _postings(self, terms: Sequence[str]) -> list[tuple[slice, int]]:
        """Return the postings of each known term and how often it is asked for, in the order of the terms' bytes."""
        postings = []
        for term, count in _counted(terms):
            number = self._terms.find(term)
            if number is not None:
                postings.append((slice(int(self._starts[number]), int(self._starts[number + 1])), count))
        return postings


def _counted(terms: Sequence[str]) -> list[tuple[bytes, int]]:
    """Return distinct terms in the order of their bytes, each with how often it is asked for."""
    return sorted(Counter(term.encode("utf-8", "replace") for term in terms).items())
