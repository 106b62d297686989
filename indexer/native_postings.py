"""BM25's search in C++ (indexer/native): the bits that numpy gives, several times as fast."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from indexer.mapped import SortedTexts
from indexer.ranking import Hits, Mask
from models.compiled import compiled

_LIBRARY = "indexer._postings"


class _Texts(ctypes.Structure):
    _fields_: ClassVar = [("bytes", ctypes.c_void_p), ("ends", ctypes.c_void_p), ("n", ctypes.c_int64)]


class _Index(ctypes.Structure):
    _fields_: ClassVar = [
        ("terms", _Texts),
        *((name, ctypes.c_void_p) for name in ("starts", "rows", "weights")),
        ("n_passages", ctypes.c_int64),
    ]


class _Query(ctypes.Structure):
    _fields_: ClassVar = [("terms", _Texts), ("times", ctypes.c_void_p)]


@dataclass(frozen=True, slots=True, eq=False)
class PostingLists:
    """An inverted index: postings of term i are [starts[i], starts[i + 1]) of rows, distinct, and weights, positive."""

    terms: SortedTexts
    starts: NDArray[np.int64]
    rows: NDArray[np.int32]
    weights: NDArray[np.float32]
    n_passages: int


class NativePostings:
    """Finds the best passages of posting lists; thread-safe."""

    def __init__(self, lists: PostingLists, library: ctypes.CDLL) -> None:
        """View the lists, which stay where they are."""
        self._lists = lists  # so that they stay
        texts = _Texts(*lists.terms.addresses(), len(lists.terms))
        parts = (each.ctypes.data for each in (lists.starts, lists.rows, lists.weights))
        self._index = _Index(texts, *parts, lists.n_passages)
        self._best_passages = library.tercet_best_passages
        self._best_passages.restype = ctypes.c_int64
        self._best_passages.argtypes = [*[ctypes.c_void_p] * 3, ctypes.c_int64, *[ctypes.c_void_p] * 2]

    def search(self, terms: Sequence[tuple[bytes, int]], k: int, allowed: Mask | None) -> Hits:
        """Return the k best passages that hold at least one of the terms.

        Args:
            terms: distinct and sorted, each with how often it counts.
            k: at least 0.
            allowed: (n_passages,) the passages to choose from, None for all.
        """
        content = np.frombuffer(b"".join(term for term, _ in terms), np.uint8)
        ends = np.cumsum([len(term) for term, _ in terms], dtype=np.int64)
        times = np.array([count for _, count in terms], np.int64)
        query = _Query(_Texts(content.ctypes.data, ends.ctypes.data, len(terms)), times.ctypes.data)
        k = min(k, self._lists.n_passages)
        rows, scores = np.empty(k, np.int64), np.empty(k, np.float64)
        mask = None if allowed is None else np.ascontiguousarray(allowed)
        n = self._best_passages(
            ctypes.addressof(self._index),
            ctypes.addressof(query),
            None if mask is None else mask.ctypes.data,
            k,
            rows.ctypes.data,
            scores.ctypes.data,
        )
        if n < 0:
            raise MemoryError("there is no memory for the scores of a search")
        return Hits(rows[:n], scores[:n])


def native_postings(lists: PostingLists) -> NativePostings | None:
    """Return the lists, ready to be searched by what was compiled, None where nothing was."""
    library = compiled(_LIBRARY)
    return None if library is None else NativePostings(lists, library)
