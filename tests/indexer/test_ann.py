"""Approximate dense search against exact search."""

from pathlib import Path

import faiss
import numpy as np
import pytest

from indexer import ann
from indexer.ann import DenseKind, DenseRecord, DenseSettings, Vectors, choose_kind, index_bytes, n_lists_for
from indexer.dense import DenseBuilder, DenseIndex, write_ann
from indexer.errors import SnapshotError
from models.errors import DeviceError

N = 6000
DIMENSION = 32
APPROXIMATE: list[DenseKind] = ["hnsw", "ivf-sq8", "ivf-pq"]


def clustered(n: int, *, seed: int = 0) -> Vectors:
    """Return unit vectors around a hundred centres, as embeddings of texts on a hundred subjects lie."""
    generator = np.random.default_rng(seed)
    centres = np.random.default_rng(99).standard_normal((100, DIMENSION))
    vectors = centres[generator.integers(0, 100, n)] + 0.7 * generator.standard_normal((n, DIMENSION))
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.float32)


def built(vectors: Vectors, folder: Path, **settings: object) -> tuple[DenseIndex, DenseRecord]:
    builder = DenseBuilder(vectors.shape[1], len(vectors))
    builder.add(vectors)
    builder.write(folder / "dense.faiss")
    record = write_ann(folder / "dense.faiss", folder / "ann.faiss", DenseSettings.model_validate(settings))
    return DenseIndex.open(folder / "dense.faiss", folder / "ann.faiss", record), record


