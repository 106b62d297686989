"""Approximate nearest neighbours: which FAISS index suits, how it is made, and how it proposes rows.

What it proposes is scored again with the exact vectors by `indexer.dense`, so quantisation costs recall but never a
score. Sources: inverted lists and product quantisation, Jegou et al. 2011; HNSW, Malkov and Yashunin 2016.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, TypeAlias

import faiss
import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from indexer.gpu import ON_GPU, gpu_resources, to_cpu, to_gpu
from indexer.ranking import Mask, Rows

Vectors: TypeAlias = NDArray[np.float32]
DenseKind: TypeAlias = Literal["flat", "hnsw", "ivf-sq8", "ivf-pq"]

FLAT_BELOW = 20_000  # passages: an exact search of so many takes about a millisecond
FEWEST = 5_000  # passages below which a named kind gives way to flat: too few to train on
POINTS_A_LIST = 39  # FAISS's own least number of training points for each centroid
_TRAINED_POINTS_A_LIST = 64
_MOST_LISTS = 65_536
_LINKS = 16  # of an HNSW node a layer, twice as many in the lowest
_CONSTRUCTION_DEPTH = 100
_SUBVECTOR = 4  # components that share four bits of a product quantiser
_MOST_SCALED = 100_000  # passages from which a scalar quantiser learns its ranges
_SEED = 1234

_FAISS: Any = faiss  # its types know neither the parameters of a search nor what Python adds to it


class DenseWish(BaseModel):
    """Which dense index is wanted: a kind by name, or "auto" by passages and memory; recall is that of its best 100."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: DenseKind | Literal["auto"] = "auto"
    recall: float = Field(default=0.95, gt=0, le=1)
    memory_bytes: int | None = Field(default=None, ge=1)


class DenseSettings(DenseWish):
    """How to build it: what is wanted, and where it is trained and filled."""

    device: Literal["cpu", "cuda"] = "cpu"


