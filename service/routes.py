"""The HTTP routes. Each takes a checked body, calls the pipeline and returns a body; none handles an error."""

import asyncio
from collections.abc import Coroutine
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Query, Request, Response

from service import metrics, pipeline
from service.bodies import StrictJsonRoute
from service.engine import Engine
from service.examples import (
    BODY_PROBLEMS,
    GET_PROBLEMS,
    METRICS,
    PROBE_PROBLEMS,
)
from service.problems import ClientLeft, NotReady, UnknownDocument
from service.requests import MAX_NAME_CHARACTERS, AnswerRequest, SearchBatchRequest, SearchRequest
from service.schemas import (
    AnswerResponse,
    DocumentResponse,
    HealthResponse,
    IndexesResponse,
    ReadyResponse,
    answer_response,
    document_response,
    index_body,
)
from service.search_schemas import SearchBatchResponse, SearchResponse, search_batch_response, search_response

router = APIRouter(route_class=StrictJsonRoute)

T = TypeVar("T")


def ready_engine(request: Request) -> Engine:
    """Return the engine, or raise NotReady while it starts or stops."""
    engine: Engine | None = request.app.state.engine
    if engine is None:
        raise NotReady("The service is starting: models and index are being loaded.")
    if request.app.state.is_draining:
        raise NotReady("The service is stopping.")
    return engine


ReadyEngine = Annotated[Engine, Depends(ready_engine)]


@router.post("/v1/search", summary="Search the index", tags=["search"], responses=BODY_PROBLEMS)
async def search(body: SearchRequest, request: Request, engine: ReadyEngine) -> SearchResponse:
    """Passages from BM25 and dense retrieval, fused, reranked by the cross-encoder, with every score they earned."""
    deadline = engine.deadline(body.timeout_seconds())
    outcome = await while_connected(request, pipeline.search(engine, body.to_query(body.index), deadline))
    request.state.facts |= {
        "query_characters": len(outcome.query),
        "n_candidates": outcome.n_candidates,
        "rerank_k_used": outcome.rerank_k_used,
        "n_results": len(outcome.results),
        "n_passages_allowed": outcome.filtered.n_passages if outcome.filtered is not None else None,
        "n_facets": len(outcome.facets),
        "query_cut_tokens": outcome.query_cut_tokens,
        "n_passages_cut": outcome.n_passages_cut,
        "n_tokens_left_out": outcome.n_tokens_left_out,
        "stage_seconds": rounded(outcome.timings),
    }
    return search_response(outcome, request.state.request_id)


@router.post("/v1/search/batch", summary="Search for several queries", tags=["search"], responses=BODY_PROBLEMS)
async def search_batch(body: SearchBatchRequest, request: Request, engine: ReadyEngine) -> SearchBatchResponse:
    """As many searches, answered from one snapshot before one deadline. All of them succeed, or none does."""
    deadline = engine.deadline(body.timeout_seconds())
    queries = [each.to_query(body.index) for each in body.searches]
    outcomes = await while_connected(request, pipeline.search_all(engine, queries, deadline))
    request.state.facts |= {
        "n_searches": len(outcomes),
        "query_characters": sum(len(outcome.query) for outcome in outcomes),
        "rerank_k_used": sum(outcome.rerank_k_used for outcome in outcomes),
        "n_results": sum(len(outcome.results) for outcome in outcomes),
    }
    return search_batch_response(outcomes, request.state.request_id)


@router.post("/v1/answer", summary="Answer a question", tags=["search"], responses=BODY_PROBLEMS)
async def answer(body: AnswerRequest, request: Request, engine: ReadyEngine) -> AnswerResponse:
    """Answer spans read from the best passages of the index, or from your own `passages`; or that there is none."""
    deadline = engine.deadline(body.timeout_seconds())
    outcome = await while_connected(request, pipeline.answer(engine, body.to_query(), deadline))
    request.state.facts |= {
        "query_characters": len(outcome.query),
        "rerank_k_used": outcome.rerank_k_used,
        "n_passages_read": outcome.n_passages_read,
        "is_no_answer": outcome.no_answer.is_no_answer,
        "n_passages_allowed": outcome.filtered.n_passages if outcome.filtered is not None else None,
        "query_cut_tokens": outcome.query_cut_tokens,
        "n_tokens_left_out": outcome.n_tokens_left_out,
        "stage_seconds": rounded(outcome.timings),
    }
    return answer_response(outcome, request.state.request_id)


@router.get("/v1/documents/{document_id:path}", summary="Get a document", tags=["index"], responses=GET_PROBLEMS)
async def get_document(
    document_id: str,
    engine: ReadyEngine,
    index: Annotated[str | None, Query(max_length=MAX_NAME_CHARACTERS, description="Name of the index.")] = None,
) -> DocumentResponse:
    """The whole document, whose text the offsets of results and answers refer to. Its id may hold slashes."""
    with engine.borrowed(index) as snapshot:
        document = await asyncio.to_thread(snapshot.document, document_id)
        if document is None:
            raise UnknownDocument(f"The index {snapshot.index_name!r} holds no document of that id.")
        return document_response(snapshot, document)


@router.get("/v1/indexes", summary="List the indexes", tags=["index"], responses=PROBE_PROBLEMS)
async def list_indexes(engine: ReadyEngine) -> IndexesResponse:
    """The snapshots that are served."""
    return IndexesResponse(indexes=[index_body(engine.snapshot)])


@router.get("/healthz", summary="Is the process alive?", tags=["operation"])
async def healthz() -> HealthResponse:
    """Answers as soon as the process listens, whatever it is busy with."""
    return HealthResponse(status="alive")


@router.get("/readyz", summary="Are requests served?", tags=["operation"], responses=PROBE_PROBLEMS)
async def readyz(engine: ReadyEngine) -> ReadyResponse:
    """Answers 200 when the index is open and the models are warm; 503 before, and while the service stops."""
    return ReadyResponse(status="ready", engines=engine.models.engines())


@router.get("/metrics", summary="Prometheus metrics", tags=["operation"], response_class=Response, responses=METRICS)
async def expose_metrics(request: Request) -> Response:
    """Every series, in Prometheus' text format. docs/metrics.md describes them."""
    return Response(request.app.state.metrics.expose(), media_type=metrics.CONTENT_TYPE)


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return what `work` returns; when the client leaves first, cancel it, so that it costs no more model time.

    Raises:
        ClientLeft: the client closed the connection.
    """
    working = asyncio.create_task(work)
    leaving = asyncio.create_task(_disconnected(request))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientLeft
        return working.result()
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def rounded(timings: dict[str, float]) -> dict[str, float]:
    """Return durations to the microsecond, for the log."""
    return {name: round(seconds, 6) for name, seconds in timings.items()}
