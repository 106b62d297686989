"""What a request asks of the pipeline."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from indexer.filters import Filter
from service.answers import OwnPassage

Mode: TypeAlias = Literal["hybrid", "dense", "bm25"]

SETTLE_K = 10  # what a first page shows


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """What to search, and how deep. index is a name, None for the one that is served by default.

    Of a passage the cross-encoder reads an excerpt of rerank_tokens, all that fits for 0. settle_k is how many of the
    best results must be beyond change before it may leave others of the rerank_k unread; 0 for never. min_score is the
    least score of a result, on the scale that orders it: relevance where rerank is set, else the mode's. facets are
    fields of which the facet_k most frequent values are counted.
    """

    query: str
    top_k: int = 10
    offset: int = 0
    mode: Mode = "hybrid"
    rerank: bool = True
    rerank_k: int = 100
    rerank_tokens: int = 0
    settle_k: int = SETTLE_K
    retrieve_k: int = 200
    highlight: bool = True
    explain: bool = False
    min_score: float | None = None
    group_by_document: bool = False
    index: str | None = None
    filter: Filter | None = None
    facets: Sequence[str] = ()
    facet_k: int = 10


@dataclass(frozen=True, slots=True)
class AnswerQuery:
    """What to answer: from the index, or from the caller's own passages, which are then all read."""

    query: str
    top_k: int = 3
    read_k: int = 5
    no_answer_threshold: float | None = None
    passages: list[OwnPassage] | None = None
    mode: Mode = "hybrid"
    rerank: bool = True
    rerank_k: int = 100
    rerank_tokens: int = 0
    settle_k: int = SETTLE_K
    retrieve_k: int = 200
    index: str | None = None
    filter: Filter | None = None
