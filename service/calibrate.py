"""Learn the weights of the relevance logit on judged dev queries: `python -m service.calibrate --dataset DIR[:SPLIT]`.

Every candidate that the serving pipeline reranks is one row of a logistic regression on its rerank logit, its cosine
and its fused score; candidates without a judgement count as not relevant. Each data set weighs the same, whatever its
size, so that the weights suit no single kind of text. What is learned goes into the cross-encoder's model.json.
"""

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from models.calibration import fit_logistic
from models.folder import RelevanceCalibration, open_model_folder, write_settings
from service.commands.evaluate import indexed_dataset
from service.engine import Engine, open_engine
from service.evaluate import JudgedQuery, read_judged_queries
from service.pipeline import SearchQuery, search
from service.settings import load_settings

_RERANK_K = 100


@dataclass(frozen=True, slots=True, eq=False)
class ScoredCandidates:
    """Features (n, 3): rerank logit, cosine, fused score; labels (n,): judged relevant; queries (n,): whose it is."""

    features: NDArray[np.float64]
    labels: NDArray[np.bool_]
    queries: NDArray[np.int64]


def fit_relevance(collections: Sequence[ScoredCandidates], *, origin: str) -> RelevanceCalibration:
    """Return the weights that fit the candidates of all collections, each collection weighing the same."""
    features = np.concatenate([each.features for each in collections])
    labels = np.concatenate([each.labels for each in collections])
    weights = np.concatenate([np.full(len(each.labels), 1 / len(each.labels)) for each in collections])
    logit, dense, rrf, bias = fit_logistic(features, labels, weights=weights * len(labels) / len(collections))
    return RelevanceCalibration(
        logit_weight=round(float(logit), 6),
        dense_weight=round(float(dense), 6),
        rrf_weight=round(float(rrf), 6),
        bias=round(float(bias), 6),
        origin=origin,
    )


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
    parser.add_argument("--keep", type=Path, help="write the candidates here as well (.npz)")
    arguments = parser.parse_args()
    collections = []
    for name in arguments.dataset:
        folder, _, split = name.partition(":")
        collections.append(asyncio.run(_collect(Path(folder), split or "dev", arguments.queries)))
    origin = ", ".join(f"{Path(name.partition(':')[0]).name}" for name in arguments.dataset)
    if arguments.keep:
        np.savez(arguments.keep, **{f"{k}_{i}": getattr(c, k) for i, c in enumerate(collections) for k in c.__slots__})
    calibration = fit_relevance(collections, origin=f"dev queries of {origin}")
    folder_of_model = open_model_folder(load_settings().cross_encoder, "cross-encoder")
    write_settings(folder_of_model.path, folder_of_model.settings.model_copy(update={"relevance": calibration}))
    print(calibration)  # noqa: T201


if __name__ == "__main__":
    main()
