"""When the head of a ranking is settled, by hand and against ranking everything."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.early_exit import best_possible, kth_best, learn_deviations, looks, needed_deviations, queries_needed

logits = st.floats(-8, 8, width=32)


def test_looks_leave_out_the_end() -> None:
    assert list(looks(16)) == []
    assert list(looks(17)) == [16]
    assert list(looks(32)) == [16, 24]


def test_what_an_unread_candidate_may_reach_worked_example() -> None:
    priors = np.array([2.0, 1.0, 0.0])
    reach = best_possible(priors, np.array([3.0, 1.0]), logit_weight=0.5, deviations=2)
    assert reach == 0 + 0.5 * (2 + 2 * 1)


def test_logits_that_are_not_finite_count_for_nothing() -> None:
    priors = np.array([2.0, 1.0, 1.0, 0.0])
    reach = best_possible(priors, np.array([3.0, math.nan, 1.0]), logit_weight=0.5, deviations=2)
    assert reach == best_possible(priors[[0, 1, 3]], np.array([3.0, 1.0]), logit_weight=0.5, deviations=2)
    assert best_possible(priors, np.array([math.nan, math.nan]), logit_weight=1, deviations=2) == math.inf


def test_nothing_unread_reaches_nothing() -> None:
    assert best_possible(np.array([1.0]), np.array([3.0]), logit_weight=1, deviations=9) == -math.inf


def test_the_kth_best_is_among_the_finite() -> None:
    assert kth_best(np.array([1.0, math.nan, 3.0, 2.0]), 2) == 2
    assert kth_best(np.array([1.0, math.nan]), 2) == -math.inf


def test_deviations_needed_worked_example() -> None:
    """The last candidate belongs to the best two; after two the mean is 1 and the deviation 1, and it gained 5."""
    found = needed_deviations(np.array([3.0, 2.0, 0.0]), np.array([0.0, 2.0, 9.0]), logit_weight=1, k=2)
    assert found == (3 - 0 - 1) / 1


def test_a_query_whose_head_is_read_first_needs_none() -> None:
    assert needed_deviations(np.array([9.0, 8.0, 0.0]), np.array([1.0, 1.0, 1.0]), logit_weight=1, k=2) == -math.inf


@given(st.lists(st.tuples(logits, logits), min_size=2, max_size=60), st.integers(1, 12))
def test_with_more_deviations_than_needed_no_stop_loses_one_of_the_best(
    scores: list[tuple[float, float]], k: int
) -> None:
    priors, rerank_logits = (
        np.array(sorted((prior for prior, _ in scores), reverse=True)),
        np.array([x for _, x in scores]),
    )
    needed = needed_deviations(priors, rerank_logits, logit_weight=0.5, k=k)
    deviations = max(needed, 0.0) + 1e-6
    relevance = priors + 0.5 * rerank_logits
    whole = np.sort(relevance)[::-1][:k]
    for n in range(min(k, priors.size), priors.size):
        if rerank_logits[:n].std() < 1e-6:
            continue
        reach = best_possible(priors, rerank_logits[:n], logit_weight=0.5, deviations=deviations)
        if reach < kth_best(relevance[:n], k):
            np.testing.assert_allclose(np.sort(relevance[:n])[::-1][:k], whole, atol=1e-5)


def test_learned_deviations_worked_example() -> None:
    assert learn_deviations([4, 2, 1, 3], confidence=0.6) == 3
    assert learn_deviations([4, 2, 1, 3], confidence=0.8) == 4


@pytest.mark.parametrize(("confidence", "n"), [(0.5, 1), (0.8, 4), (0.9, 9), (0.99, 99)])
def test_how_many_queries_a_confidence_takes(confidence: float, n: int) -> None:
    assert queries_needed(confidence) == n
    assert learn_deviations(list(range(n)), confidence=confidence) == n - 1


def test_as_many_further_queries_stay_within_as_was_promised() -> None:
    generator = np.random.default_rng(1)
    kept = [
        generator.normal() <= learn_deviations(generator.normal(size=99).tolist(), confidence=0.9) for _ in range(2_000)
    ]
    assert np.mean(kept) == pytest.approx(0.9, abs=0.02)
