"""The HTTP routes that encode texts of the caller's, in the shapes that clients of others speak (docs/clients.md)."""

import asyncio

import orjson
from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError

from service.bodies import StrictJsonRoute
from service.client_examples import EMBED_RESPONSES, EMBEDDINGS_RESPONSES
from service.embedding import EmbedOutcome, EmbedQuery, embed
from service.embedding_bodies import EmbeddingsRequest, EmbeddingsResponse, embeddings_json
from service.engine import Engine
from service.routes import ReadyEngine, rounded, while_connected
from service.tei_bodies import TeiEmbedRequest

router = APIRouter(route_class=StrictJsonRoute, tags=["models"])

_JSON = "application/json"


@router.post(
    "/v1/embeddings",
    summary="Encode texts (OpenAI)",
    response_model=EmbeddingsResponse,
    responses=EMBEDDINGS_RESPONSES,
)
async def embeddings(body: EmbeddingsRequest, request: Request, engine: ReadyEngine) -> Response:
    """Your texts as vectors of the dual encoder: as passages, unless `input_type` says that they are queries."""
    _require_dimension(engine, body.dimensions)
    outcome = await _encode(request, engine, body.to_query())
    model = engine.models.dual_encoder.folder.settings.name
    as_base64 = body.encoding_format == "base64"
    content = await asyncio.to_thread(embeddings_json, outcome, model=model, as_base64=as_base64)
    return Response(content, media_type=_JSON)


@router.post(
    "/embed",
    summary="Encode texts (text-embeddings-inference)",
    response_model=list[list[float]],
    responses=EMBED_RESPONSES,
)
async def tei_embed(body: TeiEmbedRequest, request: Request, engine: ReadyEngine) -> Response:
    """Your texts as vectors of the dual encoder, as a bare array; `prompt_name` says which side they are of."""
    _require_dimension(engine, body.dimensions)
    outcome = await _encode(request, engine, body.to_query())
    content = await asyncio.to_thread(orjson.dumps, outcome.vectors, option=orjson.OPT_SERIALIZE_NUMPY)
    return Response(content, media_type=_JSON, headers={"X-Inputs-Cut": str(outcome.n_cut)})


def _require_dimension(engine: Engine, asked: int | None) -> None:
    dimension = engine.models.dual_encoder.dimension
    if asked is not None and asked != dimension:
        fault = f"The model's vectors have {dimension} dimensions and cannot be shortened."
        raise RequestValidationError([{"loc": ("body", "dimensions"), "msg": fault}])


async def _encode(request: Request, engine: Engine, query: EmbedQuery) -> EmbedOutcome:
    outcome = await while_connected(request, embed(engine, query))
    request.state.facts |= {
        "side": query.side,
        "n_texts": len(query.texts),
        "n_texts_cut": outcome.n_cut,
        "n_tokens": outcome.n_tokens,
        "stage_seconds": rounded(outcome.timings),
    }
    return outcome
