"""The bodies of HTTP requests: where bytes become objects.

Limits of single fields live here, so that OpenAPI shows them.
"""

from typing import Annotated, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, model_validator

from indexer.filters import Filter
from service.answers import OwnPassage
from service.filter_bodies import FILTER_EXAMPLE, MAX_FIELD_CHARACTERS, OptionalFilter
from service.queries import SETTLE_K, AnswerQuery, Mode, SearchQuery

MAX_QUERY_CHARACTERS = 4_000
MAX_TOP_K = 100
MAX_OFFSET = 2_000
MAX_DEPTH = 1_000
MAX_RERANK_TOKENS = 512
MAX_ANSWERS = 20
MAX_READ_K = 50
MAX_PASSAGES = 100
MAX_PASSAGE_CHARACTERS = 100_000
MAX_NAME_CHARACTERS = 512
MAX_FACETS = 20
MAX_FACET_K = 1_000
MAX_SEARCHES = 64
MAX_TIMEOUT_MS = 600_000

# What `not_blank` checks: `\s` stands for other signs in the regular expressions of JSON schemas.
NOT_BLANK = r"[^\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"

# What `_min_score_fits_its_scale` and `_retrieves_or_reads` check, as JSON schemas for OpenAPI.
_MIN_SCORE_FITS_ITS_SCALE: dict[str, JsonValue] = {
    "anyOf": [
        {"properties": {"min_score": {"anyOf": [{"type": "number", "minimum": 0, "maximum": 1}, {"type": "null"}]}}},
        {"properties": {"rerank": {"const": False}}, "required": ["rerank"]},
    ]
}
_IDLE_BESIDE_PASSAGES = frozenset(
    {"mode", "rerank", "rerank_k", "rerank_tokens", "settle_k", "retrieve_k", "read_k", "filter", "index"}
)
_RETRIEVES_OR_READS: dict[str, JsonValue] = {
    "anyOf": [
        {"properties": {"passages": {"type": "null"}}},
        {"properties": dict.fromkeys(sorted(_IDLE_BESIDE_PASSAGES), False)},
    ]
}

Finite: TypeAlias = Annotated[float, Field(allow_inf_nan=False)]
_FieldName = Annotated[str, Field(min_length=1, max_length=MAX_FIELD_CHARACTERS)]


def _whole(value: object) -> object:
    """Return `4` for `4.0`, which is the same number in JSON."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


_FROM_FLOAT = BeforeValidator(_whole)
Whole: TypeAlias = Annotated[int, _FROM_FLOAT]


def not_blank(value: object) -> object:
    """Return a value as it is, unless it is a text with nothing in it: then raise ValueError."""
    if isinstance(value, str) and not value.strip():
        raise ValueError("It must hold something other than white space.")
    return value


class StrictBody(BaseModel):
    """A request body: no unknown field, no conversion from another type, no number that is not finite."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


QueryText = Annotated[
    str,
    BeforeValidator(not_blank),
    Field(
        min_length=1,
        max_length=MAX_QUERY_CHARACTERS,
        json_schema_extra={"pattern": NOT_BLANK},
        description="What to look for. What does not fit a model is cut, flagged and counted.",
        examples=["how do I read a csv file row by row"],
    ),
]


class _Timed(StrictBody):
    """What every request over an index may say."""

    index: str | None = Field(
        default=None, max_length=MAX_NAME_CHARACTERS, description="Name; null for the served one."
    )
    timeout_ms: Annotated[int, Field(ge=1, le=MAX_TIMEOUT_MS), _FROM_FLOAT] | None = Field(
        default=None,
        description="Deadline in milliseconds, if it is earlier than the service's. Near it fewer candidates are "
        "reranked and fewer passages read, and `skipped` says so.",
    )

    def timeout_seconds(self) -> float | None:
        """Return the client's deadline."""
        return None if self.timeout_ms is None else self.timeout_ms / 1000


class _Retrieval(StrictBody):
    """What `search` and `answer` share."""

    query: QueryText
    mode: Mode = Field(
        default="hybrid", description="What finds candidates: BM25 and the dual encoder, or one of them."
    )
    rerank: bool = Field(default=True, description="Whether the cross-encoder orders the best `rerank_k`.")
    rerank_k: Whole = Field(
        default=100, ge=1, le=MAX_DEPTH, description="How many candidates the cross-encoder reads at most."
    )
    rerank_tokens: Whole = Field(
        default=0,
        ge=0,
        le=MAX_RERANK_TOKENS,
        description="How many tokens of a longer passage it reads: those side by side that share most with the query; "
        "0 for all that fit. `n_tokens_left_out` counts the others.",
    )
    settle_k: Whole = Field(
        default=SETTLE_K,
        ge=0,
        le=MAX_DEPTH,
        description="It stops before `rerank_k` once no unread candidate is held to enter the best `settle_k`, "
        "of which it is as sure as its calibration says; 0 to read them all. An answer settles at least `read_k`.",
    )
    retrieve_k: Whole = Field(default=200, ge=1, le=MAX_DEPTH, description="How many candidates each leg finds.")
    filter: OptionalFilter = Field(
        default=None,
        description="Which documents may be found, by their metadata; null for all. Applied before anything is "
        "counted: each leg finds the best `retrieve_k` of what it leaves.",
        examples=[FILTER_EXAMPLE],
    )

    def to_filter(self) -> Filter | None:
        """Return the filter for the pipeline."""
        return self.filter.to_filter() if self.filter is not None else None


