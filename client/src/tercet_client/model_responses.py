"""What the calls of one model alone return, field by field; what only clients of others look for is left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tercet_client.responses import Slice

PairScoreKind: TypeAlias = Literal["relevance", "relevance_logit", "rerank_sigmoid", "rerank_logit"]


@dataclass(frozen=True, slots=True)
class RankedDocument:
    """A document of the request, by its place `index` there; `score_kind` of the response says what its score is.

    Blank ones and such as got no finite score say so in `unscored` and come last. `document` is what was sent, with
    `return_documents`; `best_window` the slice that earned the score, with `window`.
    """

    index: int
    relevance_score: float
    document: Mapping[str, object] | None
    unscored: Literal["blank", "no_finite_score"] | None
    truncated: bool
    n_tokens: int
    cut_tokens: int
    best_window: Slice | None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens that a model has read."""

    prompt_tokens: int
    total_tokens: int


@dataclass(frozen=True, slots=True)
class RerankResponse:
    """The caller's documents, by score descending, then by `index`."""

    id: str
    model: str
    results: tuple[RankedDocument, ...]
    score_kind: PairScoreKind
    truncated: bool
    query_cut_tokens: int
    n_documents_cut: int
    usage: Usage
    timings_ms: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Embedding:
    """The vector of one text, of length 1, and how many tokens of the text it knows nothing of."""

    index: int
    embedding: tuple[float, ...]
    truncated: bool
    cut_tokens: int


@dataclass(frozen=True, slots=True)
class EmbeddingsResponse:
    """The vectors of the caller's texts, in their order."""

    data: tuple[Embedding, ...]
    model: str
    usage: Usage
