"""From raw scores to probabilities, and how far to trust them, as pure functions.

The relevance logit is `logit_weight * rerank_logit + dense_weight * cosine + bm25_weight * bm25_share + bias`, with
weights learned on labelled dev queries; a candidate's BM25 share is its BM25 score over the best candidate's, in
[0, 1]. It orders the reranked results, and its sigmoid is the probability that is shown. Passages that a caller sent
have no cosine and no share: theirs is `logit_weight * rerank_logit + bias`, of a second fit.

Sources: logistic regression on scores, Platt 1999; isotonic regression by pooling adjacent violators, Zadrozny and
Elkan 2002, section 3.3; expected calibration error, Naeini et al. 2015, section 3, and Guo et al. 2017, equation 3,
here over bins of equal mass, because most candidates of a query have a probability near 0. Every function that takes
weights counts each row that much, all alike when they are absent.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from models.folder import RelevanceCalibration

Floats: TypeAlias = NDArray[np.float64]
Labels: TypeAlias = NDArray[np.bool_]
Curve: TypeAlias = Callable[[Floats], Floats]  # (n,) scores to (n,) probabilities
Fit: TypeAlias = Callable[[Floats, Labels, Floats], Curve]  # (n,) scores, labels and weights to a curve

N_BINS = 10
N_FOLDS = 5


@dataclass(frozen=True, slots=True)
class RelevanceParts:
    """What each score of a candidate adds to its relevance logit."""

    rerank_logit: float
    dense: float
    bm25: float
    bias: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """The weights of the relevance logit; logit_weight is positive."""

    logit_weight: float = 1.0
    dense_weight: float = 0.0
    bm25_weight: float = 0.0
    bias: float = 0.0

    @classmethod
    def of(cls, settings: RelevanceCalibration | None) -> "Calibration":
        """Return the weights that a model folder holds, or those that leave the rerank logit as it is."""
        if settings is None:
            return cls()
        return cls(settings.logit_weight, settings.dense_weight, settings.bm25_weight, settings.bias)

    def priors(self, dense_scores: NDArray[np.float32], bm25_shares: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the (n,) relevance logits that candidates would have with a rerank logit of 0."""
        return self.relevance_logits(np.zeros(dense_scores.size, np.float32), dense_scores, bm25_shares)

    def relevance_logits(
        self,
        rerank_logits: NDArray[np.float32],
        dense_scores: NDArray[np.float32],
        bm25_shares: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """Return the (n,) relevance logits of candidates from their three (n,) scores."""
        return (
            self.logit_weight * rerank_logits.astype(np.float64)
            + self.dense_weight * dense_scores.astype(np.float64)
            + self.bm25_weight * bm25_shares
            + self.bias
        )

    def parts(self, rerank_logit: float, dense_score: float, bm25_share: float) -> RelevanceParts:
        """Return the summands of one candidate's relevance logit."""
        return RelevanceParts(
            self.logit_weight * rerank_logit, self.dense_weight * dense_score, self.bm25_weight * bm25_share, self.bias
        )

    def pair_logits(self, rerank_logits: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return the (n,) relevance logits of passages that have no other score than their rerank logit."""
        return self.logit_weight * rerank_logits.astype(np.float64) + self.bias


def sigmoid(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return 1 / (1 + exp(-x)) in float64 without overflow, for any finite or infinite x."""
    x = np.asarray(logits, np.float64)
    shrunk = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + shrunk), shrunk / (1 + shrunk))


def logit(probability: float) -> float:
    """Return the least logit whose `sigmoid` is a probability in [0, 1], but for rounding; -inf for 0."""
    if probability <= 0:
        return -math.inf
    below_one = min(probability, 1 - 2**-53)  # of greater logits too the sigmoid rounds to 1
    return math.log(below_one / (1 - below_one))


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


def platt(scores: Floats, labels: Labels, weights: Floats) -> Curve:
    """Return the sigmoid of a linear function of the score that fits the labels best."""
    scale, bias = fit_logistic(scores[:, None], labels, weights=weights)
    return lambda x: sigmoid(scale * x + bias)


def isotonic(scores: Floats, labels: Labels, weights: Floats) -> Curve:
    """Return the non-decreasing function that fits the labels best, linear between its knots and constant outside."""
    knots = isotonic_knots(scores, labels, weights)
    return lambda x: np.interp(x, knots[:, 0], knots[:, 1])


def isotonic_knots(scores: Floats, labels: Labels, weights: Floats) -> Floats:
    """Return the first and last score of each level with the level's share of true labels, scores ascending.

    Worked example: scores 1, 2, 3, 4 with labels 0, 1, 0, 1: the pair 2, 3 falls, so it is pooled to 1/2; the knots are
    (1, 0), (2, .5), (3, .5), (4, 1).

    Returns:
        (n_knots, 2) score and probability; a level of one score has one knot.
    """
    levels: list[tuple[float, float, float, float]] = []  # first score, last score, weight, share of true labels
    for score in np.unique(scores):
        own = scores == score
        weight = float(weights[own].sum())
        level = (float(score), float(score), weight, float(weights[own] @ labels[own]) / weight)
        while levels and levels[-1][3] >= level[3]:
            first, _, before, share = levels.pop()
            total = before + level[2]
            level = (first, level[1], total, (before * share + level[2] * level[3]) / total)
        levels.append(level)
    knots = [(at, share) for first, last, _, share in levels for at in dict.fromkeys((first, last))]
    return np.array(knots, np.float64).reshape(-1, 2)


