"""The measures against worked examples, ir_measures and brute force."""

import ir_measures
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.evaluation import (
    best_threshold,
    exact_match,
    ndcg_at_k,
    normalise_answer,
    recall_at_k,
    reciprocal_rank_at_k,
    token_f1,
)

DOCUMENTS = [f"d{i}" for i in range(12)]


def test_ndcg_worked_example() -> None:
    assert ndcg_at_k(["a", "b", "c"], {"b": 1, "d": 1}, 3) == pytest.approx(0.63093 / 1.63093, abs=1e-5)


@given(
    st.permutations(DOCUMENTS),
    st.dictionaries(st.sampled_from(DOCUMENTS), st.integers(0, 3), min_size=1),
    st.integers(1, 12),
)
def test_measures_equal_those_of_trec_eval(ranking: list[str], judgements: dict[str, int], k: int) -> None:
    measures = [ir_measures.nDCG @ k, ir_measures.R @ k, ir_measures.RR @ k]
    run = {"q": {document: float(-rank) for rank, document in enumerate(ranking)}}
    theirs = ir_measures.calc_aggregate(measures, {"q": judgements}, run)
    assert ndcg_at_k(ranking, judgements, k) == pytest.approx(theirs[measures[0]], abs=1e-6)
    assert recall_at_k(ranking, judgements, k) == pytest.approx(theirs[measures[1]], abs=1e-6)
    assert reciprocal_rank_at_k(ranking, judgements, k) == pytest.approx(theirs[measures[2]], abs=1e-6)


def test_nothing_relevant_or_nothing_found_is_zero() -> None:
    assert ndcg_at_k(["a"], {"a": 0}, 10) == recall_at_k(["a"], {}, 10) == reciprocal_rank_at_k([], {"a": 1}, 10) == 0.0


def test_answers_are_compared_without_case_articles_and_punctuation() -> None:
    assert normalise_answer("The  Eiffel-Tower, a landmark!") == "eiffeltower landmark"
    assert exact_match("the Cat.", ["cat"]) == 1.0
    assert token_f1("black cat sat", ["the black cat", "dog"]) == pytest.approx(2 * 2 / 5)


def test_no_answer_is_right_only_where_there_is_none() -> None:
    assert (exact_match("", []), token_f1("", [])) == (1.0, 1.0)
    assert (exact_match("x", []), token_f1("x", [])) == (0.0, 0.0)
    assert (exact_match("", ["x"]), token_f1("", ["x"])) == (0.0, 0.0)


@given(
    st.lists(
        st.tuples(st.integers(-4, 4), st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from([0.0, 1.0])),
        min_size=1,
        max_size=12,
    )
)
def test_best_threshold_equals_trying_them_all(rows: list[tuple[int, float, float]]) -> None:
    margins, answered, unanswered = (np.array(column, np.float64) for column in zip(*rows, strict=True))

    def mean(threshold: float) -> float:
        return float(np.where(margins >= threshold, answered, unanswered).mean())

    threshold, best = best_threshold(margins, answered, unanswered)
    assert best == pytest.approx(max(mean(candidate) for candidate in [*margins, margins.max() + 1]))
    assert mean(threshold) == pytest.approx(best)


def test_best_threshold_of_nothing_and_of_no_spans_is_finite() -> None:
    empty = np.zeros(0)
    assert best_threshold(empty, empty, empty) == (0.0, 0.0)
    assert best_threshold(np.array([-np.inf]), np.array([0.0]), np.array([1.0])) == (0.0, 1.0)
