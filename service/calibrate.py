"""Learn the weights of the relevance logit on judged dev queries.

The weights of cosine and BM25 share beside the rerank logit come from a grid, by how they rank; then a logistic
regression on the mix gives its scale and bias (Platt 1999). Fitting all weights by regression ranks worse, because it
explains differences between queries too. Candidates without a judgement count as not relevant, and each data set weighs
the same, whatever its size. The logit alone gets a regression of its own, for passages that were not retrieved. With
the mix goes how far unread candidates may lie above those read (`models.early_exit`). What is learned goes into the
cross-encoder's model.json (`tercet calibrate reranker`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from models.calibration import (
    N_BINS,
    CurveQuality,
    Floats,
    Labels,
    ReliabilityBin,
    fit_logistic,
    held_out,
    isotonic,
    platt,
    reliability_bins,
)
from models.early_exit import learn_deviations, needed_deviations, queries_needed
from models.errors import DataError
from models.evaluation import ndcg_at_k
from models.folder import EarlyExitCalibration, RelevanceCalibration
from service.engine import Engine
from service.evaluate import JudgedQuery
from service.pipeline import search
from service.queries import SearchQuery

_RERANK_K = 100
EXIT_K = 10
EXIT_CONFIDENCE = 0.99
DENSE_WEIGHTS = (0.0, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 60.0, 90.0, 120.0)
BM25_WEIGHTS = (0.0, 2.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0)

CHANCE = 1.96  # standard errors, which one difference in twenty exceeds where there is none

Mix = tuple[float, float, float]  # weights of rerank logit, cosine, BM25 share
LOGIT_ALONE: Mix = (1.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class ScoredCandidates:
    """Features (n, 3): rerank logit, cosine, BM25 share; labels (n,): judged relevant; queries (n,): whose it is."""

    features: Floats
    labels: Labels
    queries: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class MixChoice:
    """The chosen mix and its mean nDCG@10, those of the best and of the logit alone.

    standard_error is that of the difference between the chosen and the best.
    """

    mix: Mix
    ndcg: float
    best_ndcg: float
    logit_ndcg: float
    standard_error: float


@dataclass(frozen=True, slots=True)
class CurveFit:
    """A learned curve, and how good it and isotonic regression in its place are on queries that were held out."""

    calibration: RelevanceCalibration
    platt: CurveQuality
    isotonic: CurveQuality
    reliability: list[ReliabilityBin]


@dataclass(frozen=True, slots=True)
class RelevanceFit:
    """What was learned: the chosen mix with its curve, and that of the logit alone, None where it tells nothing.

    early_exit is None where there are too few queries to learn it from.
    """

    choice: MixChoice
    mix: CurveFit
    pair: CurveFit | None
    early_exit: EarlyExitCalibration | None
    n_queries: int
    n_candidates: int
    n_relevant: int


def choose_mix(collections: Sequence[ScoredCandidates]) -> MixChoice:
    """Return the mix to use.

    Of the mixes whose mean nDCG@10 is less than the best by no more than chance makes it (1.96 standard errors of that
    difference, on paired queries), it is the one that weighs BM25 most, and of those the best: on text unlike the dev
    collections, retrieval is the safer judge.
    """
    mixes = [(1.0, dense, bm25) for dense in DENSE_WEIGHTS for bm25 in BM25_WEIGHTS]
    measured = {mix: [np.array(ndcg_of_queries(each, mix)) for each in collections] for mix in mixes}
    means = {mix: fmean(found.mean() for found in by_collection) for mix, by_collection in measured.items()}
    leader = max(mixes, key=lambda mix: means[mix])
    errors = {mix: _error_of_difference(measured[mix], measured[leader]) for mix in mixes}
    near = [mix for mix in mixes if means[leader] - means[mix] <= CHANCE * errors[mix]]
    chosen = max(near, key=lambda mix: (mix[2], means[mix]))
    return MixChoice(chosen, means[chosen], means[leader], means[LOGIT_ALONE], errors[chosen])


def _error_of_difference(one: Sequence[Floats], other: Sequence[Floats]) -> float:
    """Return the standard error of the difference between two means over collections of the means over queries."""
    variances = [np.var(mine - theirs) / mine.size for mine, theirs in zip(one, other, strict=True)]
    return float(sum(variances) ** 0.5 / len(variances))


def fit_relevance(collections: Sequence[ScoredCandidates], *, origin: str) -> RelevanceFit:
    """Return the chosen mix and the logit alone, each scaled so that its sigmoid is a probability.

    Raises:
        DataError: there are fewer than two queries, only one kind of label, or the mix does not tell relevant
            candidates from others.
    """
    choice = choose_mix(_usable(collections, origin))
    pooled = _pool(collections)
    mix = _fit_curve(pooled, choice.mix, origin)
    if mix is None:
        raise DataError(f"on {origin}, candidates of a greater score are not relevant more often; nothing was learned")
    return RelevanceFit(
        choice,
        mix,
        pair=_fit_curve(pooled, LOGIT_ALONE, origin),
        early_exit=fit_early_exit(collections, choice.mix, origin=origin),
        n_queries=int(pooled.owners.max()) + 1,
        n_candidates=pooled.labels.size,
        n_relevant=int(pooled.labels.sum()),
    )


def fit_early_exit(collections: Sequence[ScoredCandidates], mix: Mix, *, origin: str) -> EarlyExitCalibration | None:
    """Return how many deviations keep the best EXIT_K of a query, None if there are too few queries to tell."""
    weight, *rest = mix
    needed: list[float] = []
    for each in collections:
        priors, logits = each.features[:, 1:] @ np.array(rest), each.features[:, 0]
        for query in np.unique(each.queries):
            own = np.flatnonzero(each.queries == query)
            order = own[np.argsort(-priors[own], kind="stable")]
            needed.append(needed_deviations(priors[order], logits[order], logit_weight=weight, k=EXIT_K))
    if len(needed) < queries_needed(EXIT_CONFIDENCE):
        return None
    return EarlyExitCalibration(
        deviations=max(0.0, learn_deviations(needed, confidence=EXIT_CONFIDENCE)),
        confidence=EXIT_CONFIDENCE,
        k=EXIT_K,
        origin=origin,
        n_queries=len(needed),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Pooled:
    """The candidates of all collections; weights (n,) are 1 in the mean, owners (n,) number the queries from 0."""

    features: Floats
    labels: Labels
    weights: Floats
    owners: NDArray[np.int64]


def _pool(collections: Sequence[ScoredCandidates]) -> _Pooled:
    labels = np.concatenate([each.labels for each in collections])
    shares = np.concatenate([np.full(each.labels.size, 1 / each.labels.size) for each in collections])
    features = np.concatenate([each.features for each in collections])
    return _Pooled(features, labels, shares * labels.size / len(collections), _owners(collections))


def _fit_curve(pooled: _Pooled, mix: Mix, origin: str) -> CurveFit | None:
    """Return the curve of a mix, None if candidates of a greater score are not relevant more often."""
    scores, labels, weights = pooled.features @ np.array(mix), pooled.labels, pooled.weights
    scale, bias = (float(value) for value in fit_logistic(scores[:, None], labels, weights=weights))
    if not scale > 0:
        return None
    by_platt, by_isotonic = (
        held_out(fit, scores, labels, groups=pooled.owners, weights=weights) for fit in (platt, isotonic)
    )
    quality = CurveQuality.of(by_platt, labels, weights)
    logit, dense, bm25 = (scale * weight for weight in mix)
    return CurveFit(
        RelevanceCalibration(
            logit_weight=logit,
            dense_weight=dense,
            bm25_weight=bm25,
            bias=bias,
            origin=origin,
            n_examples=labels.size,
            calibration_error=round(quality.calibration_error, 4),
        ),
        platt=quality,
        isotonic=CurveQuality.of(by_isotonic, labels, weights),
        reliability=reliability_bins(by_platt, labels, N_BINS, weights=weights),
    )


def _usable(collections: Sequence[ScoredCandidates], origin: str) -> Sequence[ScoredCandidates]:
    n_queries = sum(np.unique(each.queries).size for each in collections)
    if n_queries < 2 or not all(each.labels.size for each in collections):
        raise DataError(f"{origin} has too few judged queries with candidates to learn from: {n_queries}")
    n_relevant, n = sum(int(each.labels.sum()) for each in collections), sum(each.labels.size for each in collections)
    if n_relevant in (0, n):
        kind = "no" if n_relevant == 0 else "every"
        raise DataError(f"on {origin}, {kind} candidate is judged relevant, so there is nothing to learn")
    return collections


def _owners(collections: Sequence[ScoredCandidates]) -> NDArray[np.int64]:
    """Return whose candidate each row is, numbered through all collections."""
    owners: list[NDArray[np.int64]] = []
    first = 0
    for each in collections:
        _, numbers = np.unique(each.queries, return_inverse=True)
        owners.append(numbers.astype(np.int64) + first)
        first = int(owners[-1].max()) + 1
    return np.concatenate(owners)


def ndcg_of_queries(collection: ScoredCandidates, mix: Mix) -> list[float]:
    """Return the nDCG@10 of each query's candidates, ordered by the weighted sum of their features."""
    scores = collection.features @ np.array(mix)
    found = []
    for query in np.unique(collection.queries):
        own = np.flatnonzero(collection.queries == query)
        ranking = [str(i) for i in own[np.argsort(-scores[own], kind="stable")]]
        found.append(ndcg_at_k(ranking, {str(i): int(collection.labels[i]) for i in own}, 10))
    return found


async def scored_candidates(
    engine: Engine, queries: Sequence[JudgedQuery], on_done: Callable[[int], None] = lambda n: None
) -> ScoredCandidates:
    """Return every query's reranked candidates, judged by their document; on_done learns how many queries are done."""
    features, labels, owners = [], [], []
    for number, query in enumerate(queries):
        asked = SearchQuery(query.query, top_k=_RERANK_K, rerank_k=_RERANK_K, settle_k=0, highlight=False)
        outcome = await search(engine, asked)
        for result in outcome.results:
            scores = result.scores
            if scores.rerank_logit is None or scores.dense is None or scores.bm25_share is None:
                continue
            features.append((scores.rerank_logit, scores.dense, scores.bm25_share))
            labels.append(query.judgements.get(result.passage.document_id, 0) > 0)
            owners.append(number)
        on_done(number + 1)
    return ScoredCandidates(
        np.array(features, np.float64).reshape(-1, 3), np.array(labels, np.bool_), np.array(owners, np.int64)
    )
