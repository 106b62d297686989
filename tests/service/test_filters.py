"""Filters and facets over HTTP, with tiny random models: what is left, what is counted, what is refused and where."""

from typing import Any

import pytest
from fastapi.testclient import TestClient
from pydantic import TypeAdapter, ValidationError

from indexer.filters import And, Equal, Exists, In, Not, Or, Range
from service.filter_bodies import FilterBody, OptionalFilter

from .conftest import DOCUMENTS
from .test_http import faults
from .test_search import search

COLD = {"field": "is_cold", "equal": True}
IDS = {"field": "document_id", "in": ["alpha/1", "beta", "fog", "turku"]}


def documents_of(body: dict[str, Any]) -> set[str]:
    return {result["document_id"] for result in body["results"]}


@pytest.mark.parametrize("mode", ["hybrid", "dense", "bm25"])
def test_only_what_the_filter_leaves_is_found_and_it_is_counted(client: TestClient, mode: str) -> None:
    body = search(client, "who keeps bees", mode=mode, filter=COLD, top_k=100)
    assert documents_of(body) == {"turku"}
    assert body["results"][0]["metadata"] == {"year": 1999, "is_cold": True}
    assert body["filter"] == {"n_documents": 1, "n_passages": 1, "unknown_fields": [], "mistyped_fields": []}
    assert body["n_candidates"] == 1


def test_without_a_filter_nothing_is_said_of_one(client: TestClient) -> None:
    body = search(client, filter=None)
    assert (body["filter"], body["facets"]) == (None, [])


def test_scores_and_order_do_not_depend_on_what_a_filter_leaves_out(client: TestClient) -> None:
    whole = search(client, "who keeps bees", mode="bm25", rerank=False, top_k=100)
    part = search(client, "who keeps bees", mode="bm25", rerank=False, top_k=100, filter={"not": COLD})
    kept = [(each["passage_id"], each["score"]) for each in whole["results"] if each["document_id"] != "turku"]
    assert [(each["passage_id"], each["score"]) for each in part["results"]] == kept


def test_an_answer_is_read_from_what_the_filter_leaves(client: TestClient) -> None:
    body = client.post("/v1/answer", json={"query": "who keeps bees", "filter": COLD, "top_k": 20}).json()
    assert {each["document_id"] for each in body["answers"]} == {"turku"}
    assert body["filter"]["n_passages"] == 1
    none = client.post("/v1/answer", json={"query": "who keeps bees", "filter": {"field": "year", "gt": 3000}}).json()
    assert (none["answers"], none["no_answer"]["reason"]) == ([], "nothing_retrieved")
    own = {"query": "a", "filter": COLD, "passages": []}
    assert "leave out: filter" in faults(client.post("/v1/answer", json=own))["#"]


def test_a_field_that_cannot_match_is_named_and_matches_nothing(client: TestClient) -> None:
    wrong = {"or": [{"field": "yaer", "equal": 1999}, {"field": "year", "equal": "1999"}]}
    body = search(client, filter=wrong)
    assert body["results"] == []
    assert body["filter"] == {
        "n_documents": 0, "n_passages": 0, "unknown_fields": ["yaer"], "mistyped_fields": ["year"]
    }  # fmt: skip
    assert "rerank:nothing_retrieved" in body["skipped"]


def test_facets_count_the_documents_that_match_and_add_up(client: TestClient) -> None:
    body = search(client, "bees", mode="bm25", facets=["year", "title", "nothing"], facet_k=1, top_k=1)
    year, title, nothing = body["facets"]
    assert year == {
        "field": "year", "is_known": True, "n_documents": 3,
        "values": [{"value": 1999, "is_cut": False, "n_documents": 1}], "n_other": 0, "n_missing": 2,
    }  # fmt: skip
    assert title["values"] == [{"value": "Long", "is_cut": False, "n_documents": 1}]
    assert (nothing["is_known"], nothing["values"], nothing["n_missing"]) == (False, [], 3)


def test_what_a_facet_counts_depends_on_mode_and_filter_but_on_no_depth_of_bm25(client: TestClient) -> None:
    def counted(**fields: Any) -> int:
        [facet] = search(client, "bees", facets=["document_id"], **fields)["facets"]
        n: int = facet["n_documents"]
        return n

    assert counted(mode="bm25", retrieve_k=1) == counted(mode="bm25", offset=50) == 3
    assert counted(mode="dense", retrieve_k=1) == 1
    assert counted(mode="dense", retrieve_k=1000) == counted(retrieve_k=1000) == len(DOCUMENTS)
    assert 3 <= counted(retrieve_k=1) <= 4
    assert counted(retrieve_k=1000, filter=IDS) == 4
    assert counted(mode="bm25", filter=IDS) == 1


