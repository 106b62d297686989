"""Compare reciprocal rank fusion with convex combinations of normalised scores: nDCG@10, chosen by dev.

    python loadtests/fusion_choice.py --dev DIR:SPLIT… --test DIR[:SPLIT]… [--queries N]

Every set is indexed as `tercet evaluate` does it (and found again later). Both legs retrieve 200 passages; a fusion
orders their union. A convex combination is `a * dense + (1 - a) * bm25` of scores that are normalised a query: "range"
by the least and the greatest of the union, "floor" by the least possible (cosine -1, BM25 0) and the greatest (Bruch,
Gai and Ingber 2023, "An analysis of fusion functions for hybrid retrieval", section 4). The a with the best mean over
the dev sets is used on the test sets. The decision that this led to is docs/adr/0011-fusion.md.
"""

import argparse
import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from indexer.fusion import reciprocal_rank_fusion
from indexer.snapshot import Snapshot
from models.evaluation import ndcg_at_k
from service.commands.evaluate import indexed_dataset
from service.engine import open_engine
from service.evaluate import RETRIEVE_K, JudgedQuery, read_judged_queries
from service.settings import load_settings

_LEFT_OUT = ""
WEIGHTS = tuple(round(0.1 * step, 1) for step in range(11))


@dataclass(frozen=True, slots=True, eq=False)
class Union:
    """What both legs found for a query: the documents (n,) of the passages, their scores (n,), and their RRF (n,)."""

    judgements: Mapping[str, int]
    documents: list[str]
    bm25: NDArray[np.float64]
    dense: NDArray[np.float64]
    rrf: NDArray[np.float64]


Fusion = Callable[[Union], NDArray[np.float64]]


def convex(weight: float, *, has_floor: bool) -> Fusion:
    """Return the fusion with this weight of the dense score."""

    def fuse(union: Union) -> NDArray[np.float64]:
        dense = _normalised(union.dense, -1.0 if has_floor else None)
        return weight * dense + (1 - weight) * _normalised(union.bm25, 0.0 if has_floor else None)

    return fuse


def _normalised(scores: NDArray[np.float64], floor: float | None) -> NDArray[np.float64]:
    low, high = scores.min() if floor is None else floor, scores.max()
    return (scores - low) / (high - low) if high > low else np.zeros_like(scores)


def ndcg(union: Union, fusion: Fusion) -> float:
    """Return nDCG@10 of documents, each where its best passage is."""
    order = np.argsort(-fusion(union), kind="stable")
    ranking = dict.fromkeys(union.documents[i] for i in order if union.documents[i] != _LEFT_OUT)
    return ndcg_at_k(list(ranking), union.judgements, 10)


async def unions(dataset: Path, split: str, n_queries: int | None) -> list[Union]:
    """Return what both legs find for the judged queries of a set."""
    settings = indexed_dataset(dataset, load_settings(), reindexes=False)
    async with open_engine(settings) as engine:
        queries = read_judged_queries(dataset, split=split, limit=n_queries)
        vectors = engine.models.dual_encoder.encode_queries([query.query for query in queries]).vectors
        return [_union(engine.snapshot, query, vector) for query, vector in zip(queries, vectors, strict=True)]


def _union(snapshot: Snapshot, query: JudgedQuery, vector: NDArray[np.float32]) -> Union:
    legs = snapshot.search_bm25(query.query, RETRIEVE_K), snapshot.search_dense(vector, RETRIEVE_K)
    fused = reciprocal_rank_fusion([leg.rows for leg in legs])
    documents = [passage.document_id for passage in snapshot.passages(fused.rows)]
    own = snapshot.document(query.query_id)
    if own is not None and own.text.split() == query.query.split():  # a query that is a document, as in ArguAna
        documents = [_LEFT_OUT if document == query.query_id else document for document in documents]
    return Union(
        query.judgements,
        documents,
        snapshot.bm25_scores(query.query, fused.rows).astype(np.float64),
        snapshot.dense_scores(vector, fused.rows).astype(np.float64),
        fused.scores.astype(np.float64),
    )


def mean_ndcg(sets: Mapping[str, Sequence[Union]], fusion: Fusion) -> dict[str, float]:
    """Return the mean nDCG@10 of each set, and the mean of those."""
    by_set = {name: fmean(ndcg(union, fusion) for union in found) for name, found in sets.items()}
    return by_set | {"mean": fmean(by_set.values())}


def main() -> None:
    """Run from the command line, see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dev", nargs="+", required=True, metavar="DIR:SPLIT")
    parser.add_argument("--test", nargs="+", required=True, metavar="DIR[:SPLIT]")
    parser.add_argument("--queries", type=int, help="at most so many of each set")
    arguments = parser.parse_args()
    sets: dict[str, dict[str, list[Union]]] = {"dev": {}, "test": {}}
    for part, sources in (("dev", arguments.dev), ("test", arguments.test)):
        for source in sources:
            folder, _, split = source.partition(":")
            sets[part][Path(folder).name] = asyncio.run(unions(Path(folder), split or "test", arguments.queries))
    fusions: dict[str, Fusion] = {
        "bm25": lambda union: union.bm25,
        "dense": lambda union: union.dense,
        "rrf": lambda union: union.rrf,
    }
    for name, has_floor in (("range", False), ("floor", True)):
        best = max(WEIGHTS, key=lambda weight: mean_ndcg(sets["dev"], convex(weight, has_floor=has_floor))["mean"])
        fusions[f"convex {name} {best}"] = convex(best, has_floor=has_floor)
    for part, own in sets.items():
        print(f"{part:20}", *(f"{name[:12]:>13}" for name in [*own, "mean"]))
        for name, fusion in fusions.items():
            print(f"{name:20}", *(f"{value:13.4f}" for value in mean_ndcg(own, fusion).values()))


if __name__ == "__main__":
    main()
