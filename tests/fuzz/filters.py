"""Filters: columns leave what plain Python leaves, and text and JSON say the same filter."""

import operator
import re
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from indexer.documents import Metadata, MetadataValue
from indexer.errors import FilterError
from indexer.filter_text import parse_filter
from indexer.filters import (
    And,
    Equal,
    Exists,
    Filter,
    In,
    Not,
    Or,
    Range,
    apply_filter,
    conditions,
    matching_documents,
    require_small,
)
from indexer.metadata import Metadata as Columns
from indexer.metadata import as_float, kind_of
from service.bodies import parse
from service.filter_bodies import MAX_FIELD_CHARACTERS, MAX_VALUE_CHARACTERS, FilterBody, OptionalFilter
from service.problems import MalformedBody
from tests.fuzz.target import Target, as_text, mutations, require_one_sentence
from tests.indexer.columns import columns_of, documents_with

_COMPARE = {"gt": operator.gt, "gte": operator.ge, "lt": operator.lt, "lte": operator.le}
_SIGNS = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
_OPTIONAL_FILTER: TypeAdapter[FilterBody | None] = TypeAdapter(OptionalFilter)

# Few names and values, so that conditions often hold; numbers at the edges of int64 and of float64's whole ones.
_names = st.sampled_from(["a", "b"])
_texts = st.sampled_from(["", "a", "ab", "B", "ä", "a\0", "🚀"])
_whole = st.sampled_from([-(2**63), 0, 1, 2**53 + 1, 2**63 - 1])
_numbers = st.one_of(_whole, st.sampled_from([-0.5, 1.0, 1.5, 2.0**53, 2.0**63]), st.just(10**30))
_values = st.one_of(st.booleans(), _numbers, _texts)
_same_kind = st.sampled_from([_whole, _numbers, _texts, _values])
_documents = st.dictionaries(_names, _same_kind, min_size=1).flatmap(
    lambda kinds: st.lists(st.fixed_dictionaries({}, optional=kinds), max_size=12)
)


def _filters(
    names: st.SearchStrategy[str],
    texts: st.SearchStrategy[str],
    numbers: st.SearchStrategy[int | float],
) -> st.SearchStrategy[Filter]:
    values = st.one_of(st.booleans(), numbers, texts)

    def ranges(bounds: st.SearchStrategy[int | float | str]) -> st.SearchStrategy[Filter]:
        given_bounds = st.dictionaries(st.sampled_from(sorted(_COMPARE)), bounds, min_size=1, max_size=2)
        return st.builds(lambda name, bounds: Range(name, **bounds), names, given_bounds)

    return st.recursive(
        st.one_of(
            st.builds(Equal, names, values),
            st.builds(In, names, st.lists(values, max_size=4).map(tuple)),
            ranges(numbers),
            ranges(texts),
            st.builds(Exists, names),
        ),
        lambda parts: st.one_of(
            st.builds(And, st.lists(parts, min_size=1, max_size=3).map(tuple)),
            st.builds(Or, st.lists(parts, min_size=1, max_size=3).map(tuple)),
            st.builds(Not, parts),
        ),
        max_leaves=4,
    )


_any_name = st.text(st.characters(codec=None), min_size=1, max_size=8)
_any_text = st.text(st.characters(codec=None), max_size=8)
_any_number = st.one_of(
    st.integers(), st.integers(-(10**300), 10**300), st.floats(allow_nan=False, allow_infinity=False)
)


def check_columns(value: tuple[Sequence[Metadata], Filter]) -> None:
    """A filter leaves of columns what it leaves of documents in plain Python."""
    documents, expression = value
    with tempfile.TemporaryDirectory() as folder:
        columns = columns_of(documents_with(*documents), Path(folder))
        assert matching_documents(expression, columns).tolist() == _expected(documents, expression)


_FIXED: Sequence[Metadata] = (
    {"a": 1, "b": "x", "lang": "en", "and": True},
    {"a": 2**53 + 1, "b": "", "lang": "é", "ß": "ẞ"},
    {"a": -(2**63), "b": "\U0010ffff", "c": 0.5},
    {"a": 2**63 - 1, "b": "\0", "c": -1e300, "lang": True},
    {"c": 3, "lang": 7},
    {},
)


