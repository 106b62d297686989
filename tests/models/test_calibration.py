"""Sigmoid, the relevance logit, the fits, and what says how good they are."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from models.calibration import (
    Calibration,
    CurveQuality,
    ReliabilityBin,
    expected_calibration_error,
    fit_logistic,
    held_out,
    isotonic,
    isotonic_knots,
    log_loss,
    logit,
    operating_points,
    platt,
    reliability_bins,
    sigmoid,
)
from models.folder import RelevanceCalibration

rows = st.lists(st.tuples(st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9, 1.0]), st.booleans()), min_size=1, max_size=40)


def columns(of: list[tuple[float, bool]]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    return np.array([p for p, _ in of], np.float64), np.array([y for _, y in of], np.bool_)


def made_scores(
    n: int = 20_000, *, scale: float = 1.5, bias: float = -1.0
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    generator = np.random.default_rng(5)
    scores = generator.normal(size=n) * 2
    return scores, generator.random(n) < sigmoid(scale * scores + bias)


def test_sigmoid_is_exact_at_the_ends_and_symmetric() -> None:
    x = np.array([-np.inf, -1000.0, -1.0, 0.0, 1.0, 1000.0, np.inf])
    values = sigmoid(x)
    assert values.tolist() == [0.0, 0.0, pytest.approx(0.26894142), 0.5, pytest.approx(0.73105858), 1.0, 1.0]
    np.testing.assert_allclose(values + values[::-1], 1.0)


def test_relevance_logit_worked_example() -> None:
    calibration = Calibration.of(
        RelevanceCalibration(logit_weight=2.0, dense_weight=4.0, bm25_weight=10.0, bias=-1.0, origin="test")
    )
    logits = calibration.relevance_logits(np.array([1.0], np.float32), np.array([0.5], np.float32), np.array([0.03]))
    assert logits.tolist() == [pytest.approx(2.0 + 2.0 + 0.3 - 1.0)]


def test_without_calibration_the_logit_stays_as_it_is() -> None:
    logits = Calibration.of(None).relevance_logits(
        np.array([1.5], np.float32), np.array([9.0], np.float32), np.array([9.0])
    )
    assert logits.tolist() == [1.5]


def test_fit_recovers_the_weights_that_made_the_labels() -> None:
    generator = np.random.default_rng(3)
    features = generator.normal(size=(20_000, 2))
    labels = generator.random(20_000) < sigmoid(features @ np.array([1.5, -0.5]) + 0.25)
    np.testing.assert_allclose(fit_logistic(features, labels), [1.5, -0.5, 0.25], atol=0.07)


def test_fit_of_one_class_or_separable_labels_stays_finite() -> None:
    features = np.arange(6.0)[:, None]
    assert np.isfinite(fit_logistic(features, np.ones(6, bool))).all()
    assert np.isfinite(fit_logistic(features, features[:, 0] > 2)).all()


def test_isotonic_knots_worked_example() -> None:
    """The pair (2: true, 3: false) falls, so both become 1/2; 1 and 4 keep their own labels."""
    knots = isotonic_knots(np.array([3.0, 1.0, 4.0, 2.0]), np.array([False, False, True, True]), np.ones(4))
    assert knots.tolist() == [[1, 0], [2, 0.5], [3, 0.5], [4, 1]]


@given(st.lists(st.tuples(st.integers(0, 6), st.booleans(), st.integers(1, 3)), min_size=1, max_size=12))
def test_isotonic_levels_equal_the_max_min_formula(of: list[tuple[int, bool, int]]) -> None:
    """Reference: level(i) = max over j <= i of min over k >= i of the mean of labels j to k (Barlow et al. 1972)."""
    scores, labels, weights = (np.array([row[i] for row in of], np.float64) for i in range(3))
    distinct = np.unique(scores)
    weight = np.array([weights[scores == score].sum() for score in distinct])
    total = np.array([(weights * labels)[scores == score].sum() for score in distinct])

    def mean(j: int, k: int) -> float:
        return float(total[j : k + 1].sum() / weight[j : k + 1].sum())

    n = distinct.size
    expected = [max(min(mean(j, k) for k in range(i, n)) for j in range(i + 1)) for i in range(n)]
    found = isotonic(scores, labels.astype(bool), weights)(distinct)
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_held_out_rows_never_teach_their_own_curve() -> None:
    """Each of five groups has its own label; a curve that had seen its group would say so."""
    groups = np.repeat(np.arange(5), 4)
    labels = groups == 2

    def memory(scores: NDArray[np.float64], labels: NDArray[np.bool_], weights: NDArray[np.float64]) -> object:
        seen = float(np.average(labels, weights=weights))
        return lambda x: np.full(x.size, seen)

    found = held_out(memory, np.zeros(20), labels, groups=groups, weights=np.ones(20))  # type: ignore[arg-type]  # a Fit in all but name
    assert found[groups == 2].tolist() == [0.0] * 4
    assert found[groups != 2].tolist() == [0.25] * 16


def test_platt_beats_isotonic_where_the_truth_is_a_sigmoid_and_loses_where_it_is_a_step() -> None:
    scores, labels = made_scores(2_000)
    steps = np.random.default_rng(1).random(2_000) < np.where(scores > 2, 0.9, 0.1)
    weights, groups = np.ones(2_000), np.arange(2_000)

    def quality(truth: NDArray[np.bool_]) -> list[CurveQuality]:
        found = (held_out(fit, scores, truth, groups=groups, weights=weights) for fit in (platt, isotonic))
        return [CurveQuality.of(each, truth, weights) for each in found]

    by_platt, by_isotonic = quality(labels)
    assert by_platt.log_loss < by_isotonic.log_loss
    by_platt, by_isotonic = quality(steps)
    assert by_isotonic.log_loss < by_platt.log_loss
    assert by_isotonic.calibration_error < by_platt.calibration_error


def test_reliability_bins_and_their_error_worked_example() -> None:
    """Two bins of two: means .15 and .85, true 1/2 and 1; the error is .5 * .35 + .5 * .15 = .25."""
    probabilities, labels = np.array([0.9, 0.1, 0.8, 0.2]), np.array([True, False, True, True])
    bins = reliability_bins(probabilities, labels, 2)
    assert [vars_of(each) for each in bins] == [pytest.approx([0.5, 0.15, 0.5]), pytest.approx([0.5, 0.85, 1.0])]
    assert expected_calibration_error(probabilities, labels, n_bins=2) == pytest.approx(0.25)


def test_weights_count_as_that_many_rows() -> None:
    probabilities, labels = np.array([0.1, 0.4, 0.7]), np.array([False, True, True])
    times = [3, 1, 2]
    whole = reliability_bins(np.repeat(probabilities, times), np.repeat(labels, times), 2)
    weighted = reliability_bins(probabilities, labels, 2, weights=np.array(times, np.float64))
    assert [vars_of(each) for each in weighted] == [pytest.approx(vars_of(each)) for each in whole]
    assert log_loss(probabilities, labels, weights=np.array(times, np.float64)) == pytest.approx(
        log_loss(np.repeat(probabilities, times), np.repeat(labels, times))
    )


def vars_of(bin_: ReliabilityBin) -> list[float]:
    return [bin_.weight, bin_.mean_probability, bin_.share_true]


@given(rows, st.integers(1, 12), st.randoms())
def test_bins_part_the_rows_whatever_their_order(of: list[tuple[float, bool]], n_bins: int, random: object) -> None:
    """Reference: walk the sorted distinct probabilities and close a bin when it reaches its quantile."""
    probabilities, labels = columns(of)
    bins = reliability_bins(probabilities, labels, n_bins)
    expected: list[list[int]] = []
    waiting: list[int] = []
    seen, quantile = 0, 1
    for value in np.unique(probabilities):
        own = [i for i in range(len(of)) if probabilities[i] == value]
        waiting, seen = waiting + own, seen + len(own)
        if seen * n_bins >= quantile * len(of):
            expected.append(waiting)
            waiting, quantile = [], int(seen * n_bins // len(of)) + 1
    assert [vars_of(each) for each in bins] == [
        pytest.approx([len(own) / len(of), probabilities[own].mean(), labels[own].mean()]) for own in expected
    ]
    shuffled = of[:]
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis gives a random.Random
    again = reliability_bins(*columns(shuffled), n_bins)
    assert [vars_of(each) for each in again] == [pytest.approx(vars_of(each)) for each in bins]


@given(rows)
def test_calibration_error_stays_between_the_gap_of_the_means_and_one(of: list[tuple[float, bool]]) -> None:
    probabilities, labels = columns(of)
    gap = abs(float(probabilities.mean() - labels.mean()))
    assert expected_calibration_error(probabilities, labels, n_bins=1) == pytest.approx(gap)
    assert gap - 1e-9 <= expected_calibration_error(probabilities, labels) <= 1 + 1e-9


def test_a_right_curve_has_little_error_and_a_sharpened_one_more() -> None:
    scores, labels = made_scores()
    right = expected_calibration_error(sigmoid(1.5 * scores - 1.0), labels)
    sharpened = expected_calibration_error(sigmoid(3.0 * scores - 2.0), labels)
    assert right < 0.01 < 0.05 < sharpened


def test_no_rows_have_no_bins_and_no_error() -> None:
    nothing = np.empty(0), np.empty(0, np.bool_)
    assert reliability_bins(*nothing, 10) == []
    assert expected_calibration_error(*nothing) == 0


def test_log_loss_worked_example_and_certainty_that_is_wrong() -> None:
    assert log_loss(np.array([0.8, 0.5]), np.array([True, False])) == pytest.approx(0.458145, abs=1e-6)
    assert log_loss(np.array([1.0]), np.array([False])) == pytest.approx(-np.log(1e-6))


def test_operating_points_worked_example() -> None:
    """Margins 1, 2, 3, right no, yes, yes: all three 2/3 right, the two above 1.5 and the one above 2.5 all right."""
    points = operating_points(np.array([2.0, 3.0, 1.0]), np.array([True, True, False]), weights=np.ones(3))
    assert [(p.threshold, p.n_answered) for p in points] == [(1.0, 3), (1.5, 2), (2.5, 1)]
    assert [p.coverage for p in points] == pytest.approx([1, 2 / 3, 1 / 3])
    assert [p.precision for p in points] == pytest.approx([2 / 3, 1, 1])


@given(st.lists(st.tuples(st.sampled_from([-np.inf, -1.0, 0.0, 2.0]), st.booleans(), st.integers(1, 3)), max_size=15))
def test_operating_points_equal_a_count_of_what_reaches_each_threshold(of: list[tuple[float, bool, int]]) -> None:
    margins, right, weights = (np.array([row[i] for row in of], np.float64) for i in range(3))
    points = operating_points(margins, right.astype(bool), weights=weights)
    assert len(points) == np.unique(margins[np.isfinite(margins)]).size
    assert [p.threshold for p in points] == sorted(p.threshold for p in points)
    for point in points:
        answered = margins >= point.threshold
        assert point.n_answered == answered.sum()
        assert point.coverage == pytest.approx(weights[answered].sum() / weights.sum())
        assert point.precision == pytest.approx((weights * right)[answered].sum() / weights[answered].sum())


@pytest.mark.parametrize("probability", [1e-300, 0.001, 0.5, 0.8, 1 - 1e-12, 1.0])
def test_the_logit_undoes_the_sigmoid(probability: float) -> None:
    assert sigmoid(np.array([logit(probability)]))[0] == pytest.approx(probability, rel=1e-9)


def test_the_logit_of_nothing_is_below_all() -> None:
    assert logit(0) == -math.inf
