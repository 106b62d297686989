"""What is known of recent queries is what would be computed, stays within its bytes, and goes with its snapshot."""

from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st

from indexer.documents import Document
from service.metrics import Metrics
from service.query_cache import Asked, QueryCache, QueryVector
from service.settings import Settings
from tests.service.conftest import DOCUMENTS, build_index, started
from tests.service.test_http import count, engine_of

BEES = Asked("bees")
VECTOR = QueryVector(np.ones(4, np.float32), cut_tokens=2)


def made(max_bytes: int = 100_000) -> QueryCache:
    cache = QueryCache(max_bytes, Metrics())
    cache.serve("one")
    return cache


def rows(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, np.int64)


def logits(*values: float) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.array(values, np.float32)


def test_a_vector_is_known_after_it_was_kept() -> None:
    cache = made()
    assert cache.vector("bees") is None
    cache.keep_vector("bees", VECTOR)
    assert cache.vector("bees") is VECTOR
    assert cache.vector("honey") is None


def test_logits_are_known_by_row_in_any_order() -> None:
    cache = made()
    cache.keep_logits("one", BEES, rows(7, 3), logits(0.7, 0.3))
    cache.keep_logits("one", BEES, rows(5, 3), logits(0.5, 0.3))
    cache.keep_vector("bees", VECTOR)
    np.testing.assert_array_equal(cache.logits("one", BEES, rows(3, 4, 5, 7, 9)), logits(0.3, np.nan, 0.5, 0.7, np.nan))


def test_a_logit_that_is_no_number_is_not_kept() -> None:
    cache = made()
    cache.keep_logits("one", BEES, rows(1, 2), logits(np.nan, 2))
    np.testing.assert_array_equal(cache.logits("one", BEES, rows(1, 2)), logits(np.nan, 2))


def test_another_snapshot_knows_nothing_and_what_an_old_one_says_is_not_kept() -> None:
    cache = made()
    cache.keep_logits("one", BEES, rows(1), logits(1))
    cache.serve("two")
    assert np.isnan(cache.logits("two", BEES, rows(1))).all()
    cache.keep_logits("one", BEES, rows(1), logits(1))
    assert np.isnan(cache.logits("two", BEES, rows(1))).all()
    assert np.isnan(cache.logits("one", BEES, rows(1))).all()


def test_the_least_recently_asked_go_first() -> None:
    one = made()
    one.keep_vector("a", VECTOR)
    cache = made(2 * one.n_bytes)
    for query in ("a", "b"):
        cache.keep_vector(query, VECTOR)
    assert cache.vector("a") is VECTOR
    cache.keep_vector("c", VECTOR)
    assert [cache.vector(query) is None for query in ("a", "b", "c")] == [False, True, False]


def test_logits_that_are_asked_for_stay_too() -> None:
    asked = [Asked("bees", rerank_tokens) for rerank_tokens in (96, 64, 32)]
    one = made()
    one.keep_logits("one", asked[0], rows(1), logits(1))
    cache = made(2 * one.n_bytes)
    for each in asked[:2]:
        cache.keep_logits("one", each, rows(1), logits(1))
    assert np.isfinite(cache.logits("one", asked[0], rows(1))).all()
    cache.keep_logits("one", asked[2], rows(1), logits(1))
    assert [bool(np.isnan(cache.logits("one", each, rows(1))).all()) for each in asked] == [False, True, False]


def test_without_bytes_nothing_is_kept() -> None:
    cache = made(0)
    cache.keep_vector("bees", VECTOR)
    assert (cache.vector("bees"), cache.n_bytes) == (None, 0)


@given(
    st.lists(
        st.tuples(st.sampled_from("abcdefgh"), st.lists(st.integers(0, 50), max_size=40, unique=True)), max_size=40
    ),
    st.integers(0, 8_000),
)
def test_it_stays_within_its_bytes_and_tells_the_truth(asked: list[tuple[str, list[int]]], max_bytes: int) -> None:
    cache = made(max_bytes)
    for query, found in asked:
        truth = np.array(found, np.float32) + ord(query)
        known = cache.logits("one", Asked(query), rows(*found))
        assert ((known == truth) | np.isnan(known)).all()
        cache.keep_logits("one", Asked(query), rows(*found), truth)
        assert 0 <= cache.n_bytes <= max_bytes
    cache.serve("two")
    assert cache.n_bytes == 0


@pytest.mark.parametrize("path", ["/v1/search", "/v1/answer"])
def test_a_query_asked_again_gets_the_same_response_without_the_models(client: TestClient, path: str) -> None:
    query = {"query": f"who sells honey in the harbour, asked at {path}"}
    first = client.post(path, json=query).json()
    batches = [count(client, "tercet_batch_items_count", model=each) for each in ("dual_encoder", "cross_encoder")]
    hits = count(client, "tercet_cache_lookups_total", what="logit", outcome="hit")
    again = client.post(path, json=query).json()
    assert {**again, "timings_ms": 0, "request_id": 0} == {**first, "timings_ms": 0, "request_id": 0}
    assert batches == [
        count(client, "tercet_batch_items_count", model=each) for each in ("dual_encoder", "cross_encoder")
    ]
    assert count(client, "tercet_cache_lookups_total", what="logit", outcome="hit") == hits + first["rerank_k_used"]
    assert count(client, "tercet_cache_bytes") > 0


def test_what_is_cached_does_not_outlive_its_snapshot(settings: Settings, tmp_path: Path) -> None:
    changed = settings.model_copy(update={"data_path": tmp_path, "snapshot_poll_seconds": 0.05})
    build_index(DOCUMENTS, changed)
    for client in started(changed):
        before = client.post("/v1/search", json={"query": "bees", "top_k": 100}).json()
        build_index([*DOCUMENTS, Document("aaa", "bees bees bees")], changed)
        engine = engine_of(client)
        while engine.snapshot.snapshot_id == before["snapshot"]:
            client.get("/healthz")
        after = client.post("/v1/search", json={"query": "bees", "top_k": 100}).json()
        assert count(client, "tercet_cache_lookups_total", what="logit", outcome="hit") == 0
        logits_of = [
            {each["document_id"]: each["scores"]["rerank_logit"] for each in page["results"]}
            for page in (before, after)
        ]
        assert logits_of[1].items() > logits_of[0].items()


def test_a_kept_vector_holds_no_batch(client: TestClient) -> None:
    client.post("/v1/search", json={"query": "a vector that stands alone"})
    found = engine_of(client).cache.vector("a vector that stands alone")
    assert found is not None
    assert found.vector.base is None
