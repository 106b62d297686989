"""The cross-encoder stops once the head of the ranking is settled, over HTTP with tiny random models."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from indexer.documents import Document
from models.early_exit import FIRST
from models.folder import EarlyExitCalibration, RelevanceCalibration, open_model_folder, write_settings
from service.costs import search_cost
from service.queries import SearchQuery
from service.settings import Settings
from tests.conftest import TinyModels
from tests.service.conftest import build_index, started, tiny_settings
from tests.service.test_http import count, engine_of

WORDS = "bees honey harbour probe fog bread ferry ticket answer turku porto tuesday".split()
N_DOCUMENTS = 80
SURE = 0.0  # deviations: an unread candidate is held to gain no more than the mean
NEVER_SURE = 1e9


def calibrated(model: Path, out: Path, *, deviations: float) -> Path:
    """Copy a cross-encoder, whose relevance now leans on the cosine and which may stop early."""
    shutil.copytree(model, out)
    relevance = RelevanceCalibration(logit_weight=0.01, dense_weight=50, bias=-45, origin="made")
    early_exit = EarlyExitCalibration(deviations=deviations, confidence=0.9, k=10, origin="made", n_queries=100)
    settings = open_model_folder(str(out), "cross-encoder").settings
    write_settings(out, settings.model_copy(update={"relevance": relevance, "early_exit": early_exit}))
    return out


def made_settings(models: TinyModels, scratch: Path, *, deviations: float = SURE) -> Settings:
    """Return settings that serve two passages of each of forty documents."""
    settings = tiny_settings(models, scratch / "data", drain_seconds=0)
    model = calibrated(models.cross_encoder, scratch / "model", deviations=deviations)
    settings = settings.model_copy(update={"cross_encoder": str(model)})
    build_index(
        [
            Document(f"d{n:02}", f"{WORDS[n % 12]} and {WORDS[n * 5 % 11]} number {n} over the {WORDS[n * 7 % 12]}")
            for n in range(N_DOCUMENTS)
        ],
        settings,
    )
    return settings


@pytest.fixture(scope="module")
def exits(tiny_models: TinyModels, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    yield from started(made_settings(tiny_models, tmp_path_factory.mktemp("exit")))


def search(client: TestClient, **fields: Any) -> dict[str, Any]:
    response = client.post("/v1/search", json={"query": "honey over the harbour", "top_k": 100} | fields)
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    return body


def best(body: dict[str, Any], n: int = 10) -> list[str]:
    return [result["document_id"] for result in body["results"]][:n]


def test_it_stops_and_says_so_and_the_head_is_that_of_reading_all(exits: TestClient) -> None:
    whole, stopped = search(exits, settle_k=0), search(exits)
    assert whole["rerank_k_used"] == N_DOCUMENTS
    assert "rerank:settled" not in whole["skipped"]
    assert stopped["rerank_k_used"] == FIRST
    assert "rerank:settled" in stopped["skipped"]
    assert best(stopped) == best(whole)
    assert sorted(best(stopped, 100)) == sorted(best(whole, 100))


def test_the_union_of_pages_is_one_page(exits: TestClient) -> None:
    pages = [search(exits, top_k=7, offset=offset) for offset in range(0, 84, 7)]
    assert [each for page in pages for each in best(page)] == best(search(exits), 100)
    assert {page["rerank_k_used"] for page in pages} == {FIRST}


def test_a_longer_head_takes_more_candidates(exits: TestClient) -> None:
    assert search(exits, settle_k=40)["rerank_k_used"] >= 40
    assert search(exits, settle_k=1000)["rerank_k_used"] == N_DOCUMENTS


def test_what_may_reach_min_score_is_read(exits: TestClient) -> None:
    least = search(exits, settle_k=0)["results"][39]["score"]
    read = search(exits, min_score=least)
    assert len(read["results"]) == len(search(exits, min_score=least, settle_k=0)["results"])
    assert read["rerank_k_used"] > FIRST
    assert search(exits, min_score=0)["rerank_k_used"] == N_DOCUMENTS


def test_a_grouped_head_counts_documents(exits: TestClient) -> None:
    """Each document has one passage here, so that groups change nothing."""
    assert search(exits, group_by_document=True)["rerank_k_used"] == FIRST


def test_an_answer_settles_what_it_reads(exits: TestClient) -> None:
    asked = {"query": "what sells honey", "read_k": 40}
    response = exits.post("/v1/answer", json=asked).json()
    assert response["rerank_k_used"] >= 40
    assert exits.post("/v1/answer", json=asked | {"read_k": 5}).json()["rerank_k_used"] == FIRST
    assert exits.post("/v1/answer", json=asked | {"settle_k": 0}).json()["rerank_k_used"] == N_DOCUMENTS


def test_candidates_are_counted_by_what_became_of_them(exits: TestClient) -> None:
    before = [count(exits, "tercet_rerank_candidates_total", outcome=each) for each in ("read", "settled", "deadline")]
    search(exits)
    after = [count(exits, "tercet_rerank_candidates_total", outcome=each) for each in ("read", "settled", "deadline")]
    assert [b - a for a, b in zip(before, after, strict=True)] == [FIRST, N_DOCUMENTS - FIRST, 0]


def test_the_next_search_is_priced_by_what_the_last_ones_read(exits: TestClient) -> None:
    engine = engine_of(exits)
    before = engine.read_share
    search(exits, settle_k=0)
    assert engine.read_share == before
    search(exits)
    assert engine.read_share == pytest.approx(before + (FIRST / N_DOCUMENTS - before) / 20)


def test_a_search_that_had_no_time_counts_as_reading_all(exits: TestClient) -> None:
    engine = engine_of(exits)
    engine.read_share = 0.2
    engine.note_reranked(1.0)
    assert engine.read_share == pytest.approx(0.24)


@pytest.mark.parametrize(
    ("asked", "read_share", "n_expected"),
    [
        ({}, 0.5, 40),
        ({}, 0.01, FIRST),
        ({"settle_k": 60}, 0.01, 60),
        ({"settle_k": N_DOCUMENTS}, 0.01, N_DOCUMENTS),
        ({"settle_k": 1000}, 0.01, N_DOCUMENTS),
        ({"settle_k": 0}, 0.01, N_DOCUMENTS),
        ({"min_score": 0.0}, 0.01, N_DOCUMENTS),
        ({"rerank_k": 12}, 0.01, 12),
    ],
)
def test_a_search_is_priced_at_the_candidates_it_is_expected_to_read(
    exits: TestClient, asked: dict[str, Any], read_share: float, n_expected: int
) -> None:
    engine = engine_of(exits)

    def reranking(query: SearchQuery) -> int:
        cost = search_cost(engine.models, query, engine.snapshot, read_share=read_share)
        return cost.tokens - cost.least

    one = reranking(SearchQuery("honey", rerank_k=1))
    assert reranking(SearchQuery("honey", **asked)) == n_expected * one


@pytest.fixture(scope="module")
def unsure(tiny_models: TinyModels, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    yield from started(made_settings(tiny_models, tmp_path_factory.mktemp("unsure"), deviations=NEVER_SURE))


def test_a_calibration_that_is_never_sure_reads_all(unsure: TestClient) -> None:
    body = search(unsure)
    assert body["rerank_k_used"] == N_DOCUMENTS
    assert "rerank:settled" not in body["skipped"]
