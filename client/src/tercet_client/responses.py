"""What calls return: the bodies of the API's responses, field by field. Offsets are half-open, in code points.

Lists are tuples, everything is frozen. A Literal lists the values that are known here; a newer service may send others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

Value: TypeAlias = str | int | float | bool
ScoreKind: TypeAlias = Literal["relevance", "rrf", "bm25", "dense"]
Reason: TypeAlias = Literal["below_threshold", "nothing_retrieved", "truncated", "deadline"]


@dataclass(frozen=True, slots=True)
class Slice:
    """A place in a text: `text[start:end]`."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Scores:
    """Every score that a candidate earned, None where the mode or the depth left it out."""

    bm25: float | None
    dense: float | None
    rrf: float | None
    bm25_share: float | None
    rerank_logit: float | None
    relevance: float | None


@dataclass(frozen=True, slots=True)
class TermWeight:
    """What one term adds to the BM25 score."""

    term: str
    n_in_query: int
    weight: float


@dataclass(frozen=True, slots=True)
class RelevanceParts:
    """What each score, times its learned weight, adds to `relevance_logit`."""

    rerank_logit: float
    dense: float
    bm25: float
    bias: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """Where a candidate stood (ranks from 1), and what its scores are made of."""

    bm25_rank: int | None
    dense_rank: int | None
    fused_rank: int
    bm25_rrf: float | None
    dense_rrf: float | None
    bm25_terms: tuple[TermWeight, ...]
    relevance_logit: float | None
    relevance_parts: RelevanceParts | None


@dataclass(frozen=True, slots=True)
class Result:
    """One passage that was found: `[start, end)` of its document's text; `highlights` are places in `text`."""

    rank: int
    document_id: str
    passage_id: str
    title: str
    heading: str
    text: str
    start: int
    end: int
    url: str | None
    metadata: Mapping[str, Value]
    truncated: bool
    cut_tokens: int
    unscored: Literal["no_finite_score"] | None
    score: float
    score_kind: ScoreKind
    scores: Scores
    highlights: tuple[Slice, ...]
    explanation: Explanation | None = None
    n_document_candidates: int | None = None


@dataclass(frozen=True, slots=True)
class Filtered:
    """What the filter left to choose from, and which of its fields cannot have been meant."""

    n_documents: int
    n_passages: int
    unknown_fields: tuple[str, ...]
    mistyped_fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FacetValue:
    """A value, and how many of the matching documents have it."""

    value: Value
    is_cut: bool
    n_documents: int


@dataclass(frozen=True, slots=True)
class Facet:
    """How many of the documents that match the query have which value of a field."""

    field: str
    is_known: bool
    n_documents: int
    values: tuple[FacetValue, ...]
    n_other: int
    n_missing: int


@dataclass(frozen=True, slots=True)
class SearchResponse:
    """One page of results, best first; `skipped` says what was not done."""

    request_id: str
    index: str
    snapshot: str
    query: str
    results: tuple[Result, ...]
    filter: Filtered | None
    facets: tuple[Facet, ...]
    n_candidates: int
    n_below_min_score: int
    rerank_k_used: int
    truncated: bool
    query_cut_tokens: int
    n_passages_cut: int
    n_tokens_left_out: int
    skipped: tuple[str, ...]
    timings_ms: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class SearchBatchResponse:
    """One response for each search, in order, all of one snapshot."""

    request_id: str
    responses: tuple[SearchResponse, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """A span: `[start, end)` of its document's text, or of the caller's passage; `score` is calibrated, in [0, 1]."""

    text: str
    score: float
    document_id: str
    passage_id: str
    title: str
    url: str | None
    start: int
    end: int
    start_utf16: int
    end_utf16: int
    context: str
    context_start: int
    span_logit: float
    null_margin: float

    def split_context(self) -> tuple[str, str, str]:
        """Return the context before the answer, the answer, and the context after it: together they are `context`."""
        start, end = self.start - self.context_start, self.end - self.context_start
        return self.context[:start], self.context[start:end], self.context[end:]


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """The decision whether there is an answer, and what it was made from; the scores are None if nothing was read."""

    is_no_answer: bool
    reason: Reason | None
    null_score: float | None
    best_span_score: float | None
    margin: float | None
    threshold: float
    threshold_origin: str


@dataclass(frozen=True, slots=True)
class AnswerResponse:
    """The best spans in `answers`; `answer` is the first of them, or None when the decision is that there is none."""

    request_id: str
    index: str | None
    snapshot: str | None
    query: str
    answer: Answer | None
    answers: tuple[Answer, ...]
    no_answer: NoAnswer
    filter: Filtered | None
    truncated: bool
    query_cut_tokens: int
    n_tokens_left_out: int
    n_passages_read: int
    rerank_k_used: int
    skipped: tuple[str, ...]
    timings_ms: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Document:
    """A whole document, whose text the offsets of results and answers refer to."""

    index: str
    snapshot: str
    document_id: str
    title: str
    text: str
    url: str | None
    metadata: Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Index:
    """A snapshot that is served."""

    index: str
    snapshot: str
    n_documents: int
    n_passages: int


@dataclass(frozen=True, slots=True)
class Indexes:
    """The snapshots that are served."""

    indexes: tuple[Index, ...]


@dataclass(frozen=True, slots=True)
class Health:
    """What the probe of life says."""

    status: Literal["alive"]


@dataclass(frozen=True, slots=True)
class Readiness:
    """What the probe of readiness says; engines are what runs each model, such as "native in bf16"."""

    status: Literal["ready"]
    engines: Mapping[str, str]
