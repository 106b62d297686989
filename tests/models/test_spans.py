"""Span search against worked examples and brute force."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from models.spans import TokenSpan, best_spans, without_overlaps

LOGITS = st.lists(st.integers(-3, 3), min_size=1, max_size=12)


def brute_force(start: NDArray[np.float32], end: NDArray[np.float32], limit: int) -> list[TokenSpan]:
    spans = [
        TokenSpan(i, j, float(start[i] + end[j]))
        for i in range(start.size)
        for j in range(i, min(i + limit, start.size))
    ]
    return sorted(spans, key=lambda span: (-span.logit, span.start, span.end))


def test_worked_example_takes_the_best_pair_not_the_best_ends() -> None:
    spans = best_spans(
        np.array([0, 0, 0, 4, 1, -2], np.float32),
        np.array([0, 0, 0, 1, 5, -2], np.float32),
        max_answer_tokens=3,
        n_best=1,
    )
    assert spans == [TokenSpan(3, 4, 9.0)]


def test_span_never_ends_before_it_starts() -> None:
    start, end = np.array([0, 0, 9], np.float32), np.array([9, 0, 0], np.float32)
    assert best_spans(start, end, max_answer_tokens=3, n_best=1) == [TokenSpan(0, 0, 9.0)]


@given(LOGITS, st.data(), st.integers(1, 14), st.integers(1, 30))
def test_equals_brute_force_with_ties(starts: list[int], data: st.DataObject, limit: int, n_best: int) -> None:
    ends = data.draw(st.lists(st.integers(-3, 3), min_size=len(starts), max_size=len(starts)))
    start, end = np.array(starts, np.float32), np.array(ends, np.float32)
    expected = brute_force(start, end, limit)[:n_best]
    assert best_spans(start, end, max_answer_tokens=limit, n_best=n_best) == expected


def test_extreme_and_undefined_logits_never_become_an_answer() -> None:
    start = np.array([np.nan, 1e30, -1e30], np.float32)
    end = np.array([0, -np.inf, 2], np.float32)
    spans = best_spans(start, end, max_answer_tokens=3, n_best=9)
    assert [(span.start, span.end) for span in spans] == [(1, 2), (2, 2)]


def test_an_infinite_logit_takes_no_place_from_a_finite_one() -> None:
    start, end = np.array([np.inf, 0], np.float32), np.array([np.inf, 2], np.float32)
    assert best_spans(start, end, max_answer_tokens=2, n_best=1) == [TokenSpan(1, 1, 2.0)]


def test_no_tokens_give_no_spans_and_shapes_must_agree() -> None:
    empty = np.zeros(0, np.float32)
    assert best_spans(empty, empty, max_answer_tokens=3, n_best=5) == []
    with pytest.raises(ValueError, match="shapes differ"):
        best_spans(empty, np.zeros(1, np.float32), max_answer_tokens=3, n_best=5)


def test_a_span_found_twice_or_overlapping_a_better_one_is_listed_once() -> None:
    spans = [
        TokenSpan(4, 6, 2.0),
        TokenSpan(1, 2, 5.0),
        TokenSpan(4, 6, 3.0),
        TokenSpan(2, 4, 4.0),
        TokenSpan(9, 9, 3.0),
    ]
    assert without_overlaps(spans, n_best=5) == [TokenSpan(1, 2, 5.0), TokenSpan(4, 6, 3.0), TokenSpan(9, 9, 3.0)]
    assert without_overlaps(spans, n_best=2) == [TokenSpan(1, 2, 5.0), TokenSpan(4, 6, 3.0)]