def held_out(fit: Fit, scores: Floats, labels: Labels, *, groups: NDArray[np.int64], weights: Floats) -> Floats:
    """Return the (n,) probabilities of a curve that was fitted without the fold that each row lies in.

    Args:
        groups: (n,) whose row it is; rows of one group share a fold, number modulo N_FOLDS. At least two folds.
    """
    folds = groups % N_FOLDS
    probabilities = np.empty(scores.size)
    for fold in np.unique(folds):
        own = folds == fold
        probabilities[own] = fit(scores[~own], labels[~own], weights[~own])(scores[own])
    return probabilities


@dataclass(frozen=True, slots=True)
class ReliabilityBin:
    """Rows of like probability: their share of all weight, their mean probability, their share of true labels."""

    weight: float
    mean_probability: float
    share_true: float


def reliability_bins(
    probabilities: Floats, labels: Labels, n_bins: int, *, weights: Floats | None = None
) -> list[ReliabilityBin]:
    """Return at most n_bins bins of about equal weight, lowest probabilities first; together they weigh 1.

    A bin ends at the first row that reaches its quantile, and rows of one probability are never parted, so the order of
    the rows does not matter; with many equal probabilities there are fewer bins.

    Worked example, 2 bins: probabilities .1, .2, .8, .9 with labels 0, 1, 1, 1 give (.5, .15, .5) and (.5, .85, 1).
    """
    if probabilities.size == 0:
        return []
    order = np.argsort(probabilities, kind="stable")
    p, y = probabilities[order], labels[order].astype(np.float64)
    w = np.full(p.size, 1 / p.size) if weights is None else weights[order] / weights.sum()
    ends = np.flatnonzero(np.append(p[1:] > p[:-1], True)) + 1  # after each run of equal probabilities
    quantiles = np.arange(1, n_bins + 1) / n_bins - 1e-9  # rounding of the running sum must not open another bin
    cuts = np.unique(ends[np.searchsorted(np.cumsum(w)[ends - 1], quantiles)])
    bins = []
    for start, end in zip([0, *cuts[:-1]], cuts, strict=True):
        weight = float(w[start:end].sum())
        means = (float(w[start:end] @ values[start:end]) / weight for values in (p, y))
        bins.append(ReliabilityBin(weight, *means))
    return bins


def expected_calibration_error(
    probabilities: Floats, labels: Labels, *, n_bins: int = N_BINS, weights: Floats | None = None
) -> float:
    """Return the weighted mean over bins of |mean probability - share of true labels|, in [0, 1]; 0 for no rows.

    Few rows a bin make it too large: with n rows a bin, a perfect curve still shows about .4 / sqrt(n) at p = .5.

    Worked example, 2 bins: the bins of `reliability_bins` give .5 * |.15 - .5| + .5 * |.85 - 1| = .25.
    """
    bins = reliability_bins(probabilities, labels, n_bins, weights=weights)
    return sum(each.weight * abs(each.mean_probability - each.share_true) for each in bins)


def log_loss(probabilities: Floats, labels: Labels, *, weights: Floats | None = None) -> float:
    """Return the mean of -ln(probability of what is true); probabilities are kept 1e-6 away from 0 and 1.

    Worked example: .8 for a true and .5 for a false label: (-ln .8 - ln .5) / 2 = .458.
    """
    of_truth = np.clip(np.where(labels, probabilities, 1 - probabilities), 1e-6, 1 - 1e-6)
    return float(np.average(-np.log(of_truth), weights=weights))


@dataclass(frozen=True, slots=True)
class CurveQuality:
    """How good held-out probabilities are: expected calibration error and log loss, smaller is better."""

    calibration_error: float
    log_loss: float

    @classmethod
    def of(cls, probabilities: Floats, labels: Labels, weights: Floats) -> "CurveQuality":
        """Measure probabilities."""
        error = expected_calibration_error(probabilities, labels, weights=weights)
        return cls(error, log_loss(probabilities, labels, weights=weights))


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """What a threshold does: how many answers it gives, their share of the weight, and the share that is right."""

    threshold: float
    n_answered: int
    coverage: float
    precision: float


def operating_points(margins: Floats, is_right: Labels, *, weights: Floats) -> list[OperatingPoint]:
    """Return one point for each distinct finite margin, lowest threshold first; what reaches a threshold is answered.

    A threshold lies midway between its lowest answered margin and the next lower one.

    Worked example: margins 1, 2, 3, right no, yes, yes: thresholds 1, 1.5, 2.5 answer 3, 2, 1 with precision 2/3, 1, 1.
    """
    if margins.size == 0:
        return []
    order = np.argsort(-margins, kind="stable")
    sorted_margins = margins[order]
    answered = np.cumsum(weights[order])
    right = np.cumsum(weights[order] * is_right[order])
    lasts = np.flatnonzero(np.append(sorted_margins[1:] < sorted_margins[:-1], True))
    lasts = lasts[np.isfinite(sorted_margins[lasts])]
    lower = np.append(sorted_margins, -np.inf)[lasts + 1]
    midway = np.where(np.isfinite(lower), (sorted_margins[lasts] + lower) / 2, sorted_margins[lasts])
    return [
        OperatingPoint(float(threshold), int(i) + 1, float(answered[i] / answered[-1]), float(right[i] / answered[i]))
        for i, threshold in zip(lasts[::-1], midway[::-1], strict=True)
    ]
