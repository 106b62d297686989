"""Filters act before top-k: what they leave is found, however few it is and however much better the rest scores."""

from pathlib import Path

import numpy as np
import pytest

from indexer.bm25 import Bm25Builder, Bm25Index
from indexer.build import build_snapshot
from indexer.dense import DenseBuilder, DenseIndex
from indexer.documents import Document
from indexer.filters import And, Equal, Filter, Range, apply_filter
from indexer.recipe import IndexModels
from indexer.snapshot import Snapshot
from tests.indexer.columns import columns_of

_N = 100_000
_RARE = [17, 4_000, 50_001, 77_777, 99_999]


def test_both_legs_find_all_of_5_matching_among_100_000(tmp_path: Path) -> None:
    """The five are the worst for both legs: each holds the term once among ten, and points away from the query."""
    rare = set(_RARE)
    columns = columns_of([Document(f"{row:06}", "", metadata={"rare": row in rare}) for row in range(_N)], tmp_path)
    builder, long = Bm25Builder(), ["fog", *"abcdefghi"]
    vectors = np.random.default_rng(0).normal(size=(_N, 8)).astype(np.float32)
    vectors[:, 0] = np.abs(vectors[:, 0])
    for row in range(_N):
        builder.add(long if row in rare else ["fog"])
    vectors[_RARE, 0] = -5
    builder.write(tmp_path / "bm25")
    dense = DenseBuilder(8, _N)
    dense.add(vectors)
    dense.write(tmp_path / "dense.faiss")

    allowed = apply_filter(Equal("rare", True), columns).allowed
    query_vector = np.array([1, 0, 0, 0, 0, 0, 0, 0], np.float32)
    bm25 = Bm25Index(tmp_path / "bm25", n_passages=_N)
    assert not rare & set(bm25.search(["fog"], 200).rows.tolist())
    assert bm25.search(["fog"], 200, allowed).rows.tolist() == _RARE
    index = DenseIndex.open(tmp_path / "dense.faiss")
    assert not rare & set(index.search(query_vector, 200).rows.tolist())
    assert sorted(index.search(query_vector, 200, allowed=allowed).rows.tolist()) == _RARE


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (Range("year", gte=2010), {"1", "2"}),
        (And((Equal("title", "Fog"), Equal("lang", "en"))), {"0", "2"}),
        (Equal("document_id", "1"), {"1"}),
        (Equal("url", "u1"), {"1"}),
        (Equal("lang", "fr"), set()),
    ],
)
def test_a_snapshot_searches_what_a_filter_leaves(
    tmp_path: Path, index_models: IndexModels, expression: Filter, expected: set[str]
) -> None:
    documents = [
        Document("0", "fog. " * 400, "Fog", "u0", {"year": 2000, "lang": "en"}),
        Document("1", "fog ferry", "Ferry", "u1", {"year": 2010, "lang": "de"}),
        Document("2", "fog drum", "Fog", None, {"year": 2020.5, "lang": "en"}),
        Document("3", "fog kit"),
    ]
    build_snapshot(documents, index_path=tmp_path / "docs", models=index_models)
    snapshot = Snapshot.open(tmp_path / "docs", encoder_fingerprint="e" * 64, dimension=32)
    found = snapshot.filtered(expression)
    vector = np.full(32, 32**-0.5, np.float32)
    for hits in (snapshot.search_bm25("fog", 50, found.allowed), snapshot.search_dense(vector, 50, found.allowed)):
        assert {each.document_id for each in snapshot.passages(hits.rows)} == expected
        assert hits.rows.size == found.n_passages
    assert found.n_documents == len(expected)
    [facet] = snapshot.facets(["lang"], snapshot.matching_bm25("fog") & found.allowed, 5)
    assert facet.n_documents == len(expected)
    snapshot.close()
