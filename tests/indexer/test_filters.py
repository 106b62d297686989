import math
import operator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from indexer.documents import Metadata, MetadataValue
from indexer.errors import FilterError
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
    apply_filter,
    matching_documents,
    require_small,
)
from indexer.metadata import kind_of
from tests.indexer.columns import columns_of, documents_with

_COMPARE = {"gt": operator.gt, "gte": operator.ge, "lt": operator.lt, "lte": operator.le}

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


def _ranges(bounds: st.SearchStrategy[int | float | str]) -> st.SearchStrategy[Filter]:
    given_bounds = st.dictionaries(st.sampled_from(sorted(_COMPARE)), bounds, min_size=1, max_size=2)
    return st.builds(lambda name, bounds: Range(name, **bounds), _names, given_bounds)


_conditions: st.SearchStrategy[Filter] = st.one_of(
    st.builds(Equal, _names, _values),
    st.builds(In, _names, st.lists(_values, max_size=4).map(tuple)),
    _ranges(_numbers),
    _ranges(_texts),
    st.builds(Exists, _names),
)
_filters = st.recursive(
    _conditions,
    lambda parts: st.one_of(
        st.builds(And, st.lists(parts, min_size=1, max_size=3).map(tuple)),
        st.builds(Or, st.lists(parts, min_size=1, max_size=3).map(tuple)),
        st.builds(Not, parts),
    ),
    max_leaves=4,
)


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
    if is_float and kind_of(value) == "number":
        left, right = float(left), float(right)
    assert callable(compare)
    return bool(compare(left, right))


def _float_fields(documents: list[Metadata]) -> set[str]:
    """Return the fields whose numbers are not all whole and within int64."""
    return {
        name
        for document in documents
        for name, value in document.items()
        if kind_of(value) == "number" and not (isinstance(value, int) and -(2**63) <= value < 2**63)
    }


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=400)
@given(_documents, _filters)
def test_a_filter_leaves_what_plain_python_leaves(
    tmp_path_factory: pytest.TempPathFactory, documents: list[Metadata], expression: Filter
) -> None:
    columns = columns_of(documents_with(*documents), tmp_path_factory.mktemp("columns"))
    floats = _float_fields(documents)
    expected = [_holds(expression, document, floats) for document in documents]
    assert matching_documents(expression, columns).tolist() == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (Equal("x", True), [0]),
        (Equal("x", 1), [1, 2]),
        (Equal("x", 1.0), [1, 2]),
        (Equal("x", "1"), [3]),
        (In("x", (True, "1", 7)), [0, 3]),
        (In("x", ()), []),
        (Range("x", gte=1), [1, 2]),
        (Range("x", gte="", lt="2"), [3]),
        (Range("x", gte=0, lt="2"), []),
        (Exists("x"), [0, 1, 2, 3]),
        (Not(Equal("x", True)), [1, 2, 3, 4]),
        (Not(Exists("x")), [4]),
        (Exists("y"), []),
        (Not(Equal("y", 1)), [0, 1, 2, 3, 4]),
    ],
)
def test_values_compare_within_their_kind(tmp_path: Path, expression: Filter, expected: list[int]) -> None:
    columns = columns_of(documents_with({"x": True}, {"x": 1}, {"x": 1.0}, {"x": "1"}, {}), tmp_path)
    assert matching_documents(expression, columns).nonzero()[0].tolist() == expected


def test_whole_numbers_compare_exactly_with_bounds_that_are_not_whole(tmp_path: Path) -> None:
    columns = columns_of(documents_with({"n": 2**53}, {"n": 2**53 + 1}, {"n": -3}), tmp_path)
    for expression, expected in (
        (Equal("n", 2**53 + 1), [False, True, False]),
        (Range("n", gt=float(2**53)), [False, True, False]),
        (Range("n", gte=-3.5, lt=-2.5), [False, False, True]),
        (Range("n", lte=-3.5), [False, False, False]),
        (Range("n", gte=10**30), [False, False, False]),
        (Range("n", lt=1e300, gt=-(10**30)), [True, True, True]),
    ):
        assert matching_documents(expression, columns).tolist() == expected, expression


def test_passages_are_counted_and_fields_that_cannot_match_are_named(tmp_path: Path) -> None:
    columns = columns_of(documents_with({"year": 1999}, {"year": 2020}, {}), tmp_path, n_passages=[3, 1, 2])
    found = apply_filter(Range("year", lt=2000), columns)
    assert (found.n_documents, found.n_passages, found.allowed.tolist()) == (1, 3, [True] * 3 + [False] * 3)
    assert (found.unknown_fields, found.mistyped_fields) == ([], [])
    wrong = Or((Equal("year", "1999"), Equal("yaer", 1999), Not(Exists("yaer")), In("year", ()), In("year", (1, "a"))))
    found = apply_filter(wrong, columns)
    assert (found.unknown_fields, found.mistyped_fields) == (["yaer"], ["year"])
    assert (found.n_documents, found.n_passages) == (3, 6)


def test_a_filter_that_is_too_large_is_refused_with_the_limit() -> None:
    require_small(And((Exists("a"),) * MAX_CONDITIONS))
    require_small(In("a", tuple(range(MAX_VALUES))))
    deep: Filter = Exists("a")
    for _ in range(MAX_DEPTH):
        deep = Not(deep)
    require_small(deep)
    with pytest.raises(FilterError, match=r"at most 16 levels; this one has 17"):
        require_small(And((deep,)))
    with pytest.raises(FilterError, match=r"at most 64 conditions; this one has 65"):
        require_small(Or((Not(Exists("a")),) * (MAX_CONDITIONS + 1)))
    with pytest.raises(FilterError, match=r"at most 1000 listed values; this one has 1001"):
        require_small(Or((In("a", tuple(range(MAX_VALUES))), In("b", (math.pi,)))))