class DenseRecord(BaseModel):
    """What the manifest says of the dense index.

    effort is what each search spends: lists probed, or the depth of an HNSW search; 0 for flat. recall is the share of
    the true best recall_depth that it found for n_queries sampled passages, None where the search is exact.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: DenseKind = "flat"
    n_lists: int = Field(default=0, ge=0)
    effort: int = Field(default=0, ge=0)
    wanted_recall: float | None = Field(default=None, gt=0, le=1)
    recall: float | None = Field(default=None, ge=0, le=1)
    recall_depth: int = Field(default=0, ge=0)
    n_queries: int = Field(default=0, ge=0)


def choose_kind(n_passages: int, dimension: int, settings: DenseWish) -> DenseKind:
    """Return the kind to build: the named one unless there are too few passages, else by size and memory.

    Below FLAT_BELOW an exact search is fast enough. Above, scalar quantisation, a byte a component, unless memory_bytes
    asks for product quantisation, an eighth of that.
    """
    if settings.kind == "auto":
        if n_passages < FLAT_BELOW:
            return "flat"
        fits = settings.memory_bytes is None or index_bytes("ivf-sq8", n_passages, dimension) <= settings.memory_bytes
        return "ivf-sq8" if fits else "ivf-pq"
    return settings.kind if n_passages >= FEWEST else "flat"


def index_bytes(kind: DenseKind, n_passages: int, dimension: int) -> int:
    """Return about how much memory an index takes besides the exact vectors, which are mapped from disk."""
    links = _LINKS * 2 * 4 + 8
    a_passage = {"flat": 0, "hnsw": dimension + links, "ivf-sq8": dimension + 8, "ivf-pq": dimension // 8 + 8}[kind]
    return n_passages * a_passage + 4 * dimension * (n_lists_for(n_passages) if kind.startswith("ivf") else 0)


def n_lists_for(n_passages: int) -> int:
    """Return how many inverted lists suit: the power of two nearest below 4 sqrt(n), each with enough to train on.

    Worked example: 100,000 passages, 4 sqrt(n) = 1265: 1024 lists. One million: 2048, as 4000 < 4096.
    """
    wanted = min(4 * n_passages**0.5, n_passages / POINTS_A_LIST, _MOST_LISTS)
    return int(2 ** int(np.log2(max(1.0, wanted))))


def build_ann(vectors: Vectors, kind: DenseKind, device: str = "cpu") -> Any:
    """Return a trained index of all vectors; equal vectors give an equal index on equally many threads.

    HNSW is built on one thread: its graph depends on the order in which points arrive.

    Args:
        vectors: (n, dimension), n at least FEWEST.
        kind: any but "flat".
        device: "cuda" trains and fills the kinds of `indexer.gpu.ON_GPU` on the first GPU.

    Raises:
        DeviceError: the device is not there.
    """
    n_passages, dimension = vectors.shape
    n_lists = n_lists_for(n_passages)
    subvectors = max(m for m in range(1, max(1, dimension // _SUBVECTOR) + 1) if dimension % m == 0)
    factory = {
        "ivf-sq8": f"IVF{n_lists},SQ8",
        "ivf-pq": f"IVF{n_lists},PQ{subvectors}x4fs",
        "hnsw": f"HNSW{_LINKS}_SQ8",
    }
    index: Any = faiss.index_factory(dimension, factory[kind], faiss.METRIC_INNER_PRODUCT)
    if kind == "hnsw":
        index.hnsw.efConstruction = _CONSTRUCTION_DEPTH
        index.train(_sample(vectors, _MOST_SCALED))
        with _one_thread():
            index.add(vectors)
        return index
    index.cp.seed, index.cp.spherical = _SEED, True
    resources = gpu_resources() if device == "cuda" else None
    if resources is not None and kind in ON_GPU:
        index = to_gpu(resources, index)
    index.train(_sample(vectors, _TRAINED_POINTS_A_LIST * n_lists))
    index.add(vectors)
    return to_cpu(index) if resources is not None and kind in ON_GPU else index


@contextmanager
def _one_thread() -> Iterator[None]:
    n_threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(n_threads)


def _sample(vectors: Vectors, most: int) -> Vectors:
    """Return at most so many of the vectors, evenly drawn."""
    if vectors.shape[0] <= most:
        return np.ascontiguousarray(vectors)
    chosen = np.random.default_rng(_SEED).choice(vectors.shape[0], most, replace=False)
    return np.ascontiguousarray(vectors[np.sort(chosen)])


class Proposer:
    """A built index that proposes rows for exact scoring; thread-safe: how hard it searches is said per call."""

    def __init__(self, index: faiss.Index, record: DenseRecord) -> None:
        """Wrap an index of the record's kind."""
        self._index = index
        self.record = record
        self.most_effort = record.n_lists if record.n_lists else int(index.ntotal)

    def propose(self, query_vector: Vectors, n_rows: int, *, effort: int, allowed: Mask | None) -> Rows:
        """Return at most n_rows rows, none twice, in no order that matters; fewer if the effort found no more.

        Args:
            query_vector: (dimension,).
            n_rows: at least 1.
            effort: as `DenseRecord.effort`, at most most_effort.
            allowed: (n_passages,), as `DenseIndex.search`.
        """
        query = np.ascontiguousarray(query_vector[None], np.float32)
        _, rows = self._index.search(query, n_rows, params=self._parameters(max(effort, 1), n_rows, allowed))
        found: Rows = rows[0][rows[0] >= 0].astype(np.int64)
        return found

    def _parameters(self, effort: int, n_rows: int, allowed: Mask | None) -> Any:
        if self.record.kind == "hnsw":
            return _FAISS.SearchParametersHNSW(efSearch=max(effort, n_rows), sel=selector(allowed))
        return _FAISS.SearchParametersIVF(nprobe=effort, sel=selector(allowed))


def selector(allowed: Mask | None) -> Any:
    """Return what tells FAISS which rows a call may return, None for all."""
    return None if allowed is None else _FAISS.IDSelectorBitmap(np.packbits(allowed, bitorder="little"))
