"""The bodies of HTTP requests: where bytes become objects.

Limits of single fields live here, so that OpenAPI shows them.
"""

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from indexer.filters import Filter
from service.answers import OwnPassage
from service.candidates import Mode
from service.filter_bodies import FILTER_EXAMPLE, MAX_FIELD_CHARACTERS, OptionalFilter
from service.pipeline import AnswerQuery, SearchQuery

MAX_QUERY_CHARACTERS = 4_000
MAX_TOP_K = 100
MAX_OFFSET = 2_000
MAX_DEPTH = 1_000
MAX_ANSWERS = 20
MAX_READ_K = 50
MAX_PASSAGES = 100
MAX_PASSAGE_CHARACTERS = 100_000
MAX_NAME_CHARACTERS = 512
MAX_FACETS = 20
MAX_FACET_K = 1_000

_FieldName = Annotated[str, Field(min_length=1, max_length=MAX_FIELD_CHARACTERS)]


def _not_blank(value: object) -> object:
    if isinstance(value, str) and not value.strip():
        raise ValueError("The query must hold something other than white space.")
    return value


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class _Retrieval(_Request):
    """What `search` and `answer` share."""

    query: Annotated[
        str,
        BeforeValidator(_not_blank),
        Field(
            min_length=1,
            max_length=MAX_QUERY_CHARACTERS,
            description="What to look for. What does not fit a model is cut, flagged and counted.",
            examples=["how do I read a csv file row by row"],
        ),
    ]
    mode: Mode = Field(
        default="hybrid", description="What finds candidates: BM25 and the dual encoder, or one of them."
    )
    rerank: bool = Field(default=True, description="Whether the cross-encoder orders the best `rerank_k`.")
    rerank_k: int = Field(default=100, ge=1, le=MAX_DEPTH, description="How many candidates the cross-encoder reads.")
    retrieve_k: int = Field(default=200, ge=1, le=MAX_DEPTH, description="How many candidates each leg finds.")
    filter: OptionalFilter = Field(
        default=None,
        description="Which documents may be found, by their metadata; null for all. Applied before anything is "
        "counted: each leg finds the best `retrieve_k` of what it leaves.",
        examples=[FILTER_EXAMPLE],
    )
    index: str | None = Field(
        default=None, max_length=MAX_NAME_CHARACTERS, description="Name; null for the served one."
    )

    def to_filter(self) -> Filter | None:
        """Return the filter for the pipeline."""
        return self.filter.to_filter() if self.filter is not None else None


class SearchRequest(_Retrieval):
    """Body of `POST /v1/search`."""

    top_k: int = Field(default=10, ge=1, le=MAX_TOP_K, description="Results on this page; never changes the ranking.")
    offset: int = Field(default=0, ge=0, le=MAX_OFFSET, description="Results before this page.")
    highlight: bool = Field(default=True, description="Whether to give the places of the query's words.")
    explain: bool = Field(default=False, description="Whether to give each candidate's ranks.")
    facets: list[_FieldName] = Field(
        default=[],
        max_length=MAX_FACETS,
        description="Metadata fields whose values to count, over the documents that match the query.",
        examples=[["year", "lang"]],
    )
    facet_k: int = Field(default=10, ge=1, le=MAX_FACET_K, description="How many values of each facet to list.")

    def to_query(self) -> SearchQuery:
        """Return it for the pipeline."""
        return SearchQuery(**self.model_dump(exclude={"filter"}), filter=self.to_filter())


class PassageBody(_Request):
    """A passage of the caller's."""

    id: str = Field(min_length=1, max_length=MAX_NAME_CHARACTERS)
    text: str = Field(max_length=MAX_PASSAGE_CHARACTERS)


class AnswerRequest(_Retrieval):
    """Body of `POST /v1/answer`."""

    top_k: int = Field(default=3, ge=1, le=MAX_ANSWERS, description="Spans to list; never changes the decision.")
    read_k: int = Field(default=5, ge=1, le=MAX_READ_K, description="How many of the best passages the reader reads.")
    no_answer_threshold: float | None = Field(
        default=None,
        description="Least margin of an answer over no answer; null for the one that the model was tuned to.",
    )
    passages: list[PassageBody] | None = Field(
        default=None, max_length=MAX_PASSAGES, description="Read all of these instead of searching the index."
    )

    @model_validator(mode="after")
    def _retrieves_or_reads(self) -> "AnswerRequest":
        idle = {"mode", "rerank", "rerank_k", "retrieve_k", "read_k", "filter", "index"} & self.model_fields_set
        if self.passages is not None and idle:
            raise ValueError(f"With `passages` nothing is retrieved, so leave out: {', '.join(sorted(idle))}.")
        return self

    def to_query(self) -> AnswerQuery:
        """Return it for the pipeline."""
        passages = None if self.passages is None else [OwnPassage(each.id, each.text) for each in self.passages]
        fields = self.model_dump(exclude={"filter", "passages"})
        return AnswerQuery(**fields, filter=self.to_filter(), passages=passages)
