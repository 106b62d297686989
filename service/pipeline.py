"""The request path, top to bottom: admit, encode, retrieve, fuse, rerank, read, respond.

A page (top_k, offset) does not decide how many candidates are looked at: it is a slice of the ranking, so the union of
pages is one page, and the decision that there is no answer does not depend on top_k.
"""

import asyncio
import math
from collections.abc import Coroutine, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

from indexer.facets import Facet
from indexer.filters import Filtered
from indexer.fusion import reciprocal_rank_fusion
from indexer.ranking import Hits
from indexer.snapshot import Snapshot
from models.calibration import logit
from service.admission import Cost
from service.answers import FoundAnswer, NoAnswer, found_answer, index_sources, no_answer, own_sources
from service.candidates import RRF_K, Candidates, Result, facets, rank, results
from service.costs import answer_cost, reading_tokens, search_cost
from service.engine import Engine
from service.queries import AnswerQuery, SearchQuery
from service.query_cache import Asked, QueryVector
from service.reading import read
from service.reranking import NOTHING_RERANKED, Head, RerankTask, rerank
from service.stages import Deadline, Stages

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Page:
    """What a search shows of its candidates."""

    results: list[Result]
    facets: list[Facet]
    n_below_min_score: int


@dataclass(frozen=True, slots=True)
class SearchOutcome:
    """One page of results and how it came about; timings are in seconds, snapshot is an id.

    n_below_min_score candidates are in no page, because they fall short of the query's min_score or lack that score.
    """

    index: str
    snapshot: str
    query: str
    results: list[Result]
    filtered: Filtered | None
    facets: list[Facet]
    n_candidates: int
    n_below_min_score: int
    rerank_k_used: int
    query_cut_tokens: int
    n_passages_cut: int
    n_tokens_left_out: int
    skipped: list[str]
    timings: dict[str, float]


@dataclass(frozen=True, slots=True)
class AnswerOutcome:
    """The best spans, best first, and the decision; index and snapshot are None for the caller's own passages."""

    index: str | None
    snapshot: str | None
    query: str
    answer: FoundAnswer | None
    answers: list[FoundAnswer]
    no_answer: NoAnswer
    filtered: Filtered | None
    rerank_k_used: int
    query_cut_tokens: int
    n_tokens_left_out: int
    n_passages_read: int
    skipped: list[str]
    timings: dict[str, float]


async def search(engine: Engine, query: SearchQuery, deadline: Deadline | None = None) -> SearchOutcome:
    """Return one page of the ranking for a query; as `search_all`."""
    [outcome] = await search_all(engine, [query], deadline)
    return outcome


async def search_all(
    engine: Engine, queries: Sequence[SearchQuery], deadline: Deadline | None = None
) -> list[SearchOutcome]:
    """Return one page of the ranking for each query, in order, all of one snapshot: that of the first one's index.

    Raises:
        UnknownIndex: no index of that name is served.
        Overloaded: too much is under way.
        DeadlineExceeded: the deadline passed; it is checked in every stage.
    """
    with engine.borrowed(queries[0].index) as snapshot:
        costs = [search_cost(engine.models, query, snapshot, read_share=engine.read_share) for query in queries]
        whole = Cost(sum(cost.tokens for cost in costs), sum(cost.least for cost in costs))
        with engine.admitted(whole, deadline) as deadline:
            return await _together(
                [_search(engine, snapshot, query, Stages(engine.metrics, deadline)) for query in queries]
            )


