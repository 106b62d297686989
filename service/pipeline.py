"""The request path, top to bottom: encode, retrieve, fuse, rerank, read, respond.

How many candidates are looked at depends on retrieve_k and rerank_k only. A page (top_k, offset) is a slice of the
ranking, so the union of pages is one page, and the decision that there is no answer does not depend on top_k.
"""

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np

from indexer.facets import Facet
from indexer.filters import Filter, Filtered
from indexer.fusion import reciprocal_rank_fusion
from indexer.ranking import NO_HITS, Hits, Rows
from indexer.snapshot import Snapshot
from models.reader import Reading
from models.tokenization import ModelInput
from service.answers import (
    FoundAnswer,
    NoAnswer,
    OwnPassage,
    Source,
    found_answer,
    index_sources,
    no_answer,
    own_sources,
)
from service.candidates import RRF_K, Candidates, Mode, Reranked, Result, facets, results
from service.engine import Engine, QueryVector
from service.stages import Deadline, Stages


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """What to search, and how deep. index is a name, None for the one that is served by default.

    facets are fields of which the facet_k most frequent values are counted.
    """

    query: str
    top_k: int = 10
    offset: int = 0
    mode: Mode = "hybrid"
    rerank: bool = True
    rerank_k: int = 100
    retrieve_k: int = 200
    highlight: bool = True
    explain: bool = False
    index: str | None = None
    filter: Filter | None = None
    facets: Sequence[str] = ()
    facet_k: int = 10


@dataclass(frozen=True, slots=True)
class SearchOutcome:
    """One page of results and how it came about; timings are in seconds, snapshot is an id."""

    index: str
    snapshot: str
    query: str
    results: list[Result]
    filtered: Filtered | None
    facets: list[Facet]
    n_candidates: int
    rerank_k_used: int
    query_cut_tokens: int
    n_passages_cut: int
    skipped: list[str]
    timings: dict[str, float]


@dataclass(frozen=True, slots=True)
class AnswerQuery:
    """What to answer: from the index, or from the caller's own passages, which are then all read."""

    query: str
    top_k: int = 3
    read_k: int = 5
    no_answer_threshold: float | None = None
    passages: list[OwnPassage] | None = None
    mode: Mode = "hybrid"
    rerank: bool = True
    rerank_k: int = 100
    retrieve_k: int = 200
    index: str | None = None
    filter: Filter | None = None


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
    query_cut_tokens: int
    n_passages_read: int
    skipped: list[str]
    timings: dict[str, float]


async def search(engine: Engine, query: SearchQuery, deadline: Deadline | None = None) -> SearchOutcome:
    """Return one page of the ranking for a query.

    Raises:
        UnknownIndex: no index of that name is served.
        Overloaded: a model's queue is full.
        DeadlineExceeded: the deadline passed; it is checked in every stage.
    """
    with engine.borrowed(query.index) as snapshot:
        return await _search(engine, snapshot, query, engine.stages(deadline))


async def _search(engine: Engine, snapshot: Snapshot, query: SearchQuery, stages: Stages) -> SearchOutcome:
    found = await _find(engine, snapshot, query, stages)
    async with stages.stage("respond"):
        page = slice(query.offset, query.offset + query.top_k)
        shown = await asyncio.to_thread(
            results, snapshot, found, page, highlight=query.highlight, explain=query.explain
        )
        counted = await asyncio.to_thread(facets, snapshot, found, query.facets, query.facet_k)
    engine.metrics.count_cut(query_tokens=found.query_cut_tokens, n_passages=found.n_passages_cut)
    return SearchOutcome(
        index=snapshot.index_name,
        snapshot=snapshot.snapshot_id,
        query=query.query,
        results=shown,
        filtered=found.filtered,
        facets=counted,
        n_candidates=int(found.fused.rows.size),
        rerank_k_used=int(found.reranked.rows.size),
        query_cut_tokens=found.query_cut_tokens,
        n_passages_cut=found.n_passages_cut,
        skipped=found.skipped,
        timings=stages.timings(),
    )


async def answer(engine: Engine, query: AnswerQuery, deadline: Deadline | None = None) -> AnswerOutcome:
    """Return the best answer spans for a query, and whether the best of them is good enough to be the answer.

    Raises:
        UnknownIndex, Overloaded, DeadlineExceeded: as `search`.
    """
    with engine.borrowed(query.index) if query.passages is None else nullcontext() as snapshot:
        return await _answer(engine, snapshot, query, engine.stages(deadline))


