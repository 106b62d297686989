"""Span search against worked examples; tests/fuzz compares it with brute force."""

import numpy as np
import pytest

from models.spans import TokenSpan, best_spans, without_overlaps


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
