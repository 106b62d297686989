"""Exact inner-product search over passage vectors: a FAISS flat index, made deterministic.

FAISS proposes candidates; their order is decided here, by scores computed one row at a time in float64, because
FAISS promises no order among equal scores and its rounding depends on how rows fall into blocks.
"""

from pathlib import Path

import faiss
import numpy as np
from numpy.typing import NDArray

from indexer.errors import SnapshotError
from indexer.ranking import NO_HITS, Hits, Rows, best_rows

Vectors = NDArray[np.float32]
Mask = NDArray[np.bool_]

# FAISS sums unit vectors in float32: two ways to sum 384 products differ by at most about 1e-6.
_ROUNDING = 1e-5


def inner_products(vectors: Vectors, query_vector: Vectors) -> NDArray[np.float64]:
    """Return the inner product (n,) of each vector (n, dimension) with the query's (dimension,).

    Summed in float64 and rounded to float32, row by row: a row's score does not depend on its neighbours.
    """
    products = vectors.astype(np.float64) * query_vector.astype(np.float64)
    rounded: NDArray[np.float32] = products.sum(axis=1).astype(np.float32)
    return rounded.astype(np.float64)


class DenseBuilder:
    """Collects vectors in row order, then writes the index; holds them all in memory as float32."""

    def __init__(self, dimension: int) -> None:
        """Start empty."""
        self._index = faiss.IndexFlatIP(dimension)

    def add(self, vectors: Vectors) -> None:
        """Add the vectors (n, dimension) of the next n rows."""
        self._index.add(np.ascontiguousarray(vectors, np.float32))

    def write(self, path: Path) -> None:
        """Write the index file; raises RuntimeError, FAISS's own, if it cannot."""
        faiss.write_index(self._index, str(path))


class DenseIndex:
    """A written index, memory-mapped; thread-safe."""

    def __init__(self, path: Path) -> None:
        """Open it.

        Raises:
            SnapshotError: the file is no flat inner-product index.
        """
        try:
            index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
        except RuntimeError as error:
            raise SnapshotError(f"{path} is not an index that FAISS reads") from error
        if not isinstance(index, faiss.IndexFlatIP):
            raise SnapshotError(f"{path} holds a {type(index).__name__}; an IndexFlatIP was expected")
        self._index = index
        self.n_passages = int(index.ntotal)
        self.dimension = int(index.d)
        self._vectors = self._view()

    def _view(self) -> Vectors:
        if not self.n_passages:
            return np.zeros((0, self.dimension), np.float32)
        flat: Vectors = faiss.rev_swig_ptr(self._index.get_xb(), self.n_passages * self.dimension)
        return flat.reshape(self.n_passages, self.dimension)

    def search(self, query_vector: Vectors, k: int, allowed: Mask | None = None) -> Hits:
        """Return the k rows with the greatest inner products, or all rows if there are fewer.

        Args:
            query_vector: (dimension,) float32, finite.
            k: at least 0.
            allowed: (n_passages,) True where a row may be returned; None for everywhere.
        """
        n_allowed = self.n_passages if allowed is None else int(np.count_nonzero(allowed))
        wanted = min(k, n_allowed)
        if wanted <= 0:
            return NO_HITS
        rows = self._candidates(query_vector, wanted, allowed, n_allowed)
        return best_rows(rows, self.scores(query_vector, rows), wanted)

    def _candidates(self, query_vector: Vectors, wanted: int, allowed: Mask | None, n_allowed: int) -> Rows:
        """Return rows among which the wanted best surely are: the last one is clearly worse than the wanted-th."""
        selected = {} if allowed is None else {"params": faiss.SearchParameters(sel=_selector(allowed))}
        query = np.ascontiguousarray(query_vector[None], np.float32)
        fetched = wanted
        while fetched < n_allowed:
            fetched = min(n_allowed, 2 * fetched + 16)
            scores, rows = self._index.search(query, fetched, **selected)
            if scores[0, -1] < scores[0, wanted - 1] - _ROUNDING:
                found: Rows = rows[0].astype(np.int64)
                return found
        return np.arange(self.n_passages, dtype=np.int64) if allowed is None else np.flatnonzero(allowed)

    def scores(self, query_vector: Vectors, rows: Rows) -> NDArray[np.float64]:
        """Return the exact inner products (n,) of given rows, equal to those that `search` gives."""
        return inner_products(self._vectors[rows], query_vector)


def _selector(allowed: Mask) -> faiss.IDSelector:
    return faiss.IDSelectorBitmap(np.packbits(allowed, bitorder="little"))
