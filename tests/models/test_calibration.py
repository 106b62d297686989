"""Sigmoid, the relevance logit and the logistic fit."""

import numpy as np
import pytest

from models.calibration import Calibration, fit_logistic, sigmoid
from models.folder import RelevanceCalibration


def test_sigmoid_is_exact_at_the_ends_and_symmetric() -> None:
    x = np.array([-np.inf, -1000.0, -1.0, 0.0, 1.0, 1000.0, np.inf])
    values = sigmoid(x)
    assert values.tolist() == [0.0, 0.0, pytest.approx(0.26894142), 0.5, pytest.approx(0.73105858), 1.0, 1.0]
    np.testing.assert_allclose(values + values[::-1], 1.0)


def test_relevance_logit_worked_example() -> None:
    calibration = Calibration.of(
        RelevanceCalibration(logit_weight=2.0, dense_weight=4.0, rrf_weight=10.0, bias=-1.0, origin="test")
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
