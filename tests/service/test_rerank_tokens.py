"""Reading the best window of each passage instead of all of it, over HTTP with tiny random models."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from fastapi.testclient import TestClient

from indexer.documents import Document
from service.costs import search_cost
from service.queries import SearchQuery
from tests.conftest import TinyModels
from tests.service.conftest import build_index, started, tiny_settings
from tests.service.test_http import count, engine_of

FILLER = "bread and fog over the ferry and the probe"
SHORT, WINDOW = "honey from porto", 6
DOCUMENTS = [
    Document("late", f"{FILLER} {FILLER} {SHORT}"),
    Document("early", f"{SHORT} {FILLER} {FILLER}"),
    Document("short", SHORT),
]


@pytest.fixture(scope="module")
def client(tiny_models: TinyModels, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    settings = tiny_settings(tiny_models, tmp_path_factory.mktemp("windows") / "data", drain_seconds=0)
    build_index(DOCUMENTS, settings)
    yield from started(settings)


def search(client: TestClient, **fields: Any) -> dict[str, dict[str, Any]]:
    """The results by document."""
    response = client.post("/v1/search", json={"query": "honey porto", "settle_k": 0, "highlight": False} | fields)
    assert response.status_code == 200, response.text
    return {result["document_id"]: result for result in response.json()["results"]}


def n_tokens(client: TestClient, outcome: str) -> float:
    return count(client, "tercet_rerank_tokens_total", outcome=outcome)


def test_what_is_not_read_is_said_and_counted(client: TestClient) -> None:
    whole, before = search(client), [n_tokens(client, each) for each in ("read", "cut")]
    found = search(client, rerank_tokens=WINDOW)
    read, cut = [n_tokens(client, each) - n for each, n in zip(("read", "cut"), before, strict=True)]
    lengths = {
        document_id: engine_of(client).models.cross_encoder.tokenizer.encode(document.text).ids.size
        for document_id, document in ((each.document_id, each) for each in DOCUMENTS)
    }
    expected = {document_id: max(0, n - WINDOW) for document_id, n in lengths.items()}
    assert {document_id: each["cut_tokens"] for document_id, each in found.items()} == expected
    assert {document_id: each["truncated"] for document_id, each in found.items()} == {
        document_id: n > 0 for document_id, n in expected.items()
    }
    assert cut == sum(expected.values()) > 0
    query = engine_of(client).models.cross_encoder.tokenizer.encode("honey porto").ids.size
    assert read == sum(min(n, WINDOW) + query + 3 for n in lengths.values())
    assert {each["cut_tokens"] for each in whole.values()} == {0}


def test_a_window_stands_where_the_query_is(client: TestClient) -> None:
    windowed = search(client, rerank_tokens=3)
    logits = {document_id: result["scores"]["rerank_logit"] for document_id, result in windowed.items()}
    assert logits["late"] == logits["early"] == logits["short"]


def test_what_is_known_of_windows_is_not_taken_for_whole_passages(client: TestClient) -> None:
    asked = {"query": "honey and fog"}
    first = [search(client, **asked, rerank_tokens=n) for n in (0, WINDOW, 0, WINDOW)]
    assert first[0] == first[2] != first[1] == first[3]


def test_a_window_that_holds_all_changes_nothing(client: TestClient) -> None:
    assert search(client, rerank_tokens=512) == search(client)


def test_windows_cost_less(client: TestClient) -> None:
    models, query = engine_of(client).models, SearchQuery("honey porto", settle_k=0)
    with engine_of(client).borrowed(None) as snapshot:
        whole, part, all_of_it = (
            search_cost(models, replace(query, rerank_tokens=n), snapshot).tokens
            for n in (0, WINDOW, snapshot.mean_passage_tokens)
        )
    assert part < whole == all_of_it


def test_an_answer_reads_windows_too(client: TestClient) -> None:
    before = n_tokens(client, "cut")
    response = client.post("/v1/answer", json={"query": "who has honey", "rerank_tokens": WINDOW})
    assert response.status_code == 200
    assert n_tokens(client, "cut") > before


def test_own_passages_are_not_reranked(client: TestClient) -> None:
    body = {"query": "who has honey", "passages": [{"id": "a", "text": SHORT}], "rerank_tokens": WINDOW}
    response = client.post("/v1/answer", json=body)
    assert response.status_code == 422
    assert "rerank_tokens" in response.text
