"""Filters on metadata: what they say, and which documents and passages they leave. docs/filters.md is for users.

A value compares with values of its own kind only: booleans, numbers, texts. Texts compare by code points, as they are.
Numbers compare exactly where all of a field are whole, otherwise as float64. A document without the field, or with a
value of another kind, meets no condition on it; `Not` turns that around.
"""

import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from indexer.documents import MetadataValue
from indexer.errors import FilterError
from indexer.metadata import Column, Metadata, TextColumn, as_float, kind_of
from indexer.ranking import Mask

MAX_DEPTH = 16
MAX_CONDITIONS = 64  # each takes up to some ms of a million documents
MAX_VALUES = 1_000

_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Equal:
    """The field has this value."""

    field: str
    value: MetadataValue


@dataclass(frozen=True, slots=True)
class In:
    """The field has one of these values; without any, no document has."""

    field: str
    values: tuple[MetadataValue, ...]


@dataclass(frozen=True, slots=True)
class Range:
    """The field's value is within every bound that is given, numbers or texts: >, >=, <, <=."""

    field: str
    gt: int | float | str | None = None
    gte: int | float | str | None = None
    lt: int | float | str | None = None
    lte: int | float | str | None = None

    def bounds(self) -> list[tuple[str, int | float | str]]:
        """Return the name and the value of each bound that is given."""
        named = (("gt", self.gt), ("gte", self.gte), ("lt", self.lt), ("lte", self.lte))
        return [(name, value) for name, value in named if value is not None]


@dataclass(frozen=True, slots=True)
class Exists:
    """The field has a value, of any kind."""

    field: str


@dataclass(frozen=True, slots=True)
class And:
    """Every part holds; there is at least one."""

    parts: tuple["Filter", ...]


