"""A filter as JSON, checked by pydantic and described by OpenAPI; and what a response says of filter and facets.

    {"and": [{"field": "year", "gte": 2020}, {"or": [{"field": "lang", "equal": "en"}, {"field": "tag", "in": ["a"]}]},
             {"not": {"field": "draft", "equal": true}}, {"field": "author", "exists": true}]}

One model for every form, because a fault in a union of models would point at the union's members, not at the body's.
"""

import math
from typing import Annotated, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    model_validator,
)

from indexer.errors import FilterError
from indexer.facets import MAX_CHARACTERS
from indexer.filters import (
    MAX_CONDITIONS,
    MAX_DEPTH,
    MAX_VALUES,
    And,
    Equal,
    Exists,
    Filter,
    In,
    Not,
    Or,
    Range,
    require_small,
)
from service.filter_schema import ONE_FORM

FILTER_EXAMPLE = {"and": [{"field": "year", "gte": 2020}, {"not": {"field": "draft", "equal": True}}]}

MAX_FIELD_CHARACTERS = 512
MAX_VALUE_CHARACTERS = 4_000

_MAX_NESTING = 2 * MAX_DEPTH + 2  # of JSON: a level is an object in a list, and the last may hold a list of values
_FORMS = ("and_", "or_", "not_", "field")
_BOUNDS = ("gt", "gte", "lt", "lte")


def _bound(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, str | int | float | None):
        raise ValueError("It must be a text or a number.")
    if isinstance(value, str) and len(value) > MAX_VALUE_CHARACTERS:
        raise ValueError(f"It must have at most {MAX_VALUE_CHARACTERS} characters.")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("It must be a finite number.")
    return value


def _value(value: object) -> object:
    if not isinstance(value, str | int | float | None):  # a boolean is an int
        raise ValueError("It must be a text, a number, true or false.")
    return value if isinstance(value, bool) else _bound(value)


def _listed_value(value: object) -> object:
    if value is None:
        raise ValueError("It must be a text, a number, true or false.")
    return _value(value)


_Text: TypeAlias = Annotated[str, Field(max_length=MAX_VALUE_CHARACTERS)]  # for OpenAPI
_OptionalBound: TypeAlias = Annotated[
    str | int | float | None, PlainValidator(_bound, json_schema_input_type=_Text | int | float | None)
]
_OptionalValue: TypeAlias = Annotated[
    str | int | float | bool | None, PlainValidator(_value, json_schema_input_type=_Text | int | float | bool | None)
]
_Value: TypeAlias = Annotated[
    str | int | float | bool, PlainValidator(_listed_value, json_schema_input_type=_Text | int | float | bool)
]


