"""The bootstrap against worked examples, all resamples enumerated, and Student's t."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from models.bootstrap import (
    mean_interval,
    paired_difference,
    percentile_interval,
    resampled_means,
)

N = 200
values_of = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=12)


def array(values: list[float]) -> NDArray[np.float64]:
    return np.array(values, np.float64)


def test_two_values_give_their_three_means_in_the_shares_of_the_worked_example() -> None:
    means = resampled_means(array([0, 1])[:, None], n_resamples=20_000)[:, 0]
    shares = [float((means == value).mean()) for value in (0, 0.5, 1)]
    assert shares == pytest.approx([0.25, 0.5, 0.25], abs=0.015)
    assert mean_interval(array([0, 1])).low == 0
    assert mean_interval(array([0, 1])).high == 1


def test_paired_difference_of_the_worked_example() -> None:
    found = paired_difference(array([0.9, 0.8, 0.7]), array([0.7, 0.8, 0.4]))
    assert found.mean == pytest.approx(0.5 / 3)
    assert (found.interval.low, found.interval.high) == pytest.approx((0.0, 0.3))


def test_intervals_equal_those_of_all_resamples() -> None:
    """Five values have 3,125 resamples, each as likely as any other; the quantiles of their means are the truth."""
    values = [0.0, 0.2, 0.3, 0.7, 1.0]
    every = array([float(np.mean(drawn)) for drawn in itertools.product(values, repeat=5)])
    truth, found = percentile_interval(every), mean_interval(array(values), n_resamples=40_000)
    assert (found.low, found.high) == pytest.approx((truth.low, truth.high), abs=0.021)  # means lie .02 apart there


def test_p_value_of_many_queries_is_near_that_of_students_t() -> None:
    """Student's two-sided p-values, 59 degrees of freedom: |t| = 1 gives .3214, |t| = 2 gives .0501."""
    noise = np.random.default_rng(3).normal(size=60)
    noise = (noise - noise.mean()) / noise.std(ddof=1)  # mean 0, standard error 1 / sqrt(60)
    for t, p_value in ((1.0, 0.3214), (2.0, 0.0501)):
        found = paired_difference(noise + t / np.sqrt(60), np.zeros(60))
        assert found.p_value == pytest.approx(p_value, abs=0.02)


def test_columns_share_their_resamples() -> None:
    first, second = np.random.default_rng(5).random((2, 30))
    together = resampled_means(np.column_stack([first, second, first - second]), n_resamples=N)
    np.testing.assert_allclose(together[:, 0] - together[:, 1], together[:, 2], atol=1e-12)
    alone = [resampled_means(each[:, None], n_resamples=N)[:, 0] for each in (first, second)]
    np.testing.assert_allclose(together[:, :2], np.column_stack(alone), atol=1e-12)


def test_more_resamples_than_fit_into_memory_at_once_are_as_many_and_not_the_same() -> None:
    values = np.random.default_rng(5).random((700_000, 1))
    means = resampled_means(values, n_resamples=3)[:, 0]
    assert means.shape == (3,)
    assert len(set(means)) == 3
    assert means == pytest.approx(values.mean(), abs=0.002)


@settings(max_examples=30)
@given(values_of)
def test_an_interval_lies_among_the_values_and_holds_their_mean(values: list[float]) -> None:
    found = mean_interval(array(values), n_resamples=N)
    assert min(values) - 1e-12 <= found.low <= found.high <= max(values) + 1e-12
    assert found.low - 1e-12 <= np.mean(values) <= found.high + 1e-12
    assert found.half_width == pytest.approx((found.high - found.low) / 2)


@settings(max_examples=30)
@given(st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from([0.0, 0.5, 1.0])), min_size=1, max_size=12))
def test_turning_a_comparison_round_changes_nothing_but_its_sign(pairs: list[tuple[float, float]]) -> None:
    first, second = (array([pair[side] for pair in pairs]) for side in (0, 1))
    found, turned = (paired_difference(*each, n_resamples=N) for each in ((first, second), (second, first)))
    assert turned.mean == -found.mean
    assert turned.p_value == found.p_value
    assert (turned.interval.low, turned.interval.high) == pytest.approx((-found.interval.high, -found.interval.low))
    assert 0 < found.p_value <= 1


def test_what_does_not_differ_or_is_alone_says_nothing() -> None:
    same = array([0.1, 0.7, 0.4])
    assert paired_difference(same, same).p_value == 1
    assert paired_difference(array([1.0]), array([0.0])).p_value == 1


def test_a_difference_that_is_the_same_everywhere_is_as_sure_as_can_be() -> None:
    found = paired_difference(np.full(20, 0.7), np.full(20, 0.4), n_resamples=N)
    assert found.p_value == pytest.approx(1 / (N + 1), rel=1e-6)
    assert (found.interval.low, found.interval.high) == pytest.approx((0.3, 0.3))


def test_the_same_seed_gives_the_same_and_another_seed_another_interval() -> None:
    values = np.random.default_rng(2).random(25)
    assert mean_interval(values, seed=4) == mean_interval(values, seed=4)
    assert mean_interval(values, seed=4) != mean_interval(values, seed=5)


def test_nothing_and_unequal_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="nothing to resample"):
        mean_interval(array([]))
    with pytest.raises(ValueError, match=r"shapes differ: \(1,\), \(2,\)"):
        paired_difference(array([1]), array([1, 2]))
