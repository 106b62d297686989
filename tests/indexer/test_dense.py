import gc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.ann import Vectors
from indexer.dense import DenseBuilder, DenseIndex, inner_products
from indexer.errors import SnapshotError


def _index(vectors: Vectors, path: Path) -> DenseIndex:
    builder = DenseBuilder(vectors.shape[1], len(vectors))
    builder.add(vectors)
    builder.write(path)
    return DenseIndex.open(path)


def _unit(vectors: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Vectors:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.float32)


def _random(n: int, *, seed: int = 0) -> Vectors:
    return _unit(np.random.default_rng(seed).standard_normal((n, 16)))


@pytest.mark.parametrize("n", [0, 1, 3])
def test_more_hits_than_passages_are_never_returned_and_no_row_is_negative(n: int, tmp_path: Path) -> None:
    hits = _index(_random(n), tmp_path / "dense.faiss").search(_random(1, seed=1)[0], 50)
    assert sorted(hits.rows.tolist()) == list(range(n))
    assert np.isfinite(hits.scores).all()


def test_no_hits_are_returned_when_none_are_wanted(tmp_path: Path) -> None:
    assert _index(_random(3), tmp_path / "dense.faiss").search(_random(1)[0], 0).rows.size == 0


@given(st.integers(1, 60), st.integers(1, 70), st.integers(1, 8), st.integers(0, 5))
def test_search_equals_brute_force_with_ties_by_row(
    tmp_path_factory: pytest.TempPathFactory, n: int, k: int, n_distinct: int, seed: int
) -> None:
    """Vectors repeat, so whole groups of rows tie, also across the last place."""
    vectors = _random(n_distinct, seed=seed)[np.random.default_rng(seed).integers(0, n_distinct, n)]
    query = _random(1, seed=seed + 100)[0]
    hits = _index(vectors, tmp_path_factory.mktemp("dense") / "dense.faiss").search(query, k)
    scores = np.array([inner_products(vectors[row : row + 1], query)[0] for row in range(n)])
    assert hits.rows.tolist() == sorted(range(n), key=lambda row: (-scores[row], row))[:k]
    assert hits.scores.tolist() == scores[hits.rows].tolist()


def test_many_equal_passages_come_in_order_of_row(tmp_path: Path) -> None:
    vectors = np.repeat(_random(1), 500, axis=0)
    assert _index(vectors, tmp_path / "dense.faiss").search(vectors[0], 7).rows.tolist() == list(range(7))


def test_scores_of_given_rows_equal_those_of_a_search(tmp_path: Path) -> None:
    index, query = _index(_random(200), tmp_path / "dense.faiss"), _random(1, seed=9)[0]
    hits = index.search(query, 20)
    assert index.scores(query, hits.rows).tolist() == hits.scores.tolist()
    assert index.scores(query, hits.rows[3:4]).tolist() == hits.scores[3:4].tolist()


def test_inner_products_are_those_of_paper() -> None:
    vectors = np.array([[0.6, 0.8], [1.0, 0.0]], np.float32)
    assert inner_products(vectors, np.array([0.8, 0.6], np.float32)) == pytest.approx([0.96, 0.8], abs=1e-7)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "dense.faiss").write_bytes(b"not an index")
    with pytest.raises(SnapshotError, match=r"dense\.faiss is not an index"):
        DenseIndex.open(tmp_path / "dense.faiss")


def test_scores_that_differ_only_by_the_order_of_summation_tie(tmp_path: Path) -> None:
    """Each row holds the same numbers in another order, so FAISS's float32 sums differ in their last bits."""
    random = np.random.default_rng(0)
    values = _unit(random.standard_normal((1, 64)))[0]
    vectors = np.stack([random.permutation(values) for _ in range(500)])
    query = np.full(64, 1 / 8, np.float32)
    assert _index(vectors, tmp_path / "dense.faiss").search(query, 7).rows.tolist() == list(range(7))


@given(st.integers(1, 60), st.integers(1, 70), st.integers(1, 8), st.floats(0, 1), st.integers(0, 5))
def test_a_mask_is_applied_before_the_best_are_taken(
    tmp_path_factory: pytest.TempPathFactory, n: int, k: int, n_distinct: int, share: float, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    vectors = _random(n_distinct, seed=seed)[generator.integers(0, n_distinct, n)]
    allowed, query = generator.random(n) < share, _random(1, seed=seed + 100)[0]
    hits = _index(vectors, tmp_path_factory.mktemp("dense") / "dense.faiss").search(query, k, allowed)
    scores = inner_products(vectors, query)
    best = sorted(np.flatnonzero(allowed).tolist(), key=lambda row: (-scores[row], row))[:k]
    assert hits.rows.tolist() == best


def test_vectors_outlive_their_index(tmp_path: Path) -> None:
    vectors = _random(2000)
    lent = _index(vectors, tmp_path / "dense.faiss").vectors
    gc.collect()
    assert np.array_equal(lent, vectors)
