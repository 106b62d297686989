"""The bodies of HTTP responses, and the one place where they are built from results."""

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from indexer.documents import Document
from indexer.filters import Filtered
from indexer.snapshot import Snapshot
from service.answers import Reason
from service.candidates import Result, ScoreKind
from service.filter_bodies import FacetBody, FilteredBody
from service.pipeline import AnswerOutcome, SearchOutcome

_SKIPPED = (
    "What was not done, as `stage:reason`: `retrieve:own_passages` (the caller sent them), `bm25:no_terms` (stop words "
    "and signs are all that the query has), `bm25:no_match` (no passage that the filter left holds a term of it), "
    "`rerank:not_requested`, `rerank:nothing_retrieved`, `rerank:no_finite_score` (the model gave no number for some "
    "candidates, which keep their fused order), `stored_tokens:other_tokenizer` (passages were tokenized for this "
    "request)."
)


class _Response(BaseModel):
    model_config = ConfigDict(frozen=True, from_attributes=True)


class Slice(_Response):
    """Half-open, in Unicode code points."""

    start: int
    end: int


class ScoresBody(_Response):
    """Every score that the candidate earned, null where the mode or the depth left it out."""

    bm25: float | None
    dense: float | None = Field(description="Cosine of query and passage.")
    rrf: float | None = Field(description="Reciprocal rank fusion, k = 60.")
    rerank_logit: float | None = Field(description="The cross-encoder's raw logit.")
    relevance: float | None = Field(description="Calibrated, in [0, 1].")


class ExplanationBody(_Response):
    """Ranks from 1, null where a leg did not find the candidate within `retrieve_k`."""

    bm25_rank: int | None
    dense_rank: int | None
    fused_rank: int
    bm25_rrf: float | None = Field(description="What BM25's rank adds to `rrf`.")
    dense_rrf: float | None = Field(description="What the dense rank adds to `rrf`.")
    relevance_logit: float | None = Field(description="`relevance` is its sigmoid.")


class ResultBody(_Response):
    """One candidate. `text` is `[start, end)` of the document's text."""

    rank: int
    document_id: str
    passage_id: str
    title: str
    heading: str
    text: str
    start: int
    end: int
    url: str | None
    metadata: dict[str, str | int | float | bool]
    truncated: bool = Field(description="Whether the cross-encoder could not read all of it.")
    cut_tokens: int
    score: float
    score_kind: ScoreKind
    scores: ScoresBody
    highlights: list[Slice] = Field(description="Words of `text` that share a term with the query.")
    explanation: ExplanationBody | None = None


class SearchResponse(_Response):
    """Body of the response to `POST /v1/search`."""

    request_id: str
    index: str
    snapshot: str
    query: str
    results: list[ResultBody]
    filter: FilteredBody | None
    facets: list[FacetBody]
    n_candidates: int
    rerank_k_used: int
    truncated: bool
    query_cut_tokens: int
    n_passages_cut: int
    skipped: list[str] = Field(description=_SKIPPED)
    timings_ms: dict[str, float]


class AnswerBody(_Response):
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


class NoAnswerBody(_Response):
    """The decision and what it was made from."""

    is_no_answer: bool
    reason: Reason | None
    null_score: float | None
    best_span_score: float | None
    margin: float | None
    threshold: float
    threshold_origin: str


class AnswerResponse(_Response):
    """Body of the response to `POST /v1/answer`. `answer` is the first of `answers`, or null."""

    request_id: str
    index: str | None
    snapshot: str | None
    query: str
    answer: AnswerBody | None
    answers: list[AnswerBody] = Field(description="The best spans, also when the decision is no answer.")
    no_answer: NoAnswerBody
    filter: FilteredBody | None
    truncated: bool
    query_cut_tokens: int
    n_passages_read: int
    skipped: list[str] = Field(description=_SKIPPED)
    timings_ms: dict[str, float]


class DocumentResponse(_Response):
    """Body of the response to `GET /v1/documents/{document_id}`."""

    index: str
    snapshot: str
    document_id: str
    title: str
    text: str
    url: str | None
    metadata: dict[str, str | int | float | bool]


class IndexBody(_Response):
    """A snapshot that is served."""

    index: str
    snapshot: str
    n_documents: int
    n_passages: int


class IndexesResponse(_Response):
    """Body of the response to `GET /v1/indexes`."""

    indexes: list[IndexBody]


class HealthResponse(_Response):
    """Body of the probes."""

    status: Literal["alive", "ready"]


class Fault(_Response):
    """One value that does not fit."""

    pointer: str = Field(description="JSON pointer into the body (RFC 6901), `#` for the whole.")
    detail: str


class ProblemBody(_Response):
    """A problem document, RFC 9457. The types are listed in docs/problems.md."""

    type: str
    title: str
    status: int
    detail: str | None = None
    errors: list[Fault] | None = None
    request_id: str


def search_response(outcome: SearchOutcome, request_id: str) -> SearchResponse:
    """Return the body of a page of results."""
    return SearchResponse(
        request_id=request_id,
        index=outcome.index,
        snapshot=outcome.snapshot,
        query=outcome.query,
        results=[_result(result) for result in outcome.results],
        filter=_filter(outcome.filtered),
        facets=[FacetBody.model_validate(facet) for facet in outcome.facets],
        n_candidates=outcome.n_candidates,
        rerank_k_used=outcome.rerank_k_used,
        truncated=outcome.query_cut_tokens > 0 or outcome.n_passages_cut > 0,
        query_cut_tokens=outcome.query_cut_tokens,
        n_passages_cut=outcome.n_passages_cut,
        skipped=outcome.skipped,
        timings_ms=_milliseconds(outcome.timings),
    )


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
        filter=_filter(outcome.filtered),
        truncated=outcome.query_cut_tokens > 0,
        query_cut_tokens=outcome.query_cut_tokens,
        n_passages_read=outcome.n_passages_read,
        skipped=outcome.skipped,
        timings_ms=_milliseconds(outcome.timings),
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


def _result(result: Result) -> ResultBody:
    passage = result.passage
    return ResultBody(
        rank=result.rank,
        document_id=passage.document_id,
        passage_id=passage.passage_id,
        title=passage.title,
        heading=passage.heading,
        text=passage.text,
        start=passage.start,
        end=passage.end,
        url=passage.url,
        metadata=dict(passage.metadata),
        truncated=result.cut_tokens > 0,
        cut_tokens=result.cut_tokens,
        score=result.score,
        score_kind=result.score_kind,
        scores=ScoresBody.model_validate(result.scores),
        highlights=[Slice(start=start, end=end) for start, end in result.highlights],
        explanation=None if result.explanation is None else ExplanationBody.model_validate(result.explanation),
    )


def _filter(filtered: Filtered | None) -> FilteredBody | None:
    return None if filtered is None else FilteredBody.model_validate(filtered)


def _milliseconds(timings: Mapping[str, float]) -> dict[str, float]:
    return {name: round(1000 * seconds, 3) for name, seconds in timings.items()}
