from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from indexer.documents import Metadata, MetadataValue
from indexer.facets import MAX_CHARACTERS, FacetValue, count_facet
from indexer.metadata import kind_of
from tests.indexer.columns import columns_of, documents_with

_values = st.sampled_from([True, False, 1, 2, -7, "a", "b", "ä"])


def test_a_hand_worked_example(tmp_path: Path) -> None:
    """Years 1999, 2001, 2001, 2020 and none: 2001 twice, 2 others, 1 missing, 5 in all."""
    years = [{"year": 1999}, {"year": 2001}, {"year": 2001}, {"year": 2020}, {}]
    facet = count_facet("year", columns_of(documents_with(*years), tmp_path), np.ones(5, np.bool_), 1)
    assert facet.values == [FacetValue(2001, 2)]
    assert (facet.n_documents, facet.n_other, facet.n_missing, facet.is_known) == (5, 2, 1, True)


def test_equal_counts_stand_in_order_of_kind_then_value(tmp_path: Path) -> None:
    values: list[MetadataValue] = ["b", 2, True, "a", False, -1]
    columns = columns_of(documents_with(*({"x": value} for value in values)), tmp_path)
    facet = count_facet("x", columns, np.ones(6, np.bool_), 10)
    assert [repr(each.value) for each in facet.values] == ["False", "True", "-1", "2", "'a'", "'b'"]


def test_numbers_that_are_not_all_whole_are_counted_as_floats(tmp_path: Path) -> None:
    columns = columns_of(documents_with({"x": 1}, {"x": 1.0}, {"x": 2.5}), tmp_path)
    assert count_facet("x", columns, np.ones(3, np.bool_), 2).values == [FacetValue(1.0, 2), FacetValue(2.5, 1)]


def test_a_long_text_is_cut_told_and_still_counted_by_its_whole(tmp_path: Path) -> None:
    short, long = "é" * MAX_CHARACTERS, "🐝" * MAX_CHARACTERS
    texts = [short, long + "a", long + "a", long + "b"]
    facet = count_facet(
        "x", columns_of(documents_with(*({"x": text} for text in texts)), tmp_path), np.ones(4, np.bool_), 9
    )
    assert facet.values == [FacetValue(long, 2, is_cut=True), FacetValue(short, 1), FacetValue(long, 1, is_cut=True)]


def test_a_field_of_no_document_is_told(tmp_path: Path) -> None:
    facet = count_facet("y", columns_of(documents_with({"x": 1}, {}), tmp_path), np.array([True, False]), 5)
    assert (facet.is_known, facet.values, facet.n_documents, facet.n_other, facet.n_missing) == (False, [], 1, 0, 1)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.booleans(), st.dictionaries(st.just("x"), _values))), st.integers(1, 4))
def test_counts_equal_those_of_a_loop_and_add_up(
    tmp_path_factory: pytest.TempPathFactory, chosen: list[tuple[bool, Metadata]], k: int
) -> None:
    columns = columns_of(documents_with(*(each for _, each in chosen)), tmp_path_factory.mktemp("columns"))
    facet = count_facet("x", columns, np.array([each for each, _ in chosen], np.bool_), k)
    values = [metadata["x"] for is_chosen, metadata in chosen if is_chosen and "x" in metadata]
    counts = Counter((kind_of(value), value) for value in values)
    expected = sorted(counts.items(), key=lambda each: (-each[1], each[0]))[:k]
    assert [((kind_of(each.value), each.value), each.n_documents) for each in facet.values] == expected
    assert sum(each.n_documents for each in facet.values) + facet.n_other == len(values)
    assert facet.n_missing == facet.n_documents - len(values)