@cache
def _fixed_columns() -> Columns:
    with tempfile.TemporaryDirectory() as folder:
        return columns_of(documents_with(*_FIXED), Path(folder))


def check_forms(expression: Filter) -> None:
    """A filter is the same after it was written as text and read, or written as JSON and read; and can be evaluated."""
    require_small(expression)
    assert repr(parse_filter(as_filter_text(expression))) == repr(_sayable(expression))
    if _is_allowed_as_json(expression):
        body = _OPTIONAL_FILTER.validate_python(as_json(expression))
        assert body is not None
        assert repr(body.to_filter()) == repr(expression)
    found = apply_filter(expression, _fixed_columns())
    expected = _expected(_FIXED, expression)
    assert found.allowed.tolist() == expected
    assert found.n_documents == found.n_passages == sum(expected)
    assert {*found.unknown_fields, *found.mistyped_fields} <= {each.field for each in conditions(expression)}


def check_text(text: str) -> None:
    """Any text is a filter, that survives both forms, or a fault with a place in the text."""
    try:
        expression = parse_filter(text)
    except FilterError as error:
        require_one_sentence(error)
        if found := re.search(r"at character (\d+): ", str(error)):
            assert 1 <= int(found[1]) <= len(text) + 1
        return
    check_forms(expression)


def check_body(content: bytes) -> None:
    """Any bytes are a filter, that survives both forms, or are refused by pydantic or as no JSON."""
    try:
        body = _OPTIONAL_FILTER.validate_python(parse(content))
    except MalformedBody as error:
        require_one_sentence(error)
        return
    except ValidationError:
        return
    if body is not None:
        check_forms(body.to_filter())


def _expected(documents: Sequence[Metadata], expression: Filter) -> list[bool]:
    """Return for which documents a filter holds."""
    floats = {
        name
        for document in documents
        for name, value in document.items()
        if kind_of(value) == "number" and not (isinstance(value, int) and -(2**63) <= value < 2**63)
    }
    known = [{"document_id": f"{i:03}", **document} for i, document in enumerate(documents)]
    return [_holds(expression, document, floats) for document in known]


def _holds(expression: Filter, metadata: Metadata, float_fields: set[str]) -> bool:
    """Return whether a filter holds for a document, as one would write it in plain Python."""
    match expression:
        case And(parts):
            return all(_holds(part, metadata, float_fields) for part in parts)
        case Or(parts):
            return any(_holds(part, metadata, float_fields) for part in parts)
        case Not(part):
            return not _holds(part, metadata, float_fields)
        case Exists(field):
            return field in metadata
        case Equal(field, value):
            return _compares(metadata, field, value, operator.eq, field in float_fields)
        case In(field, values):
            return any(_compares(metadata, field, value, operator.eq, field in float_fields) for value in values)
        case Range(field):
            return all(
                _compares(metadata, field, value, _COMPARE[name], field in float_fields)
                for name, value in expression.bounds()
            )


def _compares(metadata: Metadata, field: str, value: MetadataValue, compare: object, is_float: bool) -> bool:
    if field not in metadata or kind_of(metadata[field]) != kind_of(value):
        return False
    left, right = metadata[field], value
    if is_float and not isinstance(left, str) and not isinstance(right, str) and kind_of(value) == "number":
        left, right = as_float(left), as_float(right)
    assert callable(compare)
    return bool(compare(left, right))


def as_filter_text(expression: Filter) -> str:
    """Return a filter as a person would type it, with more brackets and quotes."""
    match expression:
        case And(parts):
            return " and ".join(f"({as_filter_text(part)})" for part in parts)
        case Or(parts):
            return " or ".join(f"({as_filter_text(part)})" for part in parts)
        case Not(part):
            return f"not ({as_filter_text(part)})"
        case Exists(field):
            return f"exists {_quoted(field)}"
        case Equal(field, value):
            return f"{_quoted(field)} = {_typed(value)}"
        case In(field, values):
            return f"{_quoted(field)} in ({', '.join(map(_typed, values))})"
        case Range(field):
            return " and ".join(
                f"{_quoted(field)} {_SIGNS[name]} {_typed(value)}" for name, value in expression.bounds()
            )


