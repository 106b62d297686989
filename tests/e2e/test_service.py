"""What a client of the real process gets: search, answers, documents, probes, and problem documents for the rest."""

import socket
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from .conftest import DOCUMENTS, document_text
from .processes import RunningService


def assert_problem(response: httpx.Response, *, status: int, type_: str) -> dict[str, Any]:
    assert response.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = response.json()
    assert (response.status_code, problem["status"], problem["type"]) == (status, status, f"/problems/{type_}")
    assert problem["request_id"]
    return problem


def test_search_returns_passages_that_are_slices_of_their_documents(service: RunningService) -> None:
    body = service.post("/v1/search", query="who kept the lighthouse", top_k=6).json()
    assert [result["rank"] for result in body["results"]] == list(range(1, len(body["results"]) + 1))
    assert {result["document_id"] for result in body["results"]} <= {document["id"] for document in DOCUMENTS}
    for result in body["results"]:
        assert result["text"] == document_text(result["document_id"])[result["start"] : result["end"]]
        assert result["score_kind"] == "relevance"
        assert 0 <= result["score"] <= 1
    assert {"encode", "retrieve", "fuse", "rerank", "total"} <= set(body["timings_ms"])


@pytest.mark.usefixtures("bundled_models")
@pytest.mark.parametrize(
    ("query", "document_id"),
    [("who kept the lighthouse", "lighthouse"), ("what do beavers build", "beavers"), ("reset my boiler", "boiler")],
)
def test_the_right_document_is_first(service: RunningService, query: str, document_id: str) -> None:
    assert service.post("/v1/search", query=query).json()["results"][0]["document_id"] == document_id


def test_an_answer_is_a_slice_of_its_document_in_both_units(service: RunningService) -> None:
    body = service.post("/v1/answer", query="where did the probe leave from", no_answer_threshold=-1000).json()
    assert body["answer"] == body["answers"][0]
    for answer in body["answers"]:
        text = document_text(answer["document_id"])
        assert answer["text"] == text[answer["start"] : answer["end"]]
        utf16 = text.encode("utf-16-le")[2 * answer["start_utf16"] : 2 * answer["end_utf16"]]
        assert answer["text"] == utf16.decode("utf-16-le")


@pytest.mark.usefixtures("bundled_models")
def test_a_question_is_answered_from_the_text(service: RunningService) -> None:
    body = service.post("/v1/answer", query="who was the first keeper of the lighthouse at Cape Wren").json()
    assert body["no_answer"]["is_no_answer"] is False
    assert body["answer"]["text"] == "Ingrid Vale"


@pytest.mark.usefixtures("bundled_models")
def test_a_question_that_no_document_answers_gets_none_and_says_why(service: RunningService) -> None:
    body = service.post("/v1/answer", query="what is the capital of Belarus").json()
    assert body["answer"] is None
    assert body["no_answer"]["is_no_answer"] is True
    assert body["no_answer"]["margin"] < body["no_answer"]["threshold"]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document["id"])
def test_a_document_comes_back_as_it_was_indexed(service: RunningService, document: dict[str, Any]) -> None:
    found = service.get(f"/v1/documents/{document['id']}").json()
    assert (found["document_id"], found["title"], found["text"]) == (
        document["id"],
        document["title"],
        document["text"],
    )
    assert found["metadata"] == document.get("metadata", {})


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/openapi.json", "/docs", "/"])
def test_what_has_no_body_answers_with_200(service: RunningService, path: str) -> None:
    assert service.get(path).status_code == 200


def test_errors_are_problem_documents(service: RunningService) -> None:
    assert_problem(service.get("/v1/nothing"), status=404, type_="unknown-route")
    assert_problem(service.get("/v1/documents/nothing"), status=404, type_="unknown-document")
    assert_problem(service.post("/v1/search", query="beavers", index="other"), status=404, type_="unknown-index")
    assert_problem(service.get("/v1/search"), status=405, type_="method-not-allowed")
    as_text = httpx.post(f"{service.url}/v1/search", content="beavers", headers={"content-type": "text/plain"})
    assert_problem(as_text, status=415, type_="unsupported-media-type")
    broken = httpx.post(f"{service.url}/v1/search", content='{"query": ', headers={"content-type": "application/json"})
    assert_problem(broken, status=400, type_="malformed-body")
    large = service.post("/v1/search", query="beavers " * 1_000_000)
    assert_problem(large, status=413, type_="body-too-large")


def test_an_invalid_request_names_every_fault_by_pointer(service: RunningService) -> None:
    problem = assert_problem(
        service.post("/v1/search", query="beavers", top_k=0, mode="psychic"), status=422, type_="invalid-request"
    )
    assert {error["pointer"] for error in problem["errors"]} == {"#/top_k", "#/mode"}


def test_a_request_that_is_no_http_does_not_disturb_the_service(service: RunningService) -> None:
    address = urlsplit(service.url)
    with socket.create_connection((address.hostname, address.port), timeout=10) as connection:
        connection.sendall(b"\x16\x03\x01 this is not HTTP\r\n\r\n")
        assert b" 400 " in connection.recv(4096)
    assert service.get("/readyz").status_code == 200
