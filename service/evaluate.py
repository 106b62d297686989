"""Measure rankings on judged queries, through the pipeline that serves.

Conventions: TREC's for nDCG@10 (gain = grade), recall@100 and MRR@10 (grade above 0 is relevant). Documents are ranked,
not passages: a document stands where its best passage does. Every judged query counts, one that finds nothing with 0,
and the figures are plain means over queries. Where a query is itself a document of the collection, with the same id
and the same text (as in ArguAna), that document is left out of its ranking and of its judgements.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from indexer.snapshot import Snapshot
from models.errors import DataError
from models.evaluation import ndcg_at_k, recall_at_k, reciprocal_rank_at_k
from models.folder import sha256_of
from models.training.data import read_judgements, read_queries
from service.candidates import Mode
from service.engine import Engine
from service.pipeline import SearchQuery, search

RETRIEVE_K = 200  # what is served by default; both legs together find at most twice as many
STAGES = ("encode", "retrieve", "fuse", "rerank")


@dataclass(frozen=True, slots=True)
class JudgedQuery:
    """A query and the grades of documents for it."""

    query_id: str
    query: str
    judgements: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Strategy:
    """A way to rank."""

    name: str
    mode: Mode
    rerank: bool


STRATEGIES = (
    Strategy("bm25", "bm25", rerank=False),
    Strategy("dense", "dense", rerank=False),
    Strategy("hybrid", "hybrid", rerank=False),
    Strategy("hybrid+rerank", "hybrid", rerank=True),
)


@dataclass(frozen=True, slots=True)
class RankingQuality:
    """Means over n_queries; median_seconds are of each stage that ran, one query at a time."""

    n_queries: int
    ndcg_at_10: float
    recall_at_100: float
    mrr_at_10: float
    median_seconds: dict[str, float]


@dataclass(frozen=True, slots=True)
class _Ranked:
    measures: tuple[float, float, float]
    seconds: dict[str, float]


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
) -> RankingQuality:
    """Rank the documents of the engine's index for every query; on_done learns how many are done.

    One query at a time: its reranking fills every thread. A second in flight saved 5% and doubled the latencies.

    Raises:
        Problem: a query took longer than the configured deadline.
    """
    ranked: list[_Ranked] = []
    for query in queries:
        ranked.append(await _rank(engine, query, strategy))
        on_done(len(ranked))
    return _quality(ranked)


async def _rank(engine: Engine, query: JudgedQuery, strategy: Strategy) -> _Ranked:
    outcome = await search(
        engine,
        SearchQuery(
            query.query,
            top_k=2 * RETRIEVE_K,
            mode=strategy.mode,
            rerank=strategy.rerank,
            retrieve_k=RETRIEVE_K,
            highlight=False,
        ),
    )
    ranking = documents_of(result.passage.document_id for result in outcome.results)
    judgements = query.judgements
    if _is_document(query, engine.snapshot):
        ranking = [document_id for document_id in ranking if document_id != query.query_id]
        judgements = {document_id: grade for document_id, grade in judgements.items() if document_id != query.query_id}
    measures = (
        ndcg_at_k(ranking, judgements, 10),
        recall_at_k(ranking, judgements, 100),
        reciprocal_rank_at_k(ranking, judgements, 10),
    )
    return _Ranked(measures, {stage: outcome.timings[stage] for stage in STAGES if stage in outcome.timings})


def documents_of(passages: Iterable[str]) -> list[str]:
    """Return the documents of ranked passages, given by document id, each where its best passage is.

    Worked example: passages of a, b, a, c give a, b, c.
    """
    return list(dict.fromkeys(passages))


def _is_document(query: JudgedQuery, snapshot: Snapshot) -> bool:
    """Equal ids are not enough: many collections number both their queries and their documents."""
    document = snapshot.document(query.query_id)
    return document is not None and document.text.split() == query.query.split()


def _quality(ranked: Sequence[_Ranked]) -> RankingQuality:
    ndcg, recall, reciprocal_rank = (fmean(values) for values in zip(*(each.measures for each in ranked), strict=True))
    stages = [stage for stage in STAGES if any(stage in each.seconds for each in ranked)]
    seconds = {stage: median(each.seconds[stage] for each in ranked if stage in each.seconds) for stage in stages}
    return RankingQuality(len(ranked), ndcg, recall, reciprocal_rank, seconds)


def mean_quality(qualities: Sequence[RankingQuality]) -> RankingQuality:
    """Return the plain mean over data sets, each counting alike; n_queries is their sum, times are left out."""
    return RankingQuality(
        sum(each.n_queries for each in qualities),
        fmean(each.ndcg_at_10 for each in qualities),
        fmean(each.recall_at_100 for each in qualities),
        fmean(each.mrr_at_10 for each in qualities),
        {},
    )
