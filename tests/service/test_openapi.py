"""The description says what the service does: every route, every status with an example, nothing of another host."""

import re
import sys
from typing import Any

import pytest
from fastapi.testclient import TestClient
from pydantic import TypeAdapter

from service.embedding_bodies import EmbeddingsResponse
from service.requests import NOT_BLANK
from service.rerank_bodies import RerankResponse
from service.schemas import AnswerResponse, DocumentResponse, IndexesResponse, ProblemBody
from service.scopes import asked_route
from service.search_schemas import SearchBatchResponse, SearchResponse
from service.tei_bodies import RankBody


@pytest.fixture
def description(client: TestClient) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/openapi.json").json()
    return found


def test_every_route_is_described(description: dict[str, Any]) -> None:
    assert set(description["paths"]) == {
        "/v1/search", "/v1/search/batch", "/v1/answer", "/v1/documents/{document_id}", "/v1/indexes",
        "/v1/rerank", "/v2/rerank", "/rerank", "/v1/embeddings", "/embed",
        "/healthz", "/readyz", "/metrics",
        "/v1/jobs", "/v1/jobs/upload", "/v1/jobs/{job_id}",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("path", "statuses"),
    [
        ("/v1/search", "200 400 401 403 404 408 413 415 421 422 429 500 503 504"),
        ("/v1/search/batch", "200 400 401 403 404 408 413 415 421 422 429 500 503 504"),
        ("/v1/answer", "200 400 401 403 404 408 413 415 421 422 429 500 503 504"),
        ("/v1/rerank", "200 400 401 403 408 413 415 421 422 429 500 503 504"),
        ("/v2/rerank", "200 400 401 403 408 413 415 421 422 429 500 503 504"),
        ("/rerank", "200 400 401 403 408 413 415 421 422 429 500 503 504"),
        ("/v1/embeddings", "200 400 401 403 408 413 415 421 422 429 500 503 504"),
        ("/embed", "200 400 401 403 408 413 415 421 422 429 500 503 504"),
        ("/v1/documents/{document_id}", "200 401 403 404 421 422 429 500 503"),
        ("/v1/indexes", "200 401 403 421 429 500 503"),
        ("/readyz", "200 421 500 503"),
        ("/healthz", "200 421"),
        ("/metrics", "200 401 403 421 429"),
    ],
)
def test_every_status_that_can_occur_is_described(description: dict[str, Any], path: str, statuses: str) -> None:
    [operation] = description["paths"][path].values()
    assert sorted(operation["responses"]) == statuses.split()


@pytest.mark.parametrize("path", ["/v1/search", "/rerank"])
def test_problems_are_described_as_problem_documents_with_examples(description: dict[str, Any], path: str) -> None:
    responses = description["paths"][path]["post"]["responses"]
    for status, response in responses.items():
        if status >= "400":
            [(media_type, content)] = response["content"].items()
            assert media_type == "application/problem+json"
            assert content["schema"]["$ref"].endswith("/ProblemBody")
            for example in content["examples"].values():
                ProblemBody.model_validate(example["value"], strict=True)


@pytest.mark.parametrize(
    ("path", "model"),
    [
        ("/v1/search", SearchResponse),
        ("/v1/search/batch", SearchBatchResponse),
        ("/v1/answer", AnswerResponse),
        ("/v1/documents/{document_id}", DocumentResponse),
        ("/v1/indexes", IndexesResponse),
        ("/v1/rerank", RerankResponse),
        ("/v2/rerank", RerankResponse),
        ("/rerank", list[RankBody]),
        ("/v1/embeddings", EmbeddingsResponse),
        ("/embed", list[list[float]]),
    ],
)
def test_examples_are_valid_responses(description: dict[str, Any], path: str, model: Any) -> None:
    [operation] = description["paths"][path].values()
    example = operation["responses"]["200"]["content"]["application/json"]["example"]
    adapter = TypeAdapter(model)
    assert adapter.dump_python(adapter.validate_python(example, strict=True), mode="json") == example


def test_request_examples_are_valid_requests(client: TestClient, description: dict[str, Any]) -> None:
    for path in ("/v1/rerank", "/v2/rerank", "/rerank", "/v1/embeddings", "/embed"):
        schema = description["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        fields = description["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]["properties"]
        body = {name: field["examples"][0] for name, field in fields.items() if "examples" in field}
        assert client.post(path, json=body).status_code == 200


def test_headers_of_bare_arrays_are_described(client: TestClient, description: dict[str, Any]) -> None:
    for path, body in (("/rerank", {"query": "a", "texts": ["b"]}), ("/embed", {"inputs": "a"})):
        described = description["paths"][path]["post"]["responses"]["200"]["headers"]
        assert set(described) <= {name.title() for name in client.post(path, json=body).headers}


def test_every_route_says_which_scope_a_key_needs_and_what_it_is_refused_with(description: dict[str, Any]) -> None:
    schemes = description["components"]["securitySchemes"]
    assert (schemes["bearer"]["scheme"], schemes["header"]["name"]) == ("bearer", "X-API-Key")
    for path, operations in description["paths"].items():
        needs = asked_route(path).needs
        for operation in operations.values():
            if needs == "nothing":
                assert operation["security"] == []
                assert "401" not in operation["responses"]
                continue
            assert operation["security"] == [{"bearer": [needs]}, {"header": [needs]}]
            for status, kind in (
                ("401", "key-missing"),
                ("401", "key-refused"),
                ("403", "scope-missing"),
                ("429", "key-at-limit"),
            ):
                examples = operation["responses"][status]["content"]["application/problem+json"]["examples"]
                assert examples[kind]["value"]["type"] == f"/problems/{kind}"
            assert "WWW-Authenticate" in operation["responses"]["401"]["headers"]
            assert "Retry-After" in operation["responses"]["429"]["headers"]


def test_the_framework_s_own_error_shape_is_gone(description: dict[str, Any]) -> None:
    assert not {"HTTPValidationError", "ValidationError"} & set(description["components"]["schemas"])


def test_the_pattern_of_a_query_is_what_counts_as_blank() -> None:
    not_blank = re.compile(NOT_BLANK)
    assert [
        chr(code) for code in range(sys.maxunicode + 1) if chr(code).isspace() == bool(not_blank.search(chr(code)))
    ] == []
