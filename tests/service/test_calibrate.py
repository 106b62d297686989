"""The learned mix ranks by what tells candidates apart and shows a probability."""

import numpy as np
import pytest

from models.calibration import Calibration, fit_logistic, sigmoid
from models.early_exit import queries_needed
from models.errors import DataError
from service.calibrate import (
    BM25_WEIGHTS,
    CHANCE,
    EXIT_CONFIDENCE,
    EXIT_K,
    ScoredCandidates,
    choose_mix,
    fit_early_exit,
    fit_relevance,
    ndcg_of_queries,
)


def made_candidates(*, by_dense: bool) -> ScoredCandidates:
    generator = np.random.default_rng(2)
    n_queries, n = 40, 20
    labels = np.tile(np.arange(n) < 2, n_queries)
    noise = generator.normal(size=(labels.size, 3)) * [1.0, 0.1, 0.005]
    signal = np.zeros((labels.size, 3))
    signal[:, 1 if by_dense else 0] = labels * (0.5 if by_dense else 4.0)
    return ScoredCandidates(signal + noise, labels, np.repeat(np.arange(n_queries), n))


def with_labels(candidates: ScoredCandidates, labels: object) -> ScoredCandidates:
    return ScoredCandidates(candidates.features, np.full(candidates.labels.size, labels, np.bool_), candidates.queries)


def test_ndcg_of_a_mix_worked_example() -> None:
    features = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    candidates = ScoredCandidates(features, np.array([True, False]), np.array([0, 0]))
    assert ndcg_of_queries(candidates, (1.0, 0.0, 0.0)) == [pytest.approx(1 / np.log2(3))]
    assert ndcg_of_queries(candidates, (1.0, 5.0, 0.0)) == [1.0]


def test_the_mix_leans_on_the_score_that_tells_candidates_apart() -> None:
    by_dense = fit_relevance([made_candidates(by_dense=True)], origin="made").mix.calibration
    by_logit = fit_relevance([made_candidates(by_dense=False)], origin="made").mix.calibration
    assert by_dense.dense_weight / by_dense.logit_weight > by_logit.dense_weight / by_logit.logit_weight


def test_the_chosen_mix_is_no_worse_than_chance_makes_it() -> None:
    choice = choose_mix([made_candidates(by_dense=True), made_candidates(by_dense=False)])
    assert choice.best_ndcg - CHANCE * choice.standard_error <= choice.ndcg <= choice.best_ndcg
    assert choice.logit_ndcg <= choice.best_ndcg


def test_of_mixes_that_rank_alike_the_one_that_weighs_bm25_most_is_chosen() -> None:
    """Any weight of a BM25 share that tells all candidates apart is as good, however unsure their common mean is."""
    candidates = made_candidates(by_dense=False)
    features = np.column_stack([np.zeros((candidates.labels.size, 2)), candidates.labels])
    features[:20, 2], features[:2, 0] = 0, -1  # but of one query, which none orders well
    choice = choose_mix([ScoredCandidates(features, candidates.labels, candidates.queries)])
    assert (choice.mix[2], choice.standard_error) == (max(BM25_WEIGHTS), 0.0)
    assert choice.ndcg == choice.best_ndcg < 1


def test_relevance_is_right_on_average_and_its_error_is_stored() -> None:
    candidates = made_candidates(by_dense=False)
    fit = fit_relevance([candidates], origin="made")
    fitted = fit.mix.calibration
    weights = np.array([fitted.logit_weight, fitted.dense_weight, fitted.bm25_weight])
    relevance = sigmoid(candidates.features @ weights + fitted.bias)
    assert relevance.mean() == pytest.approx(candidates.labels.mean(), abs=0.01)
    assert (fit.n_queries, fit.n_candidates, fit.n_relevant, fitted.n_examples) == (40, 800, 80, 800)
    assert fitted.calibration_error == pytest.approx(fit.mix.platt.calibration_error, abs=1e-4)
    assert fit.mix.platt.calibration_error < 0.05
    assert sum(each.weight for each in fit.mix.reliability) == pytest.approx(1)


