"""Learn the weights of the relevance logit on judged dev queries: `python -m service.calibrate --dataset DIR[:SPLIT]`.

The weights of cosine and fused score beside the rerank logit come from a grid, by how they rank; then a logistic
regression on the mix gives its scale and bias (Platt 1999). Fitting all weights by regression ranks worse, because it
explains differences between queries too. Candidates without a judgement count as not relevant, and each data set weighs
the same, whatever its size. What is learned goes into the cross-encoder's model.json.
"""

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from models.calibration import fit_logistic
from models.evaluation import ndcg_at_k
from models.folder import RelevanceCalibration, open_model_folder, write_settings
from service.commands.evaluate import indexed_dataset
from service.engine import Engine, open_engine
from service.evaluate import JudgedQuery, read_judged_queries
from service.pipeline import SearchQuery, search
from service.settings import load_settings

_RERANK_K = 100
DENSE_WEIGHTS = (0.0, 5.0, 10.0, 15.0, 20.0)
RRF_WEIGHTS = (0.0, 60.0, 120.0, 265.0)


@dataclass(frozen=True, slots=True, eq=False)
class ScoredCandidates:
    """Features (n, 3): rerank logit, cosine, fused score; labels (n,): judged relevant; queries (n,): whose it is."""

    features: NDArray[np.float64]
    labels: NDArray[np.bool_]
    queries: NDArray[np.int64]


def fit_relevance(collections: Sequence[ScoredCandidates], *, origin: str) -> RelevanceCalibration:
    """Return the chosen mix, scaled so that its sigmoid is a probability.

    Of the mixes whose mean nDCG@10 lies within one standard error of the best (Breiman et al. 1984, section 3.4.3), it
    is the one that weighs the fused score most, and of those the best: on text unlike the dev collections, retrieval is
    the safer judge.
    """
    mixes = [(1.0, dense, rrf) for dense in DENSE_WEIGHTS for rrf in RRF_WEIGHTS]
    measured = {mix: [ndcg_of_queries(each, mix) for each in collections] for mix in mixes}
    means = {mix: fmean(fmean(found) for found in by_collection) for mix, by_collection in measured.items()}
    leader = max(mixes, key=lambda mix: means[mix])
    error = sum(np.var(found) / len(found) for found in measured[leader]) ** 0.5 / len(collections)
    near = [mix for mix in mixes if means[mix] >= means[leader] - error]
    best = max(near, key=lambda mix: (mix[2], means[mix]))
    mixed = np.concatenate([each.features @ np.array(best) for each in collections])
    labels = np.concatenate([each.labels for each in collections])
    shares = np.concatenate([np.full(each.labels.size, 1 / each.labels.size) for each in collections])
    scale, bias = fit_logistic(mixed[:, None], labels, weights=shares * labels.size / len(collections))
    logit, dense, rrf = (round(float(scale * weight), 6) for weight in best)
    return RelevanceCalibration(
        logit_weight=logit, dense_weight=dense, rrf_weight=rrf, bias=round(float(bias), 6), origin=origin
    )


def ndcg_of_queries(collection: ScoredCandidates, mix: tuple[float, float, float]) -> list[float]:
    """Return the nDCG@10 of each query's candidates, ordered by the weighted sum of their features."""
    scores = collection.features @ np.array(mix)
    found = []
    for query in np.unique(collection.queries):
        own = np.flatnonzero(collection.queries == query)
        ranking = [str(i) for i in own[np.argsort(-scores[own], kind="stable")]]
        found.append(ndcg_at_k(ranking, {str(i): int(collection.labels[i]) for i in own}, 10))
    return found


async def scored_candidates(engine: Engine, queries: Sequence[JudgedQuery]) -> ScoredCandidates:
    """Return the reranked candidates of every query, with the document's judgement."""
    features, labels, owners = [], [], []
    for number, query in enumerate(queries):
        outcome = await search(engine, SearchQuery(query.query, top_k=_RERANK_K, rerank_k=_RERANK_K, highlight=False))
        for result in outcome.results:
            scores = result.scores
            if scores.rerank_logit is None or scores.dense is None or scores.rrf is None:
                continue
            features.append((scores.rerank_logit, scores.dense, scores.rrf))
            labels.append(query.judgements.get(result.passage.document_id, 0) > 0)
            owners.append(number)
    return ScoredCandidates(np.array(features), np.array(labels), np.array(owners))


async def _collect(dataset: Path, split: str, n_queries: int) -> ScoredCandidates:
    settings = indexed_dataset(dataset, load_settings(), reindexes=False)
    async with open_engine(settings) as engine:
        return await scored_candidates(engine, read_judged_queries(dataset, split=split, limit=n_queries))


def main() -> None:
    """Calibrate the configured cross-encoder in place and print the weights."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", nargs="+", required=True, metavar="DIR[:SPLIT]")
    parser.add_argument("--queries", type=int, default=100, help="at most so many of each data set")
    arguments = parser.parse_args()
    collections, names = [], []
    for argument in arguments.dataset:
        dataset, _, split = argument.partition(":")
        collections.append(asyncio.run(_collect(Path(dataset), split or "dev", arguments.queries)))
        names.append(Path(dataset).name)
    calibration = fit_relevance(collections, origin=f"dev queries of {', '.join(names)}")
    folder = open_model_folder(load_settings().cross_encoder, "cross-encoder")
    write_settings(folder.path, folder.settings.model_copy(update={"relevance": calibration}))
    print(calibration)  # noqa: T201


if __name__ == "__main__":
    main()