@dataclass(frozen=True, slots=True)
class Or:
    """At least one part holds; there is at least one."""

    parts: tuple["Filter", ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The part does not hold."""

    part: "Filter"


Condition: TypeAlias = Equal | In | Range | Exists
Filter: TypeAlias = Condition | And | Or | Not


@dataclass(frozen=True, slots=True, eq=False)
class Filtered:
    """What a filter leaves: passages (n_passages,) to choose from, counts, and fields that it cannot match.

    unknown_fields are in no document; mistyped_fields hold no value of a kind that a condition compares them with.
    """

    allowed: Mask
    n_documents: int
    n_passages: int
    unknown_fields: list[str]
    mistyped_fields: list[str]


def apply_filter(expression: Filter, metadata: Metadata) -> Filtered:
    """Return what a filter leaves of an index."""
    documents = matching_documents(expression, metadata)
    allowed = metadata.of_documents(documents)
    named = list(conditions(expression))
    unknown = {each.field for each in named if each.field not in metadata.fields}
    mistyped = {each.field for each in named if each.field not in unknown and _is_mistyped(each, metadata)}
    return Filtered(
        allowed,
        n_documents=int(np.count_nonzero(documents)),
        n_passages=int(np.count_nonzero(allowed)),
        unknown_fields=sorted(unknown),
        mistyped_fields=sorted(mistyped),
    )


def matching_documents(expression: Filter, metadata: Metadata) -> Mask:
    """Return which documents (n_documents,) a filter holds for."""
    match expression:
        case And(parts):
            return _all_of([matching_documents(part, metadata) for part in parts])
        case Or(parts):
            return ~_all_of([~matching_documents(part, metadata) for part in parts])
        case Not(part):
            return ~matching_documents(part, metadata)
        case Equal(field, value):
            return _any_of(field, [value], metadata)
        case In(field, values):
            return _any_of(field, values, metadata)
        case Range():
            return _within(expression, metadata)
        case Exists(field):
            return _having(field, metadata)


def conditions(expression: Filter) -> Iterator[Condition]:
    """Yield the conditions of a filter, in order."""
    match expression:
        case And(parts) | Or(parts):
            for part in parts:
                yield from conditions(part)
        case Not(part):
            yield from conditions(part)
        case _:
            yield expression


def require_small(expression: Filter) -> None:
    """Return if a filter is no larger than is evaluated.

    Raises:
        FilterError: it has more than MAX_DEPTH levels, MAX_CONDITIONS conditions or MAX_VALUES listed values.
    """
    named = list(conditions(expression))
    sizes = (
        ("levels", _depth(expression), MAX_DEPTH),
        ("conditions", len(named), MAX_CONDITIONS),
        ("listed values", sum(len(each.values) for each in named if isinstance(each, In)), MAX_VALUES),
    )
    for what, size, limit in sizes:
        if size > limit:
            raise FilterError(f"a filter has at most {limit} {what}; this one has {size}")


def _depth(expression: Filter) -> int:
    """Return how many And, Or and Not enclose the innermost condition."""
    match expression:
        case And(parts) | Or(parts):
            return 1 + max(map(_depth, parts))
        case Not(part):
            return 1 + _depth(part)
        case _:
            return 0


def _is_mistyped(condition: Condition, metadata: Metadata) -> bool:
    match condition:
        case Equal(field, value):
            kinds = {kind_of(value)}
        case In(field, values):
            kinds = {kind_of(value) for value in values}
        case Range(field):
            kinds = {kind_of(value) for _, value in condition.bounds()}
        case Exists():
            return False
    return bool(kinds) and kinds.isdisjoint(metadata.kinds(field))


def _all_of(masks: Sequence[Mask]) -> Mask:
    common: Mask = reduce(operator.and_, masks)
    return common


def _any_of(field: str, values: Sequence[MetadataValue], metadata: Metadata) -> Mask:
    found = np.zeros(metadata.n_documents, np.bool_)
    booleans = [value for value in values if isinstance(value, bool)]
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    texts = [value for value in values if isinstance(value, str)]
    if booleans and (flags := metadata.booleans(field)) is not None:
        _mark(found, flags, np.isin(flags.values, booleans))
    if numbers and (integers := metadata.integers(field)) is not None:
        whole = [int(value) for value in numbers if value == math.floor(value) and _INT64_MIN <= value <= _INT64_MAX]
        _mark(found, integers, _is_one_of(integers.values, np.array(whole, np.int64)))
    if numbers and (floats := metadata.floats(field)) is not None:
        _mark(found, floats, _is_one_of(floats.values, np.array([as_float(value) for value in numbers])))
    if texts and (column := metadata.texts(field)) is not None:
        codes = [column.texts.find(_bytes(text)) for text in texts]
        known = [code for code in codes if code is not None]
        _mark(found, column, _is_one_of(column.values, np.array(known, np.int32)))
    return found


def _is_one_of(values: NDArray[np.generic], wanted: NDArray[np.generic]) -> Mask:
    return values == wanted[0] if wanted.size == 1 else np.isin(values, wanted)


def _within(condition: Range, metadata: Metadata) -> Mask:
    found = np.zeros(metadata.n_documents, np.bool_)
    bounds = condition.bounds()
    numbers = [(name, value) for name, value in bounds if not isinstance(value, str)]
    texts = [(name, value) for name, value in bounds if isinstance(value, str)]
    if numbers and texts:
        return found  # a value is of one kind only
    if numbers and (integers := metadata.integers(condition.field)) is not None:
        _mark(found, integers, _between(integers.values, *_whole_interval(numbers)))
    if numbers and (floats := metadata.floats(condition.field)) is not None:
        _mark(found, floats, _in_bounds(floats.values, numbers))
    if texts and (column := metadata.texts(condition.field)) is not None:
        _mark(found, column, _between(column.values, *_code_interval(column, texts)))
    return found


def _whole_interval(bounds: Sequence[tuple[str, int | float]]) -> tuple[int, int]:
    """Return the least and the greatest whole number within bounds, such as (3, 4) for > 2.5 and < 5."""
    low, high = _INT64_MIN, _INT64_MAX
    for name, value in bounds:
        match name:
            case "gt":
                low = max(low, math.floor(value) + 1)
            case "gte":
                low = max(low, math.ceil(value))
            case "lt":
                high = min(high, math.ceil(value) - 1)
            case "lte":
                high = min(high, math.floor(value))
    return low, high


def _code_interval(column: TextColumn, bounds: Sequence[tuple[str, str]]) -> tuple[int, int]:
    """Return the first and the last code whose text is within bounds; codes are in the order of their texts."""
    low, high = 0, len(column.texts) - 1
    for name, text in bounds:
        match name:
            case "gt":
                low = max(low, column.texts.first_beyond(_bytes(text)))
            case "gte":
                low = max(low, column.texts.first_from(_bytes(text)))
            case "lt":
                high = min(high, column.texts.first_from(_bytes(text)) - 1)
            case "lte":
                high = min(high, column.texts.first_beyond(_bytes(text)) - 1)
    return low, high


def _between(values: NDArray[np.int64] | NDArray[np.int32], low: int, high: int) -> Mask:
    return (values >= low) & (values <= high) if low <= high else np.zeros(values.size, np.bool_)


def _in_bounds(values: NDArray[np.float64], bounds: Sequence[tuple[str, int | float]]) -> Mask:
    compare = {"gt": operator.gt, "gte": operator.ge, "lt": operator.lt, "lte": operator.le}
    return _all_of([compare[name](values, as_float(value)) for name, value in bounds])


def _having(field: str, metadata: Metadata) -> Mask:
    found = np.zeros(metadata.n_documents, np.bool_)
    for column in (metadata.booleans(field), metadata.integers(field), metadata.floats(field), metadata.texts(field)):
        if column is not None:
            found[column.documents if column.documents is not None else slice(None)] = True
    return found


def _mark(found: Mask, column: Column[np.generic], matches: Mask) -> None:
    """Add the documents of a column whose values match."""
    if column.documents is None:
        found |= matches
    else:
        found[column.documents[matches]] = True


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")  # in no index, so it equals nothing
