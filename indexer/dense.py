"""Inner-product search over passage vectors, made deterministic: exact, or over what an approximate index proposes.

FAISS proposes candidates; their order is decided here, by scores computed one row at a time in float64, because
FAISS promises no order among equal scores and its rounding depends on how rows fall into blocks. The exact vectors are
always there, so a score never depends on the kind of index.
"""

import threading
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from indexer.ann import DenseRecord, DenseSettings, Proposer, Vectors, build_ann, choose_kind, n_lists_for, selector
from indexer.errors import SnapshotError
from indexer.gpu import gpu_resources, to_gpu
from indexer.ranking import NO_HITS, Hits, Mask, Rows, best_rows

# FAISS sums unit vectors in float32: two ways to sum 384 products differ by at most about 1e-6.
_ROUNDING = 1e-5
_FAISS: Any = faiss  # its types do not know the parameters of a search
_BLOCK_ROWS = 128  # in float64 they stay in a core's cache, which made this eleven times faster
_OVERFETCH = {"hnsw": 2, "ivf-sq8": 2, "ivf-pq": 8}  # rows proposed for each that is wanted
_MASKED_EFFORT = 2  # times as many lists when a mask leaves out some of what they hold
_LEAST_SHARE = 0.1  # of the passages, below which those that a mask allows are searched one by one
_MOST_ON_GPU = 2048  # rows of one search, FAISS's limit there
_TUNING_QUERIES = 256
_TUNING_DEPTH = 100


def inner_products(vectors: Vectors, query_vector: Vectors) -> NDArray[np.float64]:
    """Return the inner product (n,) of each vector (n, dimension) with the query's (dimension,).

    Summed in float64 and rounded to float32, row by row: a row's score does not depend on its neighbours.
    """
    query, products = query_vector.astype(np.float64), np.empty(len(vectors))
    block = np.empty((_BLOCK_ROWS, query.size))
    for start in range(0, len(vectors), _BLOCK_ROWS):
        part = vectors[start : start + _BLOCK_ROWS]
        block[: len(part)] = part
        np.vecdot(block[: len(part)], query, out=products[start : start + len(part)])
    rounded: NDArray[np.float32] = products.astype(np.float32)
    return rounded.astype(np.float64)


class DenseBuilder:
    """Collects the vectors of n_passages in row order, then writes the index; holds them all in memory as float32."""

    def __init__(self, dimension: int, n_passages: int) -> None:
        """Take the memory: an index that grows would move to twice as much again and again."""
        self._index: Any = faiss.IndexFlatIP(dimension)
        self._index.codes.resize(n_passages * self._index.code_size)
        self._index.ntotal = n_passages
        self._vectors, self._n_added = _vectors_of(self._index), 0

    def add(self, vectors: Vectors) -> None:
        """Add the vectors (n, dimension) of the next n rows."""
        self._vectors[self._n_added : self._n_added + len(vectors)] = vectors
        self._n_added += len(vectors)

    def write(self, path: Path) -> None:
        """Write the exact vectors as a flat index; raises RuntimeError, FAISS's own, if it cannot."""
        assert self._n_added == len(self._vectors), "a row has no vector"
        faiss.write_index(self._index, str(path))


def write_ann(path: Path, ann_path: Path, settings: DenseSettings) -> DenseRecord:
    """Write the approximate index that suits the vectors at path, unless an exact search does; say how good it is.

    Its effort is doubled until the best 100 of sampled passages are found as often as wanted, or all is spent; the
    record then says a smaller recall than the wanted one.
    """
    exact = DenseIndex.open(path)
    kind = choose_kind(exact.n_passages, exact.dimension, settings)
    if kind == "flat":
        return DenseRecord()
    index = build_ann(exact.vectors, kind, settings.device)
    faiss.write_index(index, str(ann_path))
    n_lists = n_lists_for(exact.n_passages) if kind.startswith("ivf") else 0
    record = DenseRecord(kind=kind, n_lists=n_lists, wanted_recall=settings.recall)
    return _tuned(exact.with_proposer(Proposer(index, record)), record)