@pytest.fixture(scope="module", params=APPROXIMATE)
def index(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[DenseIndex, DenseRecord]:
    return built(clustered(N), tmp_path_factory.mktemp("ann"), kind=request.param, recall=0.97)


def test_the_recall_in_the_record_is_what_other_queries_get(index: tuple[DenseIndex, DenseRecord]) -> None:
    dense, record = index
    assert record.recall is not None
    assert record.recall >= 0.97
    assert (record.recall_depth, record.n_queries) == (100, 256)
    queries = clustered(60, seed=5)
    shares = [np.isin(dense.search(query, 100).rows, dense.search_exactly(query, 100).rows).mean() for query in queries]
    assert np.mean(shares) > 0.94
    assert dense.search(queries[0], 100).scores.tolist() == sorted(dense.search(queries[0], 100).scores, reverse=True)


def test_no_search_of_mapped_lists_starts_threads_to_fetch_them(tmp_path: Path) -> None:
    dense, _ = built(clustered(N), tmp_path, kind="ivf-sq8")
    assert dense._proposer is not None
    mapped = faiss.extract_index_ivf(dense._proposer._index).invlists
    assert mapped is not None
    lists = faiss.downcast_InvertedLists(mapped)
    assert isinstance(lists, faiss.OnDiskInvertedLists)
    assert lists.prefetch_nthread == 0


def test_more_effort_finds_more(tmp_path: Path) -> None:
    dense, record = built(clustered(N), tmp_path, kind="ivf-sq8", recall=1.0)
    queries = clustered(40, seed=6)

    def recall(effort: int) -> float:
        exact = [dense.search_exactly(query, 50).rows for query in queries]
        found = [dense.search(query, 50, effort=effort).rows for query in queries]
        return float(np.mean([np.isin(one, other).mean() for one, other in zip(found, exact, strict=True)]))

    assert recall(1) < recall(4) < recall(record.n_lists) == 1.0
    assert record.effort > 1


def test_scores_are_the_exact_ones(index: tuple[DenseIndex, DenseRecord]) -> None:
    dense, _ = index
    query = clustered(1, seed=7)[0]
    hits = dense.search(query, 10)
    assert hits.scores.tolist() == dense.scores(query, hits.rows).tolist()


@pytest.mark.parametrize("share", [0.0005, 0.05, 0.5])
def test_a_mask_leaves_as_many_as_it_allows(index: tuple[DenseIndex, DenseRecord], share: float) -> None:
    dense, _ = index
    allowed = np.random.default_rng(3).random(N) < share
    query = clustered(1, seed=8)[0]
    hits = dense.search(query, 100, allowed)
    assert hits.rows.size == min(100, np.count_nonzero(allowed))
    assert allowed[hits.rows].all()
    assert len(set(hits.rows.tolist())) == hits.rows.size
    exact = dense.scores(query, np.flatnonzero(allowed))
    best = np.sort(exact)[::-1][: hits.rows.size]
    assert (hits.scores >= best[-1]).mean() > 0.9


def test_more_than_there_are_gives_all_and_no_row_below_zero(index: tuple[DenseIndex, DenseRecord]) -> None:
    dense, _ = index
    hits = dense.search(clustered(1, seed=9)[0], N + 50)
    assert np.array_equal(np.sort(hits.rows), np.arange(N))


def test_a_list_with_too_few_rows_is_not_the_end(tmp_path: Path) -> None:
    dense, record = built(clustered(N), tmp_path, kind="ivf-sq8", recall=0.01)
    assert record.effort == 1
    assert dense.search(clustered(1, seed=10)[0], 2000).rows.size == 2000


@pytest.mark.parametrize("kind", APPROXIMATE)
def test_zero_and_equal_vectors_are_found_as_others(kind: DenseKind, tmp_path: Path) -> None:
    vectors = clustered(N)
    vectors[:40] = vectors[77]
    vectors[100:200] = 0
    dense, record = built(vectors, tmp_path, kind=kind)
    assert record.recall is not None
    assert record.recall > 0.9
    hits = dense.search(vectors[77], 41)
    assert np.count_nonzero(hits.scores > 1 - 1e-6) >= 39
    assert np.isfinite(dense.search(np.zeros(DIMENSION, np.float32), 5).scores).all()


@pytest.mark.parametrize("kind", APPROXIMATE)
def test_equal_vectors_give_equal_files(kind: DenseKind, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        built(clustered(N), tmp_path / name, kind=kind)
    assert (tmp_path / "one" / "ann.faiss").read_bytes() == (tmp_path / "two" / "ann.faiss").read_bytes()


@pytest.mark.parametrize("n", [0, 1, 71, 4999])
def test_too_few_passages_to_train_on_are_searched_exactly(n: int, tmp_path: Path) -> None:
    dense, record = built(clustered(max(n, 1))[:n], tmp_path, kind="ivf-pq")
    assert record == DenseRecord()
    assert not (tmp_path / "ann.faiss").exists()
    assert dense.search(clustered(1, seed=11)[0], 10).rows.size == min(n, 10)


def test_the_kind_follows_from_passages_and_memory() -> None:
    auto = DenseSettings()
    assert choose_kind(19_999, 384, auto) == "flat"
    assert choose_kind(1_000_000, 384, auto) == "ivf-sq8"
    assert index_bytes("ivf-sq8", 1_000_000, 384) == pytest.approx(395e6, rel=0.01)
    assert choose_kind(1_000_000, 384, DenseSettings(memory_bytes=200_000_000)) == "ivf-pq"
    assert choose_kind(1_000_000, 384, DenseSettings(kind="flat")) == "flat"
    assert choose_kind(10_000, 384, DenseSettings(kind="hnsw")) == "hnsw"


def test_lists_have_enough_points_to_train_on() -> None:
    assert [n_lists_for(n) for n in (1, 100, 5000, 100_000, 1_000_000)] == [1, 2, 128, 1024, 2048]
    assert all(n / n_lists_for(n) >= ann.POINTS_A_LIST for n in (5000, 20_000, 10**6, 10**7))


def test_a_damaged_file_is_one_sentence(tmp_path: Path) -> None:
    _, record = built(clustered(N), tmp_path, kind="ivf-sq8")
    (tmp_path / "ann.faiss").write_bytes(b"no index")
    with pytest.raises(SnapshotError, match=r"ann.faiss is not an index that FAISS reads"):
        DenseIndex.open(tmp_path / "dense.faiss", tmp_path / "ann.faiss", record)


def test_a_gpu_that_is_not_there_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faiss, "get_num_gpus", lambda: 0, raising=False)
    vectors = clustered(N)
    with pytest.raises(DeviceError, match=r"device 'cuda' was asked for, but (this FAISS has no|FAISS finds no) GPU"):
        built(vectors, tmp_path, kind="ivf-sq8", device="cuda")
    dense, _ = built(vectors, tmp_path)
    with pytest.raises(DeviceError, match="device 'cuda' was asked for"):
        dense.move_to_gpu()


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["flat", "ivf-sq8"])
def test_a_gpu_builds_and_searches_as_the_cpu_does(kind: DenseKind, tmp_path: Path) -> None:
    if getattr(faiss, "get_num_gpus", lambda: 0)() < 1:
        pytest.skip("FAISS finds no GPU here")
    dense, record = built(clustered(N), tmp_path, kind=kind, device="cuda")
    assert record.kind == kind
    query = clustered(1, seed=12)[0]
    exact = dense.search_exactly(query, 50)
    dense.move_to_gpu()
    assert dense.search(query, 50).rows.tolist() == exact.rows.tolist()
