"""What OpenAPI says of the routes in the shapes of others: examples, headers, and every problem that can occur."""

from service import problems
from service.examples import BODY_KINDS, REQUEST_ID, Examples, Responses, documented


def _headers(**descriptions: str) -> Responses:
    headers = {
        name.replace("_", "-"): {"description": text, "schema": {"type": "string"}}
        for name, text in descriptions.items()
    }
    return {200: {"headers": headers}}


RERANK_RESPONSES = documented(*BODY_KINDS)
EMBEDDINGS_RESPONSES = documented(*BODY_KINDS, problems.InputTooLong)
TEI_RERANK_RESPONSES = EMBEDDINGS_RESPONSES | _headers(
    X_Score_Kind="What the scores are, as `score_kind` of `/v1/rerank`.",
    X_Query_Cut_Tokens="Tokens of the query that did not fit the model.",
)
EMBED_RESPONSES = EMBEDDINGS_RESPONSES | _headers(X_Inputs_Cut="How many of the texts did not fit the model.")

_LIMA, _POTATOES = "Lima is the capital of Peru.", "Potatoes come from the Andes."
_TOLD = {"unscored": None, "truncated": False, "cut_tokens": 0}
_COUNTED = {"billed_units": {"search_units": 1}, "tokens": {"input_tokens": 26}}
_VECTOR = [0.0423, -0.1171, 0.0068]
_RERANK = {
    "id": REQUEST_ID,
    "model": "tercet-l6-cross-encoder",
    "results": [
        {"index": 0, "relevance_score": 0.91, "document": {"text": _LIMA}, "n_tokens": 8, "best_window": None} | _TOLD,
        {"index": 1, "relevance_score": 0.02, "document": {"text": _POTATOES}, "n_tokens": 6, "best_window": None}
        | _TOLD,
    ],
    "score_kind": "relevance",
    "truncated": False,
    "query_cut_tokens": 0,
    "n_documents_cut": 0,
    "usage": {"prompt_tokens": 26, "total_tokens": 26},
    "meta": {"api_version": {"version": "1"}} | _COUNTED,
    "timings_ms": {"rerank": 9.1, "respond": 0.2, "total": 9.4},
}
_RANKS = [
    {"index": 0, "score": 0.91, "text": _LIMA, "n_tokens": 8} | _TOLD,
    {"index": 1, "score": 0.02, "text": _POTATOES, "n_tokens": 6} | _TOLD,
]
_EMBEDDINGS = {
    "object": "list",
    "data": [{"object": "embedding", "index": 0, "embedding": _VECTOR, "truncated": False, "cut_tokens": 0}],
    "model": "minilm-l6-dual-encoder",
    "usage": {"prompt_tokens": 8, "total_tokens": 8},
}

CLIENT_EXAMPLES: Examples = {
    ("/v1/rerank", "post", "200"): _RERANK,
    ("/v2/rerank", "post", "200"): _RERANK | {"meta": {"api_version": {"version": "2"}} | _COUNTED},
    ("/rerank", "post", "200"): _RANKS,
    ("/v1/embeddings", "post", "200"): _EMBEDDINGS,
    ("/embed", "post", "200"): [_VECTOR],
}
