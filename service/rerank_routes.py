"""The HTTP routes that rank documents of the caller's, in the shapes that clients of others speak (docs/clients.md)."""

from fastapi import APIRouter, Request, Response

from service.bodies import StrictJsonRoute
from service.client_examples import RERANK_RESPONSES, TEI_RERANK_RESPONSES
from service.engine import Engine
from service.rerank import RerankOutcome, RerankQuery
from service.rerank import rerank as ranked
from service.rerank_bodies import Answering, RerankRequest, RerankResponse, rerank_response
from service.routes import ReadyEngine, rounded, while_connected
from service.tei_bodies import RankBody, TeiRerankRequest, rank_body

router = APIRouter(route_class=StrictJsonRoute, tags=["models"])


@router.post("/v1/rerank", summary="Rank documents (Cohere v1, Jina)", responses=RERANK_RESPONSES)
@router.post("/v2/rerank", summary="Rank documents (Cohere v2)", responses=RERANK_RESPONSES)
async def rerank(body: RerankRequest, request: Request, engine: ReadyEngine) -> RerankResponse:
    """Your documents in order of relevance to the query, as the cross-encoder has it; the index has no part in it."""
    outcome = await _rank(request, engine, body.to_query())
    version = request.scope["route"].path[2]
    answering = Answering(request.state.request_id, version, engine.models.cross_encoder.folder.settings.name)
    return rerank_response(body, outcome, answering)


@router.post("/rerank", summary="Rank texts (text-embeddings-inference)", responses=TEI_RERANK_RESPONSES)
async def tei_rerank(
    body: TeiRerankRequest, request: Request, response: Response, engine: ReadyEngine
) -> list[RankBody]:
    """Your texts in order of relevance to the query, as a bare array."""
    outcome = await _rank(request, engine, body.to_query())
    response.headers["X-Score-Kind"] = outcome.score_kind
    response.headers["X-Query-Cut-Tokens"] = str(outcome.query_cut_tokens)
    return [rank_body(each, body) for each in outcome.results]


async def _rank(request: Request, engine: Engine, query: RerankQuery) -> RerankOutcome:
    outcome = await while_connected(request, ranked(engine, query))
    request.state.facts |= {
        "query_characters": len(query.query),
        "n_documents": outcome.n_documents,
        "n_results": len(outcome.results),
        "n_unscored": outcome.n_unscored,
        "query_cut_tokens": outcome.query_cut_tokens,
        "n_documents_cut": outcome.n_documents_cut,
        "n_tokens": outcome.n_tokens,
        "stage_seconds": rounded(outcome.timings),
    }
    return outcome