class FilterBody(BaseModel):
    """Either one of `and`, `or`, `not`, or a `field` with one of `equal`, `in`, `exists`, or with bounds.

    A value compares with values of its own kind only: texts, numbers, booleans. Null is the same as left out.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False, json_schema_extra=ONE_FORM)

    and_: list["FilterBody"] | None = Field(
        default=None, alias="and", min_length=1, max_length=MAX_CONDITIONS, description="All of these hold."
    )
    or_: list["FilterBody"] | None = Field(
        default=None, alias="or", min_length=1, max_length=MAX_CONDITIONS, description="At least one of these holds."
    )
    not_: "FilterBody | None" = Field(default=None, alias="not", description="This does not hold.")
    field: str | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_FIELD_CHARACTERS,
        description="Name of a metadata field, or `document_id`, `title` or `url`.",
    )
    equal: _OptionalValue = Field(default=None, description="The field has this value.")
    in_: list[_Value] | None = Field(
        default=None, alias="in", max_length=MAX_VALUES, description="The field has one of these values."
    )
    exists: bool | None = Field(default=None, description="Whether the field has a value.")
    gt: _OptionalBound = Field(default=None, description="The field's value is greater.")
    gte: _OptionalBound = Field(default=None, description="The field's value is greater or equal.")
    lt: _OptionalBound = Field(default=None, description="The field's value is less.")
    lte: _OptionalBound = Field(default=None, description="The field's value is less or equal.")

    @model_validator(mode="after")
    def _says_one_thing(self) -> "FilterBody":
        forms = [name for name in _FORMS if getattr(self, name) is not None]
        bounds = [getattr(self, name) for name in _BOUNDS if getattr(self, name) is not None]
        tests = [name for name in ("equal", "in_", "exists") if getattr(self, name) is not None]
        n_tests = len(tests) + bool(bounds)
        if len(forms) != 1 or (self.field is None and n_tests):
            raise ValueError("Give either one of `and`, `or`, `not`, or a `field` with what it is compared with.")
        if self.field is not None and n_tests != 1:
            raise ValueError("Beside `field` give one of `equal`, `in`, `exists`, or bounds: `gt`, `gte`, `lt`, `lte`.")
        if len({isinstance(bound, str) for bound in bounds}) > 1:
            raise ValueError("Bounds are all numbers or all texts.")
        return self

    def to_filter(self) -> Filter:
        """Return what it says."""
        if self.and_ is not None:
            return And(tuple(part.to_filter() for part in self.and_))
        if self.or_ is not None:
            return Or(tuple(part.to_filter() for part in self.or_))
        if self.not_ is not None:
            return Not(self.not_.to_filter())
        assert self.field is not None, "validated: without a form it is a condition"
        if self.equal is not None:
            return Equal(self.field, self.equal)
        if self.in_ is not None:
            return In(self.field, tuple(self.in_))
        if self.exists is not None:
            return Exists(self.field) if self.exists else Not(Exists(self.field))
        return Range(self.field, gt=self.gt, gte=self.gte, lt=self.lt, lte=self.lte)


def _require_shallow(body: object) -> object:
    """Return JSON that is not nested too deep to be looked at, level by level."""
    level = [body]
    for _ in range(_MAX_NESTING + 1):
        level = [inner for each in level for inner in _inner(each)]
    if level:
        raise ValueError(f"A filter is at most {MAX_DEPTH} levels deep.")
    return body


def _inner(value: object) -> list[object]:
    if isinstance(value, dict):
        return list(value.values())
    return list(value) if isinstance(value, list) else []


def _require_small(body: FilterBody | None) -> FilterBody | None:
    try:
        if body is not None:
            require_small(body.to_filter())
    except FilterError as error:
        message = str(error)
        raise ValueError(f"{message[:1].upper()}{message[1:]}.") from error
    return body


OptionalFilter: TypeAlias = Annotated[
    FilterBody | None, BeforeValidator(_require_shallow), AfterValidator(_require_small)
]


class _Outcome(BaseModel):
    model_config = ConfigDict(frozen=True, from_attributes=True)


class FilteredBody(_Outcome):
    """What the filter left to choose from."""

    n_documents: int
    n_passages: int
    unknown_fields: list[str] = Field(
        description="Fields of the filter that no document of the index has; a condition on them holds for none."
    )
    mistyped_fields: list[str] = Field(
        description="Fields that hold no value of the kind that they are compared with, such as numbers only, where "
        "the filter has a text; such a condition holds for none."
    )


class FacetValueBody(_Outcome):
    """A value, and how many of the matching documents have it."""

    value: str | int | float | bool
    is_cut: bool = Field(
        description=f"Whether this is only the first {MAX_CHARACTERS:,} characters of a longer text, which then is no "
        "value to filter by."
    )
    n_documents: int


class FacetBody(_Outcome):
    """How many of the documents that match the query have which value of a field.

    A document matches if the filter leaves it and one of its passages holds a term of the query (but for mode
    `dense`) or is among the `retrieve_k` nearest (but for mode `bm25`). Counts are exact, and the same on every page.
    """

    field: str
    is_known: bool = Field(description="Whether any document of the index has the field.")
    n_documents: int = Field(description="Matching documents: those of `values`, `n_other` and `n_missing`.")
    values: list[FacetValueBody] = Field(description="The `facet_k` most frequent, then by value.")
    n_other: int = Field(description="Matching documents with a value that is not listed.")
    n_missing: int = Field(description="Matching documents without a value.")
