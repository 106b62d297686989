"""What a call may ask for, named as in the API. Whatever is left out, or None, has the service's default."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias, TypedDict

Mode: TypeAlias = Literal["hybrid", "dense", "bm25"]
OnError: TypeAlias = Literal["skip", "fail"]
InputType: TypeAlias = Literal[
    "query", "search_query", "retrieval.query", "passage", "document", "search_document", "retrieval.passage"
]

Filter = TypedDict(
    "Filter",
    {
        "and": "Sequence[Filter]",
        "or": "Sequence[Filter]",
        "not": "Filter",
        "field": str,
        "equal": "str | int | float | bool",
        "in": "Sequence[str | int | float | bool]",
        "exists": bool,
        "gt": "str | int | float",
        "gte": "str | int | float",
        "lt": "str | int | float",
        "lte": "str | int | float",
    },
    total=False,
)
Filter.__doc__ = "Which documents may be found: one of `and`, `or`, `not`, or a `field` with what it is compared with."


class Passage(TypedDict):
    """A passage of the caller's."""

    id: str
    text: str


class _Retrieval(TypedDict, total=False):
    mode: Mode
    rerank: bool
    rerank_k: int
    rerank_tokens: int
    settle_k: int
    retrieve_k: int
    filter: Filter | None


class _Page(_Retrieval, total=False):
    top_k: int
    offset: int
    highlight: bool
    explain: bool
    min_score: float | None
    group_by_document: bool
    facets: Sequence[str]
    facet_k: int


class SearchOptions(_Page, total=False):
    """How to search."""

    index: str | None


class _Query(TypedDict):
    query: str


class Search(_Query, _Page):
    """One search of a batch."""


class AnswerOptions(_Retrieval, total=False):
    """How to answer. With `passages` nothing is retrieved, so only `top_k` and `no_answer_threshold` go with them."""

    index: str | None
    top_k: int
    read_k: int
    no_answer_threshold: float | None
    passages: Sequence[Passage] | None


class RerankOptions(TypedDict, total=False):
    """How to rank documents of the caller's; with `raw_scores` scores, and `min_score`, are logits."""

    top_n: int | None
    min_score: float | None
    raw_scores: bool
    return_documents: bool | None
    rank_fields: Sequence[str] | None
    max_tokens_per_doc: int | None
    max_chunks_per_doc: int | None
    window: bool


class EmbeddingsOptions(TypedDict, total=False):
    """How to encode texts: as passages, unless `input_type` says otherwise; with `truncate` False none may be cut."""

    input_type: InputType | None
    truncate: bool | None


class JobOptions(TypedDict, total=False):
    """How to build an index."""

    index: str | None
    on_error: OnError
    update: bool
