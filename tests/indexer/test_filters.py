"""Filters case by case; tests/fuzz compares them with plain Python."""

import math
from pathlib import Path

import pytest

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
from tests.indexer.columns import columns_of, documents_with


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
