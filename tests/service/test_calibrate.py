"""The learned mix ranks by what tells candidates apart and shows a probability."""

import numpy as np
import pytest

from models.calibration import sigmoid
from service.calibrate import ScoredCandidates, fit_relevance, ndcg_of_queries


def made_candidates(*, by_dense: bool) -> ScoredCandidates:
    generator = np.random.default_rng(2)
    n_queries, n = 40, 20
    labels = np.tile(np.arange(n) < 2, n_queries)
    noise = generator.normal(size=(labels.size, 3)) * [1.0, 0.1, 0.005]
    signal = np.zeros((labels.size, 3))
    signal[:, 1 if by_dense else 0] = labels * (0.5 if by_dense else 4.0)
    return ScoredCandidates(signal + noise, labels, np.repeat(np.arange(n_queries), n))


def test_ndcg_of_a_mix_worked_example() -> None:
    features = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    candidates = ScoredCandidates(features, np.array([True, False]), np.array([0, 0]))
    assert ndcg_of_queries(candidates, (1.0, 0.0, 0.0)) == [pytest.approx(1 / np.log2(3))]
    assert ndcg_of_queries(candidates, (1.0, 5.0, 0.0)) == [1.0]


def test_the_mix_leans_on_the_score_that_tells_candidates_apart() -> None:
    by_dense = fit_relevance([made_candidates(by_dense=True)], origin="made")
    by_logit = fit_relevance([made_candidates(by_dense=False)], origin="made")
    assert by_dense.dense_weight / by_dense.logit_weight > by_logit.dense_weight / by_logit.logit_weight


def test_relevance_is_right_on_average() -> None:
    candidates = made_candidates(by_dense=False)
    fitted = fit_relevance([candidates], origin="made")
    weights = np.array([fitted.logit_weight, fitted.dense_weight, fitted.rrf_weight])
    relevance = sigmoid(candidates.features @ weights + fitted.bias)
    assert relevance.mean() == pytest.approx(candidates.labels.mean(), abs=0.01)