def test_the_logit_alone_has_a_curve_of_its_own() -> None:
    candidates = made_candidates(by_dense=False)
    fit = fit_relevance([candidates], origin="made")
    assert fit.pair is not None
    fitted = fit.pair.calibration
    assert (fitted.dense_weight, fitted.bm25_weight, fitted.n_examples, fitted.origin) == (0.0, 0.0, 800, "made")
    scale, bias = fit_logistic(candidates.features[:, :1], candidates.labels)
    assert (fitted.logit_weight, fitted.bias) == pytest.approx((scale, bias))
    relevance = sigmoid(Calibration.of(fitted).pair_logits(candidates.features[:, 0].astype(np.float32)))
    assert relevance.mean() == pytest.approx(0.1, abs=0.001)
    assert fitted.calibration_error == pytest.approx(fit.pair.platt.calibration_error, abs=1e-4)
    assert fit.pair.platt.calibration_error < 0.05


def test_a_logit_that_tells_nothing_gets_no_curve_while_the_mix_has_one() -> None:
    candidates = made_candidates(by_dense=True)
    features = candidates.features.copy()
    features[:, 0] = -0.1 * candidates.labels
    fit = fit_relevance([ScoredCandidates(features, candidates.labels, candidates.queries)], origin="made")
    assert fit.pair is None
    assert fit.mix.calibration.dense_weight > 0


def test_each_collection_weighs_the_same_whatever_its_size() -> None:
    """One collection has 2 in 20 relevant, a tenfold copy of it none: the mean probability is 1/20, not 1/110."""
    one = made_candidates(by_dense=False)
    none = with_labels(one, False)
    tenfold = ScoredCandidates(
        np.tile(none.features, (10, 1)), np.tile(none.labels, 10), np.arange(one.labels.size * 10) // 20
    )
    fitted = fit_relevance([one, tenfold], origin="made").mix.calibration
    weights = np.array([fitted.logit_weight, fitted.dense_weight, fitted.bm25_weight])
    means = [sigmoid(each.features @ weights + fitted.bias).mean() for each in (one, tenfold)]
    assert np.mean(means) == pytest.approx(0.05, abs=0.002)


def test_data_that_teaches_nothing_is_refused() -> None:
    candidates = made_candidates(by_dense=False)
    one_query = ScoredCandidates(candidates.features[:20], candidates.labels[:20], candidates.queries[:20])
    nothing = ScoredCandidates(np.empty((0, 3)), np.empty(0, np.bool_), np.empty(0, np.int64))
    misleading = ScoredCandidates(
        -np.abs(candidates.features) * candidates.labels[:, None], candidates.labels, candidates.queries
    )
    for collections, reason in (
        ([one_query], "too few judged queries"),
        ([candidates, nothing], "too few judged queries"),
        ([with_labels(candidates, False)], "no candidate is judged relevant"),
        ([with_labels(candidates, True)], "every candidate is judged relevant"),
        ([misleading], "not relevant more often"),
    ):
        with pytest.raises(DataError, match=reason):
            fit_relevance(collections, origin="made")


def late_winners(n_queries: int, *, gain: float) -> ScoredCandidates:
    """Return queries of 30 candidates; of the last query the one with the least prior wins, by a logit of gain."""
    priors = np.tile(np.linspace(0.9, 0.1, 30), n_queries)
    logits = np.tile(np.array([-1.0, 1.0] * 15), n_queries)
    logits[-1] = gain
    features = np.column_stack([logits, priors, np.zeros(priors.size)])
    return ScoredCandidates(features, np.zeros(priors.size, np.bool_), np.repeat(np.arange(n_queries), 30))


def test_the_early_exit_is_learned_from_enough_queries_only() -> None:
    n = queries_needed(EXIT_CONFIDENCE)
    assert fit_early_exit([late_winners(n - 1, gain=30)], (1.0, 20.0, 0.0), origin="made") is None
    learned = fit_early_exit([late_winners(n, gain=30)], (1.0, 20.0, 0.0), origin="made")
    assert learned is not None
    assert (learned.k, learned.confidence, learned.n_queries, learned.origin) == (EXIT_K, EXIT_CONFIDENCE, n, "made")
    assert learned.deviations > 1


def test_one_query_in_many_does_not_move_the_early_exit() -> None:
    usual = fit_early_exit([late_winners(200, gain=0)], (1.0, 20.0, 0.0), origin="made")
    odd = fit_early_exit([late_winners(200, gain=30)], (1.0, 20.0, 0.0), origin="made")
    assert usual == odd
