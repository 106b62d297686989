"""What the classes take and what they refuse, from the examples that the service's OpenAPI gives."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from service.app import create_app
from service.settings import Settings
from tercet_client import AnswerResponse, Document, Job, SearchResponse, UnexpectedResponse
from tercet_client.parsing import parse


@pytest.fixture(scope="module")
def search() -> dict[str, Any]:
    return example("/v1/search", "post", "200")


def example(path: str, method: str, status: str) -> dict[str, Any]:
    responses = create_app(Settings()).openapi()["paths"][path][method]["responses"]
    found: dict[str, Any] = responses[status]["content"]["application/json"]["example"]
    return found


def parsed(kind: type[Any], body: object) -> Any:
    return parse(kind, json.dumps(body).encode())


def changed(body: Any, path: str, value: object) -> Any:
    """A copy with one value exchanged, or left out where it is `...`."""
    body = json.loads(json.dumps(body))
    *steps, last = (int(step) if step.isdigit() else step for step in path.split("/"))
    inner = body
    for step in steps:
        inner = inner[step]
    if value is ...:
        del inner[last]
    else:
        inner[last] = value
    return body


def test_examples_are_parsed_into_frozen_classes(search: dict[str, Any]) -> None:
    found = parsed(SearchResponse, search)
    [result] = found.results
    assert result.scores.bm25 == search["results"][0]["scores"]["bm25"]
    assert result.highlights[1].start == search["results"][0]["highlights"][1]["start"]
    assert found.facets[0].values[0].value == 1874
    assert found.filter.n_documents == search["filter"]["n_documents"]
    assert hash(result.highlights) == hash(parsed(SearchResponse, search).results[0].highlights)
    with pytest.raises(AttributeError):
        found.query = "another"
    answered = parsed(AnswerResponse, example("/v1/answer", "post", "200"))
    before, text, after = answered.answer.split_context()
    assert (text, before[-7:], after[:4]) == ("Ingrid Vale", "er was ", ", wh")
    job = parsed(Job, example("/v1/jobs/{job_id}", "get", "200"))
    assert job.created_at == datetime(2026, 1, 1, tzinfo=UTC)
    assert job.started_at == datetime(2026, 1, 1, 0, 0, 0, 120_000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("a_new_field", {"of": ["a", "newer", "service"]}),
        ("results/0/a_new_field", 1),
        ("results/0/score_kind", "a_new_kind"),
        ("results/0/score", 1),
        ("results/0/explanation", ...),
        ("results/0/metadata", {"a": True, "b": 1, "c": 1.5, "d": "x"}),
        ("filter", None),
        ("timings_ms", {}),
    ],
)
def test_what_a_newer_service_may_say_is_taken(search: dict[str, Any], path: str, value: object) -> None:
    assert parsed(SearchResponse, changed(search, path, value)).request_id == search["request_id"]


def test_values_keep_their_kinds() -> None:
    metadata = {"a": True, "b": 1, "c": 1.0, "d": "1"}
    body = {"index": "a", "snapshot": "b", "document_id": "c", "title": "", "text": "", "url": None}
    found = parsed(Document, body | {"metadata": metadata}).metadata
    assert {name: (type(value), value) for name, value in found.items()} == {
        name: (type(value), value) for name, value in metadata.items()
    }


@pytest.mark.parametrize(
    ("path", "value", "fault"),
    [
        ("results", ..., "at # the field `results` is missing"),
        ("results", None, "at #/results a list is expected, not null"),
        ("results/0", 7, "at #/results/0 an object is expected, not a whole number"),
        ("results/0/score", "high", "at #/results/0/score a number is expected, not a text"),
        ("results/0/score", True, "at #/results/0/score a number is expected, not a boolean"),
        ("results/0/rank", 1.5, "at #/results/0/rank a whole number is expected, not a number"),
        ("results/0/rank", True, "at #/results/0/rank a whole number is expected, not a boolean"),
        ("results/0/truncated", 1, "at #/results/0/truncated a boolean is expected, not a whole number"),
        ("results/0/score_kind", 1, "at #/results/0/score_kind a text is expected, not a whole number"),
        ("results/0/metadata/year", None, "at #/results/0/metadata/year"),
        ("results/0/scores/bm25", ..., "at #/results/0/scores the field `bm25` is missing"),
        ("results/0/highlights/1/end", None, "at #/results/0/highlights/1/end a whole number is expected, not null"),
        ("filter/n_documents", "1", "at #/filter/n_documents a whole number is expected, not a text"),
        ("timings_ms/total", [], "at #/timings_ms/total a number is expected, not a list"),
    ],
)
def test_what_does_not_fit_is_named_by_its_place(search: dict[str, Any], path: str, value: object, fault: str) -> None:
    with pytest.raises(UnexpectedResponse) as caught:
        parsed(SearchResponse, changed(search, path, value))
    assert str(caught.value).startswith(f"The response should be a SearchResponse, but {fault}")


@pytest.mark.parametrize("time", ["yesterday", "2026-01-01T00:00:00", "", 7])
def test_a_time_has_an_offset(time: object) -> None:
    job = example("/v1/jobs/{job_id}", "get", "200")
    with pytest.raises(UnexpectedResponse, match="at #/created_at a t"):
        parsed(Job, job | {"created_at": time})


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 100_000])
def test_what_is_no_json_is_told(body: bytes) -> None:
    with pytest.raises(UnexpectedResponse, match=r"^The response should be a Job, but is no JSON\.$"):
        parse(Job, body)
