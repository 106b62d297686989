"""The client's classes and the service's OpenAPI say the same, field by field, so that neither changes alone."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import datetime
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict
from urllib.parse import unquote

import pytest

from service import problems
from service.app import create_app
from service.settings import Settings
from tercet_client import calls
from tercet_client.calls import Call
from tercet_client.errors import ApiError, Problem, api_error
from tercet_client.options import (
    AnswerOptions,
    EmbeddingsOptions,
    Filter,
    JobOptions,
    Passage,
    RerankOptions,
    Search,
    SearchOptions,
)
from tercet_client.uploads import opened

CALLS: list[Call[Any]] = [
    calls.search("a", {}),
    calls.search_batch([], None),
    calls.answer("a", {}),
    calls.rerank("a", [], {}),
    calls.embeddings([], {}),
    calls.document("{document_id}", None),
    calls.indexes(),
    calls.health(),
    calls.ready(),
    calls.submit_job("a", {}),
    calls.list_jobs(1),
    calls.get_job("{job_id}"),
    calls.cancel_job("{job_id}"),
]
# What the client leaves out: text for Prometheus, and second shapes of what it calls in another.
NOT_CALLED = {"/metrics", "/v2/rerank", "/rerank", "/embed"}
LEFT_OUT = {
    "/v1/rerank": ["#(RerankResponse)/meta: only in the API"],
    "/v1/embeddings": [
        "#(EmbeddingsResponse)/object: only in the API",
        "#(EmbeddingsResponse)/data/*(EmbeddingBody)/object: only in the API",
        "#(EmbeddingsResponse)/data/*(EmbeddingBody)/embedding: the kinds differ",  # base64 is never asked for
    ],
}
OPTIONS = [
    ("SearchRequest", SearchOptions, {"query", "timeout_ms"}),
    ("Search", Search, set()),
    ("AnswerRequest", AnswerOptions, {"query", "timeout_ms"}),
    ("RerankRequest", RerankOptions, {"query", "documents", "model", "priority"}),
    ("EmbeddingsRequest", EmbeddingsOptions, {"input", "model", "encoding_format", "dimensions", "user"}),
    ("JobRequest", JobOptions, {"source"}),
    ("FilterBody", Filter, set()),
    ("PassageBody", Passage, set()),
]
SCALARS = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}


@pytest.fixture(scope="module")
def description() -> dict[str, Any]:
    return create_app(Settings()).openapi()


@pytest.fixture(scope="module")
def schemas(description: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = description["components"]["schemas"]
    return found


class Walk:
    """Compares a schema with a type, part by part, and says where they differ."""

    def __init__(self, schemas: Mapping[str, Any], *, ignores_null: bool = False) -> None:
        self._schemas = schemas
        self._ignores_null = ignores_null
        self._seen: set[str] = set()

    def differences(self, schema: Mapping[str, Any], hint: Any, place: str = "#") -> Iterator[str]:
        if "$ref" in schema:
            name = schema["$ref"].rsplit("/", 1)[1]
            if name not in self._seen:
                self._seen.add(name)
                yield from self.differences(self._schemas[name], hint, f"{place}({name})")
        elif "properties" in schema and (is_dataclass(hint) or is_typeddict(hint)):
            yield from self._record(schema, hint, place)
        elif "anyOf" in schema or get_origin(hint) in (Union, UnionType):
            yield from self._union(schema.get("anyOf", [schema]), hint, place)
        elif is_dataclass(hint) or is_typeddict(hint):
            yield f"{place}: an object is expected"
        elif schema.get("type") == "array":
            yield from self._inner(schema["items"], hint, (tuple, Sequence), place)
        elif schema.get("type") == "object":
            inner = schema["additionalProperties"]
            yield from self._inner(inner if inner is not True else {}, hint, (Mapping,), place)
        elif _scalar(schema) != _scalar_of(hint):
            yield f"{place}: {_scalar(schema)} in the API, {_scalar_of(hint)} in the client"

    def _record(self, schema: Mapping[str, Any], hint: Any, place: str) -> Iterator[str]:
        hints, properties = get_type_hints(hint), schema["properties"]
        for name in sorted(properties.keys() ^ hints.keys()):
            yield f"{place}/{name}: only in the {'API' if name in properties else 'client'}"
        needed = {field.name for field in fields(hint) if field.default is MISSING} if is_dataclass(hint) else set()
        for name in sorted(properties.keys() & hints.keys()):
            yield from self.differences(properties[name], hints[name], f"{place}/{name}")
            if is_dataclass(hint) and (name in needed) != (name in schema.get("required", [])):
                yield f"{place}/{name}: needed by one of them only"

    def _union(self, members: Sequence[Mapping[str, Any]], hint: Any, place: str) -> Iterator[str]:
        kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        others = [member for member in members if member.get("type") != "null"]
        types = [kind for kind in kinds if kind is not NoneType]
        if not self._ignores_null and (len(others) < len(members)) != (len(types) < len(kinds)):
            yield f"{place}: only one of them can be null"
        if len(others) == len(types) == 1:
            yield from self.differences(others[0], types[0], place)
        elif {_scalar(member) for member in others} != {_scalar_of(kind) for kind in types}:
            yield f"{place}: the kinds differ"

    def _inner(self, items: Mapping[str, Any], hint: Any, origins: tuple[Any, ...], place: str) -> Iterator[str]:
        if get_origin(hint) not in origins:
            yield f"{place}: {origins[0].__name__} is expected"
        else:
            inner = [argument for argument in get_args(hint) if argument is not Ellipsis][-1]
            yield from self.differences(items, inner, f"{place}/*")


def _scalar(schema: Mapping[str, Any]) -> object:
    if "enum" in schema or "const" in schema:
        return set(schema.get("enum", [schema.get("const")]))
    return schema.get("format") if schema.get("format") == "date-time" else schema.get("type", "anything")


def _scalar_of(hint: Any) -> object:
    if get_origin(hint) is Literal:
        return set(get_args(hint))
    return {datetime: "date-time", object: "anything"}.get(hint, SCALARS.get(hint, hint))


def success(operation: Mapping[str, Any]) -> Mapping[str, Any]:
    [status] = [status for status in operation["responses"] if status.startswith("2")]
    schema: Mapping[str, Any] = operation["responses"][status]["content"]["application/json"]["schema"]
    return schema


@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call.method} {unquote(call.path)}")
def test_a_response_has_the_fields_of_the_api(call: Call[Any], description: Mapping[str, Any]) -> None:
    operation = description["paths"][unquote(call.path)][call.method.lower()]
    schemas = description["components"]["schemas"]
    assert list(Walk(schemas).differences(success(operation), call.returns)) == LEFT_OUT.get(call.path, [])
    if call.has_deadline:
        body = operation["requestBody"]["content"]["application/json"]["schema"]
        assert "timeout_ms" in schemas[body["$ref"].rsplit("/", 1)[1]]["properties"]


def test_an_upload_has_the_parameters_and_the_response_of_the_api(description: Mapping[str, Any]) -> None:
    operation = description["paths"]["/v1/jobs/upload"]["post"]
    parameters = {parameter["name"] for parameter in operation["parameters"]}
    assert parameters == get_type_hints(JobOptions).keys() | {"file_name"}
    with opened(__file__) as upload:
        call = calls.upload_job(upload, "a", {})
    schemas = description["components"]["schemas"]
    assert list(Walk(schemas).differences(success(operation), call.returns)) == []


@pytest.mark.parametrize(("name", "options", "others"), OPTIONS, ids=[name for name, _, _ in OPTIONS])
def test_options_are_those_of_the_api(name: str, options: Any, others: set[str], schemas: Mapping[str, Any]) -> None:
    schema = schemas[name]
    assert others <= schema["properties"].keys()
    own = {**schema, "properties": {k: v for k, v in schema["properties"].items() if k not in others}}
    assert list(Walk(schemas, ignores_null=True).differences(own, options)) == []


def test_a_problem_has_the_fields_of_the_api_and_needs_no_more(schemas: Mapping[str, Any]) -> None:
    assert list(Walk(schemas).differences(schemas["ProblemBody"], Problem)) == [
        "#/request_id: only one of them can be null",
        "#/request_id: needed by one of them only",
    ]


def test_every_problem_has_an_exception_of_its_own() -> None:
    never_met = {problems.MethodNotAllowed, problems.ClientLeft}
    kinds = [kind for kind in vars(problems).values() if isinstance(kind, type) and issubclass(kind, problems.Problem)]
    plain = {
        kind
        for kind in kinds
        if type(api_error(Problem(kind.type, kind.title, kind.status), retry_after_seconds=None)) is ApiError
    }
    assert plain == never_met


def test_no_route_of_the_api_is_forgotten(description: Mapping[str, Any]) -> None:
    called = {(unquote(call.path), call.method.lower()) for call in CALLS} | {("/v1/jobs/upload", "post")}
    described = {(path, method) for path, methods in description["paths"].items() for method in methods}
    assert called <= described
    assert {path for path, _ in described - called} <= NOT_CALLED


@dataclass
class Part:
    kind: Literal["a", "b"]
    size: int | None = None


@dataclass
class Whole:
    parts: tuple[Part, ...]
    at: datetime
    scores: Mapping[str, float]
    more: object


def test_the_walk_sees_what_it_looks_for() -> None:
    part = {
        "properties": {
            "kind": {"type": "string", "enum": ["a", "b"]},
            "size": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        },
        "required": ["kind"],
    }
    properties = {
        "parts": {"type": "array", "items": {"$ref": "#/components/schemas/Part"}},
        "at": {"type": "string", "format": "date-time"},
        "scores": {"type": "object", "additionalProperties": {"type": "number"}},
        "more": {},
    }

    def walk(part: Any = part, **changes: Any) -> list[str]:
        changed = {name: value for name, value in {**properties, **changes}.items() if value is not None}
        return list(Walk({"Part": part}).differences({"properties": changed, "required": list(changed)}, Whole))

    assert walk() == []
    assert walk(new={}) == ["#/new: only in the API"]
    assert walk(more=None) == ["#/more: only in the client"]
    assert walk(at={"type": "string"}) == ["#/at: string in the API, date-time in the client"]
    assert walk(parts={"type": "array", "items": {"type": "string"}}) == ["#/parts/*: an object is expected"]
    assert walk(parts={"type": "object", "additionalProperties": True}) == ["#/parts: Mapping is expected"]
    assert walk(scores={"type": "object", "additionalProperties": {"type": "integer"}}) == [
        "#/scores/*: integer in the API, number in the client"
    ]
    kinds = {"type": "string", "enum": ["a", "c"]}
    [found] = walk(part={**part, "properties": {**part["properties"], "kind": kinds}})  # type: ignore[dict-item]  # a schema
    assert found.startswith("#/parts/*(Part)/kind: {")
    size = {"type": "integer"}
    assert walk(part={"properties": {**part["properties"], "size": size}, "required": ["kind", "size"]}) == [  # type: ignore[dict-item]  # a schema
        "#/parts/*(Part)/size: only one of them can be null",
        "#/parts/*(Part)/size: needed by one of them only",
    ]