def _sayable(expression: Filter) -> Filter:
    """Return what a text can say: no And or Or of one part, and a Range of several bounds as several."""
    match expression:
        case And(parts) | Or(parts):
            said = tuple(_sayable(part) for part in parts)
            return said[0] if len(said) == 1 else type(expression)(said)
        case Not(part):
            return Not(_sayable(part))
        case Range(field) if len(expression.bounds()) > 1:
            return And(tuple(Range(field, **{name: value}) for name, value in expression.bounds()))
        case _:
            return expression


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _typed(value: MetadataValue) -> str:
    if isinstance(value, str):
        return _quoted(value)
    return str(value).lower() if isinstance(value, bool) else repr(value)


def as_json(expression: Filter) -> dict[str, object]:
    """Return a filter as a JSON object."""
    match expression:
        case And(parts):
            return {"and": [as_json(part) for part in parts]}
        case Or(parts):
            return {"or": [as_json(part) for part in parts]}
        case Not(Exists(field)):
            return {"field": field, "exists": False}
        case Not(part):
            return {"not": as_json(part)}
        case Exists(field):
            return {"field": field, "exists": True}
        case Equal(field, value):
            return {"field": field, "equal": value}
        case In(field, values):
            return {"field": field, "in": list(values)}
        case Range(field):
            return {"field": field, **dict(expression.bounds())}


def _is_allowed_as_json(expression: Filter) -> bool:
    """Return whether names are of a length and of characters that JSON may have, and values of its lengths."""
    for each in conditions(expression):
        values = each.values if isinstance(each, In) else (each.value,) if isinstance(each, Equal) else ()
        bounds = [value for _, value in each.bounds()] if isinstance(each, Range) else []
        texts = [value for value in (*values, *bounds) if isinstance(value, str)]
        if not 1 <= len(each.field) <= MAX_FIELD_CHARACTERS or any("\ud800" <= sign <= "\udfff" for sign in each.field):
            return False
        if any(len(text) > MAX_VALUE_CHARACTERS for text in texts):
            return False
    return True


_SEED_TEXTS = (
    b'year >= 2020 and (lang = "en" or tag in ("a", \'b\', 1, true)) and not draft != false and exists author',
    "not not (a < -1.5e3 or \"ß\" >= '\\\\\\'🚀') and Straße.no-1 in ()".encode(),
)
_SEED_BODIES = (
    b'{"and": [{"field": "a", "gte": 1, "lt": 1e300}, {"or": [{"field": "lang", "equal": true}]}]}',
    b'{"not": {"field": "b", "in": ["", 1, 0.5, false, 9007199254740993]}}',
    b'{"field": "c", "exists": false}',
)
_TEXT_WORDS = [
    word.encode()
    for word in (*"and or not in exists true false ( ) = != < <= > >= , \" ' \\ a b c 1 1e9".split(), "ß", "٣")
]
_BODY_WORDS = [b'"%s":' % word.encode() for word in "and or not field equal in exists gt gte lt lte".split()]

TARGETS = (
    Target(
        "filter-columns",
        check_columns,
        st.tuples(_documents, _filters(_names, _texts, _numbers)),
        n_examples=300,
    ),
    Target("filter-forms", check_forms, _filters(_any_name, _any_text, _any_number)),
    Target(
        "filter-text",
        check_text,
        st.one_of(
            st.text(st.sampled_from("ab\"'\\()=<>!,.-+ 1e\n") | st.characters(), max_size=40),
            st.lists(st.sampled_from([word.decode() for word in _TEXT_WORDS]), max_size=12).map(" ".join),
        ),
        as_text,
        _SEED_TEXTS,
        _TEXT_WORDS,
    ),
    Target(
        "filter-body",
        check_body,
        mutations(_SEED_BODIES, _BODY_WORDS),
        bytes,
        _SEED_BODIES,
        _BODY_WORDS,
    ),
)