async def _together(works: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Return what each returns; when one fails, the others end before its exception is raised."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _search(engine: Engine, snapshot: Snapshot, query: SearchQuery, stages: Stages) -> SearchOutcome:
    found = await _find(engine, snapshot, query, stages)
    async with stages.stage("respond"):
        page = await asyncio.to_thread(_page, snapshot, found, query)
    engine.metrics.count_cut(query_tokens=found.query_cut_tokens, n_passages=found.n_passages_cut)
    return SearchOutcome(
        index=snapshot.index_name,
        snapshot=snapshot.snapshot_id,
        query=query.query,
        results=page.results,
        filtered=found.filtered,
        facets=page.facets,
        n_candidates=int(found.fused.rows.size),
        n_below_min_score=page.n_below_min_score,
        rerank_k_used=int(found.reranked.rows.size),
        query_cut_tokens=found.query_cut_tokens,
        n_passages_cut=found.n_passages_cut,
        n_tokens_left_out=found.reranked.n_tokens_left_out,
        skipped=found.skipped,
        timings=stages.timings(),
    )


def _page(snapshot: Snapshot, found: Candidates, query: SearchQuery) -> _Page:
    ranking = rank(snapshot, found, query)
    shown = results(snapshot, found, ranking[query.offset : query.offset + query.top_k], query)
    return _Page(shown, facets(snapshot, found, query.facets, query.facet_k), ranking.n_below_min_score)


async def answer(engine: Engine, query: AnswerQuery, deadline: Deadline | None = None) -> AnswerOutcome:
    """Return the best answer spans for a query, and whether the best of them is good enough to be the answer.

    Raises:
        UnknownIndex, Overloaded, DeadlineExceeded: as `search`.
    """
    with (
        engine.borrowed(query.index) if query.passages is None else nullcontext() as snapshot,
        engine.admitted(
            answer_cost(engine.models, query, snapshot, read_share=engine.read_share), deadline
        ) as deadline,
        engine.will_read(reading_tokens(engine.models, query, snapshot) if snapshot is not None else 0),
    ):
        return await _answer(engine, snapshot, query, Stages(engine.metrics, deadline))


async def _answer(engine: Engine, snapshot: Snapshot | None, query: AnswerQuery, stages: Stages) -> AnswerOutcome:
    found = await _find(engine, snapshot, query, stages) if snapshot is not None else None
    skipped = found.skipped if found is not None else ["retrieve:own_passages"]
    async with stages.stage("read"):
        if snapshot is not None and found is not None:
            sources = await asyncio.to_thread(index_sources, snapshot, found.rows()[: query.read_k])
        else:
            sources = own_sources(query.passages if query.passages is not None else [])
        reading, n_read = await read(engine, query, sources, stages.deadline, skipped)
    async with stages.stage("respond"):
        query_cut = max(reading.query_cut, found.query_cut_tokens if found is not None else 0)
        decision = no_answer(reading, n_sources=len(sources), n_read=n_read, is_cut=query_cut > 0)
        answers = [found_answer(sources[each.passage_index], each) for each in reading.answers]
    n_cut = found.n_passages_cut if found is not None else 0
    engine.metrics.count_cut(query_tokens=query_cut, n_passages=n_cut)
    engine.metrics.answers.labels("no_answer" if decision.is_no_answer else "answer").inc()
    return AnswerOutcome(
        index=snapshot.index_name if snapshot is not None else None,
        snapshot=snapshot.snapshot_id if snapshot is not None else None,
        query=query.query,
        answer=None if decision.is_no_answer else answers[0],
        answers=answers,
        no_answer=decision,
        filtered=found.filtered if found is not None else None,
        rerank_k_used=int(found.reranked.rows.size) if found is not None else 0,
        query_cut_tokens=query_cut,
        n_tokens_left_out=found.reranked.n_tokens_left_out if found is not None else 0,
        n_passages_read=n_read,
        skipped=skipped,
        timings=stages.timings(),
    )


async def _find(engine: Engine, snapshot: Snapshot, query: SearchQuery | AnswerQuery, stages: Stages) -> Candidates:
    """Return all candidates: retrieved, fused, the best of them reranked."""
    skipped: list[str] = []
    encoded = await _encode(engine, query, stages)
    async with stages.stage("retrieve"):
        filtered = await asyncio.to_thread(snapshot.filtered, query.filter) if query.filter is not None else None
        bm25, dense = await _retrieve(snapshot, query, encoded, filtered)
        if bm25 is not None and not bm25.rows.size:
            skipped.append("bm25:no_match" if snapshot.analyzer.analyze(query.query) else "bm25:no_terms")
    async with stages.stage("fuse"):
        legs = [leg.rows for leg in (dense, bm25) if leg is not None]
        fused = reciprocal_rank_fusion(legs, rrf_k=RRF_K)
    if query.rerank and encoded is not None:
        async with stages.stage("rerank"):
            asked = Asked(query.query, query.rerank_tokens)
            to_read = reading_tokens(engine.models, query, snapshot) if isinstance(query, AnswerQuery) else 0
            task = RerankTask(asked, encoded, fused, query.rerank_k, _head(query), to_read)
            reranked, query_cut = await rerank(engine, snapshot, task, stages.deadline, skipped)
    else:
        reranked, query_cut = NOTHING_RERANKED, 0
        skipped.append("rerank:not_requested")
    return Candidates(
        query=query.query,
        mode=query.mode,
        calibration=engine.models.cross_encoder.calibration,
        query_vector=encoded.vector if encoded is not None else None,
        filtered=filtered,
        bm25=bm25,
        dense=dense,
        fused=fused,
        reranked=reranked,
        query_cut_tokens=max(query_cut, encoded.cut_tokens if encoded is not None else 0),
        skipped=skipped,
    )


def _head(query: SearchQuery | AnswerQuery) -> Head | None:
    """Return what of the ranking must be settled, None where every candidate is to be read."""
    if query.settle_k == 0:
        return None
    if isinstance(query, AnswerQuery):
        return Head(max(query.settle_k, query.read_k))
    least = math.inf if query.min_score is None else logit(query.min_score)
    return Head(query.settle_k, query.group_by_document, least)


async def _encode(engine: Engine, query: SearchQuery | AnswerQuery, stages: Stages) -> QueryVector | None:
    """Return the query's vector, None where nothing needs it."""
    if query.mode == "bm25" and not query.rerank:  # relevance weighs the dense score in, whatever the mode
        return None
    async with stages.stage("encode"):
        return await engine.encode_query(query.query)


async def _retrieve(
    snapshot: Snapshot, query: SearchQuery | AnswerQuery, encoded: QueryVector | None, filtered: Filtered | None
) -> tuple[Hits | None, Hits | None]:
    """Return the BM25 and the dense ranking of what a filter leaves, searched at the same time.

    None stands for a leg that the mode leaves out.
    """
    k, allowed = query.retrieve_k, filtered.allowed if filtered is not None else None
    searches = {}
    if query.mode != "dense":
        searches["bm25"] = asyncio.to_thread(snapshot.search_bm25, query.query, k, allowed)
    if query.mode != "bm25":
        assert encoded is not None, "dense retrieval needs the query's vector"
        searches["dense"] = asyncio.to_thread(snapshot.search_dense, encoded.vector, k, allowed)
    found = dict(zip(searches, await asyncio.gather(*searches.values()), strict=True))
    return found.get("bm25"), found.get("dense")