class _Lent:
    """The memory of a flat index's vectors; an array made of it keeps the index alive, as FAISS's own views do not."""

    def __init__(self, index: faiss.IndexFlatIP) -> None:
        self.index = index
        flat: Vectors = faiss.rev_swig_ptr(index.get_xb(), index.ntotal * index.d)
        self.__array_interface__ = flat.reshape(index.ntotal, index.d).__array_interface__


def _vectors_of(index: faiss.IndexFlatIP) -> Vectors:
    """Return the vectors (n, dimension) of a flat index without copying them."""
    return np.asarray(_Lent(index)) if index.ntotal else np.zeros((0, index.d), np.float32)


def _tuned(dense: "DenseIndex", record: DenseRecord) -> DenseRecord:
    """Return the record with the least effort that gives the wanted recall, or with the greatest there is."""
    generator = np.random.default_rng(0)
    n_queries, depth = min(_TUNING_QUERIES, dense.n_passages), min(_TUNING_DEPTH, dense.n_passages)
    queries = dense.vectors[np.sort(generator.choice(dense.n_passages, n_queries, replace=False))]
    least = [dense.search_exactly(query, depth).scores[-1] for query in queries]
    effort = 1 if record.n_lists else depth
    while True:
        found = [dense.search(query, depth, effort=effort).scores for query in queries]
        recall = float(np.mean([(scores >= last).sum() / depth for scores, last in zip(found, least, strict=True)]))
        assert record.wanted_recall is not None
        if recall >= record.wanted_recall or effort >= dense.most_effort:
            break
        effort = min(2 * effort, dense.most_effort)
    measured = {"effort": effort, "recall": round(recall, 4), "recall_depth": depth, "n_queries": n_queries}
    return record.model_copy(update=measured)


