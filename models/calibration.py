"""From raw scores to a calibrated relevance: logistic regression on scores (Platt 1999), as pure functions.

The relevance logit is `logit_weight * rerank_logit + dense_weight * cosine + rrf_weight * rrf + bias`, with weights
learned on labelled dev queries. It orders the reranked results, and its sigmoid is the probability that is shown.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.folder import RelevanceCalibration


@dataclass(frozen=True, slots=True)
class Calibration:
    """The weights of the relevance logit; logit_weight is positive."""

    logit_weight: float = 1.0
    dense_weight: float = 0.0
    rrf_weight: float = 0.0
    bias: float = 0.0

    @classmethod
    def of(cls, settings: RelevanceCalibration | None) -> "Calibration":
        """Return the weights that a model folder holds, or those that leave the rerank logit as it is."""
        if settings is None:
            return cls()
        return cls(settings.logit_weight, settings.dense_weight, settings.rrf_weight, settings.bias)

    def relevance_logits(
        self,
        rerank_logits: NDArray[np.float32],
        dense_scores: NDArray[np.float32],
        rrf_scores: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """Return the (n,) relevance logits of candidates from their three (n,) scores."""
        return (
            self.logit_weight * rerank_logits.astype(np.float64)
            + self.dense_weight * dense_scores.astype(np.float64)
            + self.rrf_weight * rrf_scores
            + self.bias
        )


def sigmoid(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return 1 / (1 + exp(-x)) in float64 without overflow, for any finite or infinite x."""
    x = np.asarray(logits, np.float64)
    shrunk = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + shrunk), shrunk / (1 + shrunk))


def fit_logistic(
    features: NDArray[np.float64], labels: NDArray[np.bool_], *, weights: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Return the coefficients, bias last, that maximise the likelihood of labels (Newton's method, ridge 1e-6).

    Args:
        features: (n, n_features).
        labels: (n,).
        weights: (n,) how much each row counts; all alike when absent.

    Returns:
        (n_features + 1,) coefficients.
    """
    x = np.column_stack([features, np.ones(len(features))])
    row_weights = np.ones(len(x)) if weights is None else weights
    ridge = 1e-6 * row_weights.sum() * np.eye(x.shape[1])
    coefficients = np.zeros(x.shape[1])
    for _ in range(50):
        probability = sigmoid(x @ coefficients)
        gradient = x.T @ (row_weights * (labels - probability)) - ridge @ coefficients
        curvature = (x * (row_weights * probability * (1 - probability))[:, None]).T @ x + ridge
        step = np.linalg.solve(curvature, gradient)
        coefficients += step
        if np.abs(step).max() < 1e-9:
            break
    return coefficients
