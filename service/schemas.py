"""The bodies of HTTP responses, and the one place where they are built; those of searches: `search_schemas.py`."""

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from indexer.documents import Document
from indexer.filters import Filtered
from indexer.snapshot import Snapshot
from service.answers import Reason
from service.filter_bodies import FilteredBody
from service.pipeline import AnswerOutcome

SKIPPED = (
    "What was not done, as `stage:reason`: `retrieve:own_passages` (the caller sent them), `bm25:no_terms` (stop words "
    "and signs are all that the query has), `bm25:no_match` (no passage that the filter left holds a term of it), "
    "`rerank:not_requested`, `rerank:nothing_retrieved`, `rerank:no_finite_score` (the model gave no number for some "
    "candidates, which are marked `unscored` and keep their fused order), `stored_tokens:other_tokenizer` (passages "
    "were tokenized for this request), `rerank:settled` (it stopped, as no other candidate is held to enter the best "
    "`settle_k`), `rerank:deadline` (it was cut short or left out, `rerank_k_used` says how "
    "far: candidates that were not reranked keep their fused order), `read:deadline` (it was cut short: "
    "`n_passages_read` says how many of the best passages were read)."
)
RERANK_K_USED = (
    "How many candidates were reranked: fewer than asked for if the best `settle_k` are settled, or near the deadline."
)
TIMINGS_MS = "What each stage took, waiting for the model included; what is known of a query asked before takes none."
N_TOKENS_LEFT_OUT = "Tokens of the reranked passages that were not read because of `rerank_tokens`."


class ResponseBody(BaseModel):
    """A response, built of itself or of an object with the same attributes."""

    model_config = ConfigDict(frozen=True, from_attributes=True)


class AnswerBody(ResponseBody):
    """A span: `[start, end)` of the document's text, or of the caller's passage."""

    text: str
    score: float = Field(description="Calibrated, in [0, 1].")
    document_id: str
    passage_id: str
    title: str
    url: str | None
    start: int = Field(description="In code points.")
    end: int
    start_utf16: int = Field(description="In UTF-16 units, as JavaScript and Java count.")
    end_utf16: int
    context: str = Field(description="The text around it.")
    context_start: int = Field(description="Where the context starts, in code points.")
    span_logit: float
    null_margin: float = Field(description="The span's logit minus the null score of its passage.")


class NoAnswerBody(ResponseBody):
    """The decision and what it was made from."""

    is_no_answer: bool
    reason: Reason | None
    null_score: float | None
    best_span_score: float | None
    margin: float | None
    threshold: float
    threshold_origin: str


class AnswerResponse(ResponseBody):
    """Body of the response to `POST /v1/answer`. `answer` is the first of `answers`, or null."""

    request_id: str
    index: str | None
    snapshot: str | None
    query: str
    answer: AnswerBody | None
    answers: list[AnswerBody] = Field(description="The best spans, also when the decision is no answer.")
    no_answer: NoAnswerBody
    filter: FilteredBody | None
    truncated: bool = Field(description="Whether the query did not fit a model.")
    query_cut_tokens: int = Field(description="Tokens of the query that did not fit a model.")
    n_tokens_left_out: int = Field(description=N_TOKENS_LEFT_OUT)
    n_passages_read: int = Field(description="How many passages were read; near the deadline fewer than asked for.")
    rerank_k_used: int = Field(description=RERANK_K_USED)
    skipped: list[str] = Field(description=SKIPPED)
    timings_ms: dict[str, float] = Field(description=TIMINGS_MS)


class DocumentResponse(ResponseBody):
    """Body of the response to `GET /v1/documents/{document_id}`."""

    index: str
    snapshot: str
    document_id: str
    title: str
    text: str
    url: str | None
    metadata: dict[str, str | int | float | bool]


class IndexBody(ResponseBody):
    """A snapshot that is served."""

    index: str
    snapshot: str
    n_documents: int
    n_passages: int


class IndexesResponse(ResponseBody):
    """Body of the response to `GET /v1/indexes`."""

    indexes: list[IndexBody]


class HealthResponse(ResponseBody):
    """Body of the response to `GET /healthz`."""

    status: Literal["alive"]


class ReadyResponse(ResponseBody):
    """Body of the response to `GET /readyz`."""

    status: Literal["ready"]
    engines: dict[str, str] = Field(description="What runs each model: the engine, and its precision or device.")


class Fault(ResponseBody):
    """One value that does not fit."""

    pointer: str = Field(description="JSON pointer into the body (RFC 6901), `#` for the whole.")
    detail: str


class ProblemBody(ResponseBody):
    """A problem document, RFC 9457. The types are listed in docs/problems.md."""

    type: str
    title: str
    status: int
    detail: str | None = None
    message: str | None = Field(default=None, description="`detail` and the first fault, where OpenAI's clients look.")
    errors: list[Fault] | None = None
    request_id: str


def answer_response(outcome: AnswerOutcome, request_id: str) -> AnswerResponse:
    """Return the body of an answer or of none."""
    answers = [AnswerBody.model_validate(each) for each in outcome.answers]
    return AnswerResponse(
        request_id=request_id,
        index=outcome.index,
        snapshot=outcome.snapshot,
        query=outcome.query,
        answer=answers[0] if outcome.answer is not None else None,
        answers=answers,
        no_answer=NoAnswerBody.model_validate(outcome.no_answer),
        filter=filter_body(outcome.filtered),
        truncated=outcome.query_cut_tokens > 0,
        query_cut_tokens=outcome.query_cut_tokens,
        n_tokens_left_out=outcome.n_tokens_left_out,
        n_passages_read=outcome.n_passages_read,
        rerank_k_used=outcome.rerank_k_used,
        skipped=outcome.skipped,
        timings_ms=milliseconds(outcome.timings),
    )


def document_response(snapshot: Snapshot, document: Document) -> DocumentResponse:
    """Return the body of a document."""
    return DocumentResponse(
        index=snapshot.index_name,
        snapshot=snapshot.snapshot_id,
        document_id=document.document_id,
        title=document.title,
        text=document.text,
        url=document.url,
        metadata=dict(document.metadata),
    )


def index_body(snapshot: Snapshot) -> IndexBody:
    """Return the description of a snapshot."""
    return IndexBody(
        index=snapshot.index_name,
        snapshot=snapshot.snapshot_id,
        n_documents=snapshot.n_documents,
        n_passages=snapshot.n_passages,
    )


def filter_body(filtered: Filtered | None) -> FilteredBody | None:
    """Return the body of what a filter left, None for no filter."""
    return None if filtered is None else FilteredBody.model_validate(filtered)


def milliseconds(timings: Mapping[str, float]) -> dict[str, float]:
    """Return durations in seconds as milliseconds, to the microsecond."""
    return {name: round(1000 * seconds, 3) for name, seconds in timings.items()}