class DenseIndex:
    """The passages' vectors, and what proposes rows if a search is to be approximate; thread-safe."""

    def __init__(self, index: faiss.IndexFlatIP, proposer: Proposer | None = None) -> None:
        """Wrap a flat index of the exact vectors; use `DenseIndex.open`."""
        self._index = index
        self._proposer = proposer
        self._on_gpu: Any = None
        self._gpu_lock = threading.Lock()  # FAISS's resources of one GPU are not thread-safe
        self.n_passages = int(index.ntotal)
        self.dimension = int(index.d)
        self.vectors = _vectors_of(index)
        self.most_effort = proposer.most_effort if proposer is not None else 0

    @classmethod
    def open(cls, path: Path, ann_path: Path | None = None, record: DenseRecord | None = None) -> "DenseIndex":
        """Open the written files, memory-mapped.

        Args:
            path: of the exact vectors.
            ann_path: of the approximate index, if the record names one.
            record: what the manifest says; None or a flat one for an exact search.

        Raises:
            SnapshotError: a file is no index of its kind, or they hold different numbers of passages.
        """
        index = _read_index(path, faiss.IO_FLAG_MMAP_IFC)
        if not isinstance(index, faiss.IndexFlatIP):
            raise SnapshotError(f"{path} holds a {type(index).__name__}; an IndexFlatIP was expected")
        if ann_path is None or record is None or record.kind == "flat":
            return cls(index)
        proposing = _read_index(ann_path, faiss.IO_FLAG_MMAP_IFC if record.kind == "hnsw" else faiss.IO_FLAG_MMAP)
        if proposing.ntotal != index.ntotal:
            raise SnapshotError(f"{ann_path} holds {proposing.ntotal} passages, {path} {index.ntotal}")
        if proposing.d != index.d:
            raise SnapshotError(f"{ann_path} holds vectors of {proposing.d} dimensions, {path} of {index.d}")
        _scan_where_it_searches(proposing)
        return cls(index, Proposer(proposing, record))

    def with_proposer(self, proposer: Proposer) -> "DenseIndex":
        """Return an index of the same vectors whose search is approximate."""
        return DenseIndex(self._index, proposer)

    def move_to_gpu(self) -> None:
        """Search on the first GPU from now on, exactly; searches with a mask stay on the CPU.

        Raises:
            DeviceError: there is none, or this FAISS cannot use it.
        """
        self._resources = gpu_resources()
        self._on_gpu = to_gpu(self._resources, self._index)

    def search(self, query_vector: Vectors, k: int, allowed: Mask | None = None, *, effort: int | None = None) -> Hits:
        """Return the k rows with the greatest inner products, or all rows if there are fewer.

        An approximate index may miss some of them, but never returns fewer than there are.

        Args:
            query_vector: (dimension,) float32, finite.
            k: at least 0.
            allowed: (n_passages,) True where a row may be returned; None for everywhere.
            effort: of an approximate search, as in `DenseRecord`; None for what was found at build.
        """
        n_allowed = self.n_passages if allowed is None else int(np.count_nonzero(allowed))
        wanted = min(k, n_allowed)
        if wanted <= 0:
            return NO_HITS
        if self._proposer is None or self._on_gpu is not None or n_allowed < _LEAST_SHARE * self.n_passages:
            return self._exactly(query_vector, wanted, allowed, n_allowed)
        effort = self._proposer.record.effort if effort is None else effort
        effort = effort if allowed is None else min(_MASKED_EFFORT * effort, self.most_effort)
        n_rows = min(n_allowed, wanted * _OVERFETCH[self._proposer.record.kind])
        while True:
            rows = self._proposer.propose(query_vector, n_rows, effort=effort, allowed=allowed)
            if rows.size >= wanted:
                return best_rows(rows, self.scores(query_vector, rows), wanted)
            if effort >= self.most_effort:
                return self._exactly(query_vector, wanted, allowed, n_allowed)
            effort = min(2 * effort, self.most_effort)

    def search_exactly(self, query_vector: Vectors, k: int) -> Hits:
        """Return what `search` returns when it is not approximate."""
        return self._exactly(query_vector, min(k, self.n_passages), None, self.n_passages)

    def _exactly(self, query_vector: Vectors, wanted: int, allowed: Mask | None, n_allowed: int) -> Hits:
        rows = self._candidates(query_vector, wanted, allowed, n_allowed)
        return best_rows(rows, self.scores(query_vector, rows), wanted)

    def _candidates(self, query_vector: Vectors, wanted: int, allowed: Mask | None, n_allowed: int) -> Rows:
        """Return rows among which the wanted best surely are: the last one is clearly worse than the wanted-th."""
        parameters: Any = _FAISS.SearchParameters(sel=selector(allowed))
        query = np.ascontiguousarray(query_vector[None], np.float32)
        fetched = wanted
        while fetched < n_allowed:
            fetched = min(n_allowed, 2 * fetched + 16)
            scores, rows = self._flat_search(query, fetched, parameters, allowed is None)
            if scores[0, -1] < scores[0, wanted - 1] - _ROUNDING:
                found: Rows = rows[0].astype(np.int64)
                return found
        return np.arange(self.n_passages, dtype=np.int64) if allowed is None else np.flatnonzero(allowed)

    def _flat_search(self, query: Vectors, k: int, parameters: Any, is_unmasked: bool) -> Any:
        if self._on_gpu is None or not is_unmasked or k > _MOST_ON_GPU:
            return self._index.search(query, k, params=parameters)
        with self._gpu_lock:
            return self._on_gpu.search(query, k)

    def scores(self, query_vector: Vectors, rows: Rows) -> NDArray[np.float64]:
        """Return the exact inner products (n,) of given rows, equal to those that `search` gives."""
        return inner_products(self.vectors[rows], query_vector)


def _read_index(path: Path, flags: int) -> faiss.Index:
    try:
        return faiss.read_index(str(path), flags)
    except RuntimeError as error:
        raise SnapshotError(f"{path} is not an index that FAISS reads") from error


def _scan_where_it_searches(index: faiss.Index) -> None:
    """Have mapped lists read by the thread that searches: FAISS would start 32 more for each search to fetch them."""
    ivf = faiss.try_extract_index_ivf(index)
    if ivf is not None and ivf.invlists is not None:
        lists = faiss.downcast_InvertedLists(ivf.invlists)
        if isinstance(lists, faiss.OnDiskInvertedLists):
            lists.prefetch_nthread = 0
