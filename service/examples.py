"""What OpenAPI says of each response: its example, and every problem that can occur with it."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from service import problems
from service.metrics import CONTENT_TYPE
from service.problems import MEDIA_TYPE, Problem
from service.schemas import ProblemBody

Responses: TypeAlias = dict[int | str, dict[str, Any]]
Examples: TypeAlias = Mapping[tuple[str, str, str], Any]  # by path, method and status

REQUEST_ID = "4f0c2a9e8f6b4d7f9a51c5b1f5d7f0aa"
_SNAPSHOT = "20260101T000000Z-1f2e3d4c"
_CONTEXT = "The lighthouse at Cape Vale was lit in 1874. Its first keeper was Ingrid Vale, who stayed for thirty years."
_FOUND = {
    "text": "Ingrid Vale",
    "score": 0.93,
    "document_id": "notes/lighthouse.md",
    "passage_id": "notes/lighthouse.md#0",
    "title": "The lighthouse",
    "url": None,
    "start": 66,
    "end": 77,
    "start_utf16": 66,
    "end_utf16": 77,
    "context": _CONTEXT,
    "context_start": 0,
    "span_logit": 11.2,
    "null_margin": 6.4,
}
_RESULT = {
    "rank": 1,
    "document_id": "notes/lighthouse.md",
    "passage_id": "notes/lighthouse.md#0",
    "title": "The lighthouse",
    "heading": "",
    "text": _CONTEXT,
    "start": 0,
    "end": len(_CONTEXT),
    "url": None,
    "metadata": {"year": 1874},
    "truncated": False,
    "cut_tokens": 0,
    "unscored": None,
    "score": 0.97,
    "score_kind": "relevance",
    "scores": {"bm25": 7.1, "dense": 0.61, "rrf": 0.0328, "bm25_share": 1.0, "rerank_logit": 5.2, "relevance": 0.97},
    "highlights": [{"start": 4, "end": 14}, {"start": 55, "end": 61}],
    "explanation": None,
    "n_document_candidates": None,
}


_FILTERED = {"n_documents": 40, "n_passages": 212, "unknown_fields": [], "mistyped_fields": []}
_SEARCH = {
    "request_id": REQUEST_ID,
    "index": "default",
    "snapshot": _SNAPSHOT,
    "query": "who kept the lighthouse",
    "results": [_RESULT],
    "filter": _FILTERED,
    "facets": [
        {
            "field": "year",
            "is_known": True,
            "n_documents": 31,
            "values": [
                {"value": 1874, "is_cut": False, "n_documents": 12},
                {"value": 1875, "is_cut": False, "n_documents": 9},
            ],
            "n_other": 6,
            "n_missing": 4,
        }
    ],
    "n_candidates": 212,
    "n_below_min_score": 0,
    "rerank_k_used": 100,
    "truncated": False,
    "query_cut_tokens": 0,
    "n_passages_cut": 0,
    "n_tokens_left_out": 0,
    "skipped": [],
    "timings_ms": {"encode": 6.1, "retrieve": 1.8, "fuse": 0.1, "rerank": 388.0, "respond": 2.2, "total": 398.4},
}
_ANSWER = {
    "request_id": REQUEST_ID,
    "index": "default",
    "snapshot": _SNAPSHOT,
    "query": "who kept the lighthouse",
    "answer": _FOUND,
    "answers": [_FOUND],
    "no_answer": {
        "is_no_answer": False,
        "reason": None,
        "null_score": 4.8,
        "best_span_score": 11.2,
        "margin": 6.4,
        "threshold": -1.5,
        "threshold_origin": "squad2_dev_b",
    },
    "filter": _FILTERED,
    "truncated": False,
    "query_cut_tokens": 0,
    "n_tokens_left_out": 0,
    "n_passages_read": 5,
    "rerank_k_used": 100,
    "skipped": [],
    "timings_ms": {"encode": 6.0, "retrieve": 1.7, "fuse": 0.1, "rerank": 391.0, "read": 41.0, "total": 441.0},
}
_DOCUMENT = {
    "index": "default",
    "snapshot": _SNAPSHOT,
    "document_id": "notes/lighthouse.md",
    "title": "The lighthouse",
    "text": _CONTEXT,
    "url": None,
    "metadata": {"year": 1874},
}
_INDEXES = {"indexes": [{"index": "default", "snapshot": _SNAPSHOT, "n_documents": 3107, "n_passages": 9412}]}
_EXAMPLES: Examples = {
    ("/v1/search", "post", "200"): _SEARCH,
    ("/v1/search/batch", "post", "200"): {"request_id": REQUEST_ID, "responses": [_SEARCH]},
    ("/v1/answer", "post", "200"): _ANSWER,
    ("/v1/documents/{document_id}", "get", "200"): _DOCUMENT,
    ("/v1/indexes", "get", "200"): _INDEXES,
}
METRICS: Responses = {200: {"content": {CONTENT_TYPE: {"example": "tercet_ready 1.0\n"}}}}

_FAULTS: Mapping[type[Problem], dict[str, str]] = {
    problems.InvalidRequest: {"pointer": "#/top_k", "detail": "It must be at most 100."},
    problems.InputTooLong: {"pointer": "#/texts/3", "detail": "It has 900 tokens; the model takes 498 of them."},
}

# The framework describes a response model as application/json only, so the problem's schema is referred to by hand.
_PROBLEM_SCHEMA = {"$ref": "#/components/schemas/ProblemBody"}


def documented(*kinds: type[Problem]) -> Responses:
    """Return the OpenAPI responses of problem types, those of one status together."""
    responses: Responses = {}
    for kind in kinds:
        response = responses.setdefault(
            kind.status,
            {"description": kind.title, "content": {MEDIA_TYPE: {"schema": _PROBLEM_SCHEMA, "examples": {}}}},
        )
        example: dict[str, object] = {
            "type": kind.type, "title": kind.title, "status": kind.status, "request_id": REQUEST_ID
        }  # fmt: skip
        if kind in _FAULTS:
            example["errors"] = [_FAULTS[kind]]
        response["content"][MEDIA_TYPE]["examples"][kind.type.rsplit("/", 1)[1]] = {"value": example}
        if kind.status in (429, 503):
            response["headers"] = {"Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer"}}}
    return responses


PROBE_PROBLEMS = documented(problems.NotReady, problems.InternalError)
GET_PROBLEMS = documented(
    problems.UnknownIndex,
    problems.UnknownDocument,
    problems.InvalidRequest,
    problems.InternalError,
    problems.NotReady,
)
BODY_KINDS = (
    problems.MalformedBody,
    problems.RequestTooSlow,
    problems.BodyTooLarge,
    problems.UnsupportedMediaType,
    problems.InvalidRequest,
    problems.Overloaded,
    problems.InternalError,
    problems.NotReady,
    problems.DeadlineExceeded,
)  # of every route that a model serves
BODY_PROBLEMS = documented(*BODY_KINDS, problems.UnknownIndex)


def describe(app: FastAPI, *more: Examples) -> dict[str, Any]:
    """Return the OpenAPI description of an application, with examples and the schema of problem documents."""
    if app.openapi_schema is None:
        description = get_openapi(
            title=app.title,
            version=app.version,
            description=app.description,
            license_info=app.license_info,
            routes=app.routes,
        )
        schema = ProblemBody.model_json_schema(ref_template="#/components/schemas/{model}")
        description["components"]["schemas"] |= schema.pop("$defs") | {"ProblemBody": schema}
        for examples in (_EXAMPLES, *more):
            for (path, method, status), example in examples.items():  # the framework would leave out what is null
                response = description["paths"][path][method]["responses"][status]
                response["content"]["application/json"]["example"] = example
        app.openapi_schema = description
    return app.openapi_schema
