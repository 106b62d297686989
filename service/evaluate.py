"""Measure rankings on judged queries, through the pipeline that serves.

Conventions: TREC's for nDCG@10 (gain = grade), recall@100 and MRR@10 (grade above 0 is relevant). Documents are ranked,
not passages: a document stands where its best passage does. Every judged query counts, one that finds nothing with 0,
and the figures are plain means over queries, with 95% bootstrap intervals. Where a query is itself a document of the
collection, with the same id and the same text (as in ArguAna), that document is left out of its ranking and of its
judgements.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
from numpy.typing import NDArray

from indexer.snapshot import Snapshot
from models.bootstrap import SEED, Interval, PairedDifference, paired_difference, percentile_interval, resampled_means
from models.errors import DataError
from models.evaluation import ndcg_at_k, recall_at_k, reciprocal_rank_at_k
from models.folder import sha256_of
from models.training.beir import read_judgements, read_queries
from service.candidates import Result
from service.engine import Engine
from service.pipeline import SearchOutcome, search
from service.queries import Mode, SearchQuery

RETRIEVE_K = 200  # what is served by default; both legs together find at most twice as many
STAGES = ("encode", "retrieve", "fuse", "rerank")
MEASURES = ("ndcg_at_10", "recall_at_100", "mrr_at_10")
_KEPT = 10  # documents of each ranking


@dataclass(frozen=True, slots=True)
class JudgedQuery:
    """A query and the grades of documents for it."""

    query_id: str
    query: str
    judgements: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Strategy:
    """A way to rank; of a passage an excerpt of rerank_tokens is read, all that fits for 0."""

    name: str
    mode: Mode
    rerank: bool
    rerank_tokens: int = 0


SERVED = Strategy("hybrid+rerank", "hybrid", rerank=True)  # unless a request says otherwise
STRATEGIES = (
    Strategy("bm25", "bm25", rerank=False),
    Strategy("dense", "dense", rerank=False),
    Strategy("hybrid", "hybrid", rerank=False),
    SERVED,
)


@dataclass(frozen=True, slots=True)
class RankedDocument:
    """A document where its best passage put it; rank counts documents from 1, row is that passage's."""

    rank: int
    document_id: str
    row: int


@dataclass(frozen=True, slots=True, eq=False)
class RankedQuery:
    """What one strategy made of one query.

    measures are in the order of MEASURES, seconds those of each stage. first holds the best ten documents, relevant
    every relevant one that was found, both by rank. relevances (n_passages_reranked, 2) holds the relevance of each
    reranked passage and 1 or 0, whether its document is judged relevant.
    """

    query: JudgedQuery
    measures: tuple[float, float, float]
    seconds: Mapping[str, float]
    first: tuple[RankedDocument, ...]
    relevant: tuple[RankedDocument, ...]
    query_cut_tokens: int
    n_passages_cut: int
    relevances: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RankingQuality:
    """Means over n_queries, their 95% intervals by measure; median_seconds are of each stage, one query at a time."""

    n_queries: int
    ndcg_at_10: float
    recall_at_100: float
    mrr_at_10: float
    intervals: Mapping[str, Interval]
    median_seconds: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class DatasetRankings:
    """What was measured on one data set: its rankings by strategy, and the index that they come from.

    n_judged counts the documents with a judgement of these queries, n_missing those of them that the index lacks.
    """

    name: str
    index: str
    snapshot_id: str
    n_judged: int
    n_missing: int
    by_strategy: Mapping[str, Sequence[RankedQuery]]


def read_judged_queries(dataset: Path, *, split: str, limit: int | None) -> list[JudgedQuery]:
    """Return the judged queries of one split of a BEIR folder, in the order of its judgements, at most limit of them.

    Raises:
        DataError: a file is missing or malformed, there are no judgements, or a judged query has no text.
    """
    queries, judgements = read_queries(dataset), read_judgements(dataset, split)
    query_ids = list(judgements)[:limit]
    unknown = [query_id for query_id in query_ids if query_id not in queries]
    if unknown:
        raise DataError(f"{dataset}: {len(unknown)} judged queries have no text, the first is {unknown[0]!r}")
    if not query_ids:
        raise DataError(f"{dataset / 'qrels' / split}.tsv holds no judgement")
    return [JudgedQuery(each, queries[each], judgements[each]) for each in query_ids]


def corpus_fingerprint(dataset: Path) -> str:
    """Return the sha256, as hex, of a BEIR folder's documents."""
    for name in ("corpus.jsonl", "corpus.jsonl.gz"):  # in the order in which the indexer looks
        if (dataset / name).is_file():
            return sha256_of(dataset / name)
    raise DataError(f"{dataset} is no BEIR folder: it holds neither corpus.jsonl nor corpus.jsonl.gz")


async def measure(
    engine: Engine, queries: Sequence[JudgedQuery], strategy: Strategy, on_done: Callable[[int], None] = lambda n: None
) -> list[RankedQuery]:
    """Rank the documents of the engine's index for every query; on_done learns how many are done.

    One query at a time: its reranking fills every thread. A second in flight saved 5% and doubled the latencies.

    Raises:
        Problem: a query took longer than the configured deadline.
    """
    ranked: list[RankedQuery] = []
    for query in queries:
        ranked.append(await _rank(engine, query, strategy))
        on_done(len(ranked))
    return ranked