def test_booleans_and_numbers_keep_their_types(client: TestClient) -> None:
    cold, year = search(client, facets=["is_cold", "year"])["facets"]
    assert [each["value"] is True for each in cold["values"]] == [True]
    assert [repr(each["value"]) for each in year["values"]] == ["1999"]


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "#/filter"),
        ({"field": "a"}, "#/filter"),
        ({"equal": 1}, "#/filter"),
        ({"field": "a", "equal": 1, "exists": True}, "#/filter"),
        ({"field": "a", "equal": 1, "gt": 0}, "#/filter"),
        ({"field": "a", "equal": 1, "not": {"field": "a", "equal": 1}}, "#/filter"),
        ({"and": [COLD], "or": [COLD]}, "#/filter"),
        ({"field": "a", "gt": 1, "lt": "b"}, "#/filter"),
        ({"field": "a", "gt": True}, "#/filter/gt"),
        ({"field": "a", "equal": [1]}, "#/filter/equal"),
        ({"field": "a", "in": 1}, "#/filter/in"),
        ({"field": "a", "in": [1, None]}, "#/filter/in/1"),
        ({"field": "", "equal": 1}, "#/filter/field"),
        ({"field": 3, "equal": 1}, "#/filter/field"),
        ({"field": "a", "exists": 1}, "#/filter/exists"),
        ({"field": "a", "equals": 1}, "#/filter/equals"),
        ({"and": []}, "#/filter/and"),
        ({"and": COLD}, "#/filter/and"),
        ({"not": [COLD]}, "#/filter/not"),
        ({"and": [COLD, {"or": [COLD, {"not": {"field": "a~/b", "equal": {}}}]}]}, "#/filter/and/1/or/1/not/equal"),
        ({"and": [COLD, {"or": [{"field": "a"}]}]}, "#/filter/and/1/or/0"),
        ({"field": "a", "equal": "x" * 4001}, "#/filter/equal"),
        ({"field": "a", "in": list(range(1001))}, "#/filter/in"),
        ({"or": [{"field": "a", "in": list(range(501))}] * 2}, "#/filter"),
        ({"or": [{"and": [COLD] * 33}] * 2}, "#/filter"),
    ],
)
def test_what_is_no_filter_is_refused_at_its_place(client: TestClient, body: object, pointer: str) -> None:
    for path in ("search", "answer"):
        assert set(faults(client.post(f"/v1/{path}", json={"query": "a", "filter": body}))) == {pointer}


@pytest.mark.parametrize("form", ["not", "and", "or"])
def test_depth_is_bounded(client: TestClient, form: str) -> None:
    def nested(levels: int) -> object:
        body: object = {"field": "a", "in": [1]}
        for _ in range(levels):
            body = {form: body if form == "not" else [body]}
        return body

    search(client, filter=nested(16))
    for levels in (17, 33, 34, 400):
        response = client.post("/v1/search", json={"query": "a", "filter": nested(levels)})
        assert set(faults(response)) == {"#/filter"}
        assert "at most 16 levels" in faults(response)["#/filter"]


def test_every_form_becomes_its_filter() -> None:
    body = {
        "and": [
            {"or": [{"field": "a", "equal": 1}, {"field": "a", "equal": True}, {"field": "a", "equal": "x"}]},
            {"not": {"field": "b", "in": [1.5, "x", False]}},
            {"field": "c", "exists": True},
            {"field": "c", "exists": False},
            {"field": "d", "gt": 1, "gte": 2, "lt": 3.5, "lte": 4, "equal": None},
            {"field": "e", "gte": "2024", "lt": "2025"},
            {"field": "f", "in": []},
        ]
    }
    found = FilterBody.model_validate(body).to_filter()
    assert repr(found) == repr(
        And((
            Or((Equal("a", 1), Equal("a", True), Equal("a", "x"))),
            Not(In("b", (1.5, "x", False))),
            Exists("c"),
            Not(Exists("c")),
            Range("d", gt=1, gte=2, lt=3.5, lte=4),
            Range("e", gte="2024", lt="2025"),
            In("f", ()),
        ))
    )  # fmt: skip


def test_numbers_that_are_none_are_refused() -> None:
    adapter: TypeAdapter[FilterBody | None] = TypeAdapter(OptionalFilter)
    for value in (float("nan"), float("inf")):
        with pytest.raises(ValidationError, match="finite"):
            adapter.validate_python({"field": "a", "gte": value})


def test_the_description_shows_filters_with_an_example(client: TestClient) -> None:
    description = client.get("/openapi.json").json()
    schemas = description["components"]["schemas"]
    assert set(schemas["FilterBody"]["properties"]) == {
        "and", "or", "not", "field", "equal", "in", "exists", "gt", "gte", "lt", "lte"
    }  # fmt: skip
    example = schemas["SearchRequest"]["properties"]["filter"]["examples"][0]
    assert schemas["AnswerRequest"]["properties"]["filter"]["examples"] == [example]
    search(client, filter=example)