async def _answer(engine: Engine, snapshot: Snapshot | None, query: AnswerQuery, stages: Stages) -> AnswerOutcome:
    found = await _find(engine, snapshot, query, stages) if snapshot is not None else None
    async with stages.stage("read"):
        if snapshot is not None and found is not None:
            sources = await asyncio.to_thread(index_sources, snapshot, found.rows()[: query.read_k])
        else:
            sources = own_sources(query.passages if query.passages is not None else [])
        reading = await _read(engine, query, sources)
    async with stages.stage("respond"):
        query_cut = max(reading.query_cut, found.query_cut_tokens if found is not None else 0)
        decision = no_answer(reading, n_sources=len(sources), is_cut=query_cut > 0)
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
        query_cut_tokens=query_cut,
        n_passages_read=len(sources),
        skipped=found.skipped if found is not None else ["retrieve:own_passages"],
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
            reranked, query_cut = await _rerank(engine, snapshot, query, (fused, encoded), skipped)
    else:
        reranked, query_cut = _NOTHING_RERANKED, 0
        skipped.append("rerank:not_requested")
    return Candidates(
        query=query.query,
        mode=query.mode,
        query_vector=encoded.vector if encoded is not None else None,
        filtered=filtered,
        bm25=bm25,
        dense=dense,
        fused=fused,
        reranked=reranked,
        query_cut_tokens=max(query_cut, encoded.cut_tokens if encoded is not None else 0),
        skipped=skipped,
    )


async def _encode(engine: Engine, query: SearchQuery | AnswerQuery, stages: Stages) -> QueryVector | None:
    """Return the query's vector, None where nothing needs it."""
    if query.mode == "bm25" and not query.rerank:  # relevance weighs the dense score in, whatever the mode
        return None
    async with stages.stage("encode"):
        [encoded] = await engine.encoding.submit([query.query])
    return encoded


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


async def _rerank(
    engine: Engine,
    snapshot: Snapshot,
    query: SearchQuery | AnswerQuery,
    retrieved: tuple[Hits, QueryVector],
    skipped: list[str],
) -> tuple[Reranked, int]:
    """Return the best rerank_k by relevance, and the query tokens that were cut; adds to `skipped`."""
    fused, encoded = retrieved
    rows, rrf_scores = fused.rows[: query.rerank_k], fused.scores[: query.rerank_k]
    if not rows.size:
        skipped.append("rerank:nothing_retrieved")
        return _NOTHING_RERANKED, 0
    inputs, are_stored = await asyncio.to_thread(_pair_inputs, engine, snapshot, query.query, rows)
    if not are_stored:
        skipped.append("stored_tokens:other_tokenizer")
        engine.metrics.retokenized_passages.inc(rows.size)
    logits = np.array(await engine.reranking.submit(inputs), np.float32)
    dense_scores = snapshot.dense_scores(encoded.vector, rows).astype(np.float32)
    relevance = engine.models.cross_encoder.calibration.relevance_logits(logits, dense_scores, rrf_scores)
    scored = np.flatnonzero(np.isfinite(relevance))
    if scored.size < rows.size:
        skipped.append("rerank:no_finite_score")
    order = scored[np.lexsort((rows[scored], -relevance[scored]))]
    cut_tokens = np.array([item.passage_cut for item in inputs], np.int64)
    reranked = Reranked(rows[order], logits[order].astype(np.float64), relevance[order], cut_tokens[order])
    return reranked, inputs[0].query_cut


def _pair_inputs(engine: Engine, snapshot: Snapshot, query: str, rows: Rows) -> tuple[list[ModelInput], bool]:
    """Return the cross-encoder's inputs, and whether the index's stored tokens could be used."""
    cross_encoder = engine.models.cross_encoder
    tokens = snapshot.passage_tokens(rows, tokenizer_fingerprint=cross_encoder.tokenizer_fingerprint)
    if tokens is not None:
        return cross_encoder.inputs(query, tokens), True
    encoded = cross_encoder.tokenizer.encode_batch(snapshot.passage_texts(rows))
    return cross_encoder.inputs(query, [text.ids for text in encoded]), False


async def _read(engine: Engine, query: AnswerQuery, sources: list[Source]) -> Reading:
    reader = engine.models.reader
    task = await asyncio.to_thread(reader.prepare, query.query, [source.text for source in sources])
    logits = await engine.reading.submit(task.inputs)
    return await asyncio.to_thread(reader.decide, task, logits, n_best=query.top_k, threshold=query.no_answer_threshold)


_NOTHING_RERANKED = Reranked(NO_HITS.rows, NO_HITS.scores, NO_HITS.scores, NO_HITS.rows)