async def _rank(engine: Engine, query: JudgedQuery, strategy: Strategy) -> RankedQuery:
    outcome = await search(
        engine,
        SearchQuery(
            query.query,
            top_k=2 * RETRIEVE_K,
            mode=strategy.mode,
            rerank=strategy.rerank,
            rerank_tokens=strategy.rerank_tokens,
            retrieve_k=RETRIEVE_K,
            highlight=False,
        ),
    )
    if not _is_document(query, engine.snapshot):
        return judge(query, outcome, outcome.results)
    others = {document_id: grade for document_id, grade in query.judgements.items() if document_id != query.query_id}
    results = [result for result in outcome.results if result.passage.document_id != query.query_id]
    return judge(JudgedQuery(query.query_id, query.query, others), outcome, results)


def judge(query: JudgedQuery, outcome: SearchOutcome, results: Sequence[Result]) -> RankedQuery:
    """Return what one ranking, the results of an outcome that count, is worth by the query's judgements."""
    documents = ranked_documents(results)
    ranking = [each.document_id for each in documents]
    judgements = query.judgements
    relevances = [
        (result.scores.relevance, float(judgements.get(result.passage.document_id, 0) > 0))
        for result in results
        if result.scores.relevance is not None
    ]
    return RankedQuery(
        query=query,
        measures=(
            ndcg_at_k(ranking, judgements, 10),
            recall_at_k(ranking, judgements, 100),
            reciprocal_rank_at_k(ranking, judgements, 10),
        ),
        seconds={stage: outcome.timings[stage] for stage in STAGES if stage in outcome.timings},
        first=tuple(documents[:_KEPT]),
        relevant=tuple(each for each in documents if judgements.get(each.document_id, 0) > 0),
        query_cut_tokens=outcome.query_cut_tokens,
        n_passages_cut=outcome.n_passages_cut,
        relevances=np.array(relevances, np.float64).reshape(-1, 2),
    )


def ranked_documents(results: Iterable[Result]) -> list[RankedDocument]:
    """Return the documents of ranked passages, each where its best passage is.

    Worked example: passages of a, b, a, c give a at rank 1, b at 2, c at 3.
    """
    rows: dict[str, int] = {}
    for result in results:
        rows.setdefault(result.passage.document_id, result.row)
    return [RankedDocument(rank, document_id, row) for rank, (document_id, row) in enumerate(rows.items(), start=1)]


def _is_document(query: JudgedQuery, snapshot: Snapshot) -> bool:
    """Equal ids are not enough: many collections number both their queries and their documents."""
    document = snapshot.document(query.query_id)
    return document is not None and document.text.split() == query.query.split()


def quality(datasets: Sequence[Sequence[RankedQuery]]) -> RankingQuality:
    """Return the plain mean over data sets of each one's means over queries; times only of a single data set.

    Each data set counts alike, whatever its size, and is resampled by itself.

    Args:
        datasets: the ranked queries of each data set, of one strategy; at least one of each.
    """
    values = [np.array([each.measures for each in ranked], np.float64) for ranked in datasets]
    resampled = [resampled_means(each, seed=SEED + number) for number, each in enumerate(values)]
    spread = np.mean(resampled, axis=0)
    ndcg, recall, reciprocal_rank = np.mean([each.mean(axis=0) for each in values], axis=0).tolist()
    return RankingQuality(
        n_queries=sum(len(ranked) for ranked in datasets),
        ndcg_at_10=ndcg,
        recall_at_100=recall,
        mrr_at_10=reciprocal_rank,
        intervals={name: percentile_interval(spread[:, column]) for column, name in enumerate(MEASURES)},
        median_seconds=_medians(datasets[0]) if len(datasets) == 1 else {},
    )


def _medians(ranked: Sequence[RankedQuery]) -> dict[str, float]:
    found = {stage: [each.seconds[stage] for each in ranked if stage in each.seconds] for stage in STAGES}
    return {stage: median(seconds) for stage, seconds in found.items() if seconds}


def differences(ranked: Sequence[RankedQuery], reference: Sequence[RankedQuery]) -> dict[str, PairedDifference]:
    """Return by measure how much one strategy is above another over the same queries, in the same order."""
    first, second = (np.array([each.measures for each in side], np.float64) for side in (ranked, reference))
    return {name: paired_difference(first[:, i], second[:, i]) for i, name in enumerate(MEASURES)}


def judged_documents(queries: Iterable[JudgedQuery]) -> set[str]:
    """Return the ids of all documents that any of the queries has a judgement of."""
    return {document_id for query in queries for document_id in query.judgements}


def missing_documents(snapshot: Snapshot, document_ids: Iterable[str]) -> set[str]:
    """Return those of the ids that the index holds no document of."""
    return {each for each in document_ids if snapshot.document(each) is None}
