"""The bodies of responses to searches, and the one place where they are built from results."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from service.candidates import Result, ScoreKind
from service.filter_bodies import FacetBody, FilteredBody
from service.pipeline import SearchOutcome
from service.schemas import (
    N_TOKENS_LEFT_OUT,
    RERANK_K_USED,
    SKIPPED,
    TIMINGS_MS,
    ResponseBody,
    filter_body,
    milliseconds,
)


class Slice(ResponseBody):
    """Half-open, in Unicode code points."""

    start: int
    end: int


class ScoresBody(ResponseBody):
    """Every score that the candidate earned, null where the mode or the depth left it out."""

    bm25: float | None
    dense: float | None = Field(description="Cosine of query and passage.")
    rrf: float | None = Field(description="Reciprocal rank fusion, k = 60.")
    bm25_share: float | None = Field(description="BM25 over the best candidate's, in [0, 1], where it was reranked.")
    rerank_logit: float | None = Field(description="The cross-encoder's raw logit.")
    relevance: float | None = Field(description="Calibrated, in [0, 1].")


class TermWeightBody(ResponseBody):
    """What one term adds to the BM25 score."""

    term: str = Field(description="As the index has it: in lower case, without accents, stemmed.")
    n_in_query: int = Field(description="How often the query has it.")
    weight: float


class RelevancePartsBody(ResponseBody):
    """What each score, times its learned weight, adds to `relevance_logit`."""

    rerank_logit: float
    dense: float
    bm25: float
    bias: float


class ExplanationBody(ResponseBody):
    """Ranks from 1, null where a leg did not find the candidate within `retrieve_k`."""

    bm25_rank: int | None
    dense_rank: int | None
    fused_rank: int
    bm25_rrf: float | None = Field(description="What BM25's rank adds to `rrf`.")
    dense_rrf: float | None = Field(description="What the dense rank adds to `rrf`.")
    bm25_terms: list[TermWeightBody] = Field(
        description="The query's terms that the passage has, the most first; together they are `scores.bm25`."
    )
    relevance_logit: float | None = Field(description="`relevance` is its sigmoid.")
    relevance_parts: RelevancePartsBody | None = Field(description="Together they are `relevance_logit`.")


class ResultBody(ResponseBody):
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
    cut_tokens: int = Field(description="Tokens of it that did not fit the cross-encoder.")
    unscored: Literal["no_finite_score"] | None = Field(description="Why the cross-encoder gave it no score.")
    score: float
    score_kind: ScoreKind
    scores: ScoresBody
    highlights: list[Slice] = Field(description="Words of `text` that share a term with the query.")
    explanation: ExplanationBody | None = None
    n_document_candidates: int | None = Field(
        default=None, description="How many candidates the document has; null unless grouped by document."
    )


class SearchResponse(ResponseBody):
    """Body of the response to `POST /v1/search`."""

    request_id: str
    index: str
    snapshot: str
    query: str
    results: list[ResultBody]
    filter: FilteredBody | None
    facets: list[FacetBody]
    n_candidates: int
    n_below_min_score: int = Field(description="Candidates that `min_score` keeps out of the results.")
    rerank_k_used: int = Field(description=RERANK_K_USED)
    truncated: bool = Field(description="Whether the query or a passage did not fit a model.")
    query_cut_tokens: int = Field(description="Tokens of the query that did not fit a model.")
    n_passages_cut: int = Field(description="Reranked passages that did not fit the cross-encoder.")
    n_tokens_left_out: int = Field(description=N_TOKENS_LEFT_OUT)
    skipped: list[str] = Field(description=SKIPPED)
    timings_ms: dict[str, float] = Field(description=TIMINGS_MS)


class SearchBatchResponse(ResponseBody):
    """Body of the response to `POST /v1/search/batch`."""

    request_id: str
    responses: list[SearchResponse] = Field(description="One for each search, in order, all of one snapshot.")


def search_response(outcome: SearchOutcome, request_id: str) -> SearchResponse:
    """Return the body of a page of results."""
    return SearchResponse(
        request_id=request_id,
        index=outcome.index,
        snapshot=outcome.snapshot,
        query=outcome.query,
        results=[_result(result) for result in outcome.results],
        filter=filter_body(outcome.filtered),
        facets=[FacetBody.model_validate(facet) for facet in outcome.facets],
        n_candidates=outcome.n_candidates,
        n_below_min_score=outcome.n_below_min_score,
        rerank_k_used=outcome.rerank_k_used,
        truncated=outcome.query_cut_tokens > 0 or outcome.n_passages_cut > 0,
        query_cut_tokens=outcome.query_cut_tokens,
        n_passages_cut=outcome.n_passages_cut,
        n_tokens_left_out=outcome.n_tokens_left_out,
        skipped=outcome.skipped,
        timings_ms=milliseconds(outcome.timings),
    )


def search_batch_response(outcomes: Sequence[SearchOutcome], request_id: str) -> SearchBatchResponse:
    """Return the body of several pages of results."""
    return SearchBatchResponse(
        request_id=request_id, responses=[search_response(outcome, request_id) for outcome in outcomes]
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
        unscored=result.unscored,
        score=result.score,
        score_kind=result.score_kind,
        scores=ScoresBody.model_validate(result.scores),
        highlights=[Slice(start=start, end=end) for start, end in result.highlights],
        explanation=None if result.explanation is None else ExplanationBody.model_validate(result.explanation),
        n_document_candidates=result.n_document_candidates,
    )