class Search(_Retrieval):
    """One search, without what it shares with others of a batch."""

    model_config = ConfigDict(json_schema_extra=_MIN_SCORE_FITS_ITS_SCALE)

    top_k: Whole = Field(default=10, ge=1, le=MAX_TOP_K, description="Results on this page; never changes the ranking.")
    offset: Whole = Field(default=0, ge=0, le=MAX_OFFSET, description="Results before this page.")
    highlight: bool = Field(default=True, description="Whether to give the places of the query's words.")
    explain: bool = Field(
        default=False,
        description="Whether to give each result's ranks, the weight of each term, and what made its score.",
    )
    min_score: Finite | None = Field(
        default=None,
        description="Least `score` of a result: of relevance, in [0, 1], where `rerank` is set, else of the mode's "
        "score. Candidates without that score are left out too.",
    )
    group_by_document: bool = Field(
        default=False, description="Whether to list each document once, by its best passage."
    )
    facets: list[_FieldName] = Field(
        default=[],
        max_length=MAX_FACETS,
        description="Metadata fields whose values to count, over the documents that match the query.",
        examples=[["year", "lang"]],
    )
    facet_k: Whole = Field(default=10, ge=1, le=MAX_FACET_K, description="How many values of each facet to list.")

    @model_validator(mode="after")
    def _min_score_fits_its_scale(self) -> "Search":
        if self.rerank and self.min_score is not None and not 0 <= self.min_score <= 1:
            raise ValueError("With `rerank` the scale of `min_score` is that of relevance, from 0 to 1.")
        return self

    def to_query(self, index: str | None) -> SearchQuery:
        """Return it for the pipeline."""
        return SearchQuery(**self.model_dump(include=_SEARCH_FIELDS), index=index, filter=self.to_filter())


_SEARCH_FIELDS = Search.model_fields.keys() - {"filter"}


class SearchRequest(Search, _Timed):
    """Body of `POST /v1/search`."""


class SearchBatchRequest(_Timed):
    """Body of `POST /v1/search/batch`."""

    searches: list[Search] = Field(
        min_length=1,
        max_length=MAX_SEARCHES,
        description="Each as a body of `/v1/search`, but for `index` and `timeout_ms`, which all of them share.",
    )


class PassageBody(StrictBody):
    """A passage of the caller's."""

    id: str = Field(min_length=1, max_length=MAX_NAME_CHARACTERS)
    text: str = Field(max_length=MAX_PASSAGE_CHARACTERS)


class AnswerRequest(_Retrieval, _Timed):
    """Body of `POST /v1/answer`."""

    model_config = ConfigDict(json_schema_extra=_RETRIEVES_OR_READS)

    top_k: Whole = Field(default=3, ge=1, le=MAX_ANSWERS, description="Spans to list; never changes the decision.")
    read_k: Whole = Field(default=5, ge=1, le=MAX_READ_K, description="How many of the best passages the reader reads.")
    no_answer_threshold: Finite | None = Field(
        default=None,
        description="Least margin of an answer over no answer; null for the one that the model was tuned to.",
    )
    passages: list[PassageBody] | None = Field(
        default=None, max_length=MAX_PASSAGES, description="Read all of these instead of searching the index."
    )

    @model_validator(mode="after")
    def _retrieves_or_reads(self) -> "AnswerRequest":
        idle = _IDLE_BESIDE_PASSAGES & self.model_fields_set
        if self.passages is not None and idle:
            raise ValueError(f"With `passages` nothing is retrieved, so leave out: {', '.join(sorted(idle))}.")
        return self

    def to_query(self) -> AnswerQuery:
        """Return it for the pipeline."""
        passages = None if self.passages is None else [OwnPassage(each.id, each.text) for each in self.passages]
        fields = self.model_dump(exclude={"filter", "passages", "timeout_ms"})
        return AnswerQuery(**fields, filter=self.to_filter(), passages=passages)
