"""The rerank stage: the cross-encoder reads the best candidates, as many as the deadline allows."""

import asyncio
from dataclasses import dataclass

import numpy as np

from indexer.ranking import NO_HITS, Hits, Rows
from indexer.snapshot import Snapshot
from models.tokenization import ModelInput
from service.candidates import Reranked, best_first
from service.engine import Engine, QueryVector
from service.reading import reading_seconds
from service.stages import Deadline

RERANK_SHARE = 0.8  # of the time from a request's start to its deadline; the rest is for what comes after

NOTHING_RERANKED = Reranked(NO_HITS.rows, NO_HITS.scores, NO_HITS.scores, NO_HITS.rows, NO_HITS.rows)


@dataclass(frozen=True, slots=True, eq=False)
class RerankTask:
    """What to rerank: the best rerank_k of the fused candidates of a query, and the tokens that are to be read then."""

    query: str
    encoded: QueryVector
    fused: Hits
    rerank_k: int
    n_tokens_to_read: int = 0


async def rerank(
    engine: Engine, snapshot: Snapshot, task: RerankTask, deadline: Deadline, skipped: list[str]
) -> tuple[Reranked, int]:
    """Return the reranked candidates by relevance, and how many of the query's tokens were cut.

    Candidates are read in fused order until `rerank_until`; those that were not read by then keep their fused order
    below the others. What was left out is added to `skipped`.
    """
    rows, rrf_scores = task.fused.rows[: task.rerank_k], task.fused.scores[: task.rerank_k]
    if not rows.size:
        skipped.append("rerank:nothing_retrieved")
        return NOTHING_RERANKED, 0
    inputs, are_stored = await asyncio.to_thread(_pair_inputs, engine, snapshot, task.query, rows)
    if not are_stored:
        skipped.append("stored_tokens:other_tokenizer")
        engine.metrics.retokenized_passages.inc(rows.size)
    until = rerank_until(engine, deadline, n_tokens_to_read=task.n_tokens_to_read)
    logits = np.array(await engine.reranking.submit_until(inputs, until), np.float32)
    if logits.size < rows.size:
        skipped.append("rerank:deadline")
        engine.metrics.degraded.labels("rerank").inc()
        rows, rrf_scores = rows[: logits.size], rrf_scores[: logits.size]
    dense_scores = snapshot.dense_scores(task.encoded.vector, rows).astype(np.float32)
    relevance = engine.models.cross_encoder.calibration.relevance_logits(logits, dense_scores, rrf_scores)
    order, others = best_first(relevance, rows, engine.metrics)
    if others.size:
        skipped.append("rerank:no_finite_score")
    cut_tokens = np.array([item.passage_cut for item in inputs[: rows.size]], np.int64)
    reranked = Reranked(
        rows[order], logits[order].astype(np.float64), relevance[order], cut_tokens[order], not_finite=rows[others]
    )
    return reranked, inputs[0].query_cut


def rerank_until(engine: Engine, deadline: Deadline, *, n_tokens_to_read: int) -> float:
    """Return when RERANK_SHARE is over of the request's time, less what the reader needs afterwards."""
    return deadline.earlier(reading_seconds(engine, n_tokens_to_read)).share(RERANK_SHARE)


def _pair_inputs(engine: Engine, snapshot: Snapshot, query: str, rows: Rows) -> tuple[list[ModelInput], bool]:
    """Return the cross-encoder's inputs, and whether the index's stored tokens could be used."""
    cross_encoder = engine.models.cross_encoder
    tokens = snapshot.passage_tokens(rows, tokenizer_fingerprint=cross_encoder.tokenizer_fingerprint)
    if tokens is not None:
        return cross_encoder.inputs(query, tokens), True
    encoded = cross_encoder.tokenizer.encode_batch(snapshot.passage_texts(rows))
    return cross_encoder.inputs(query, [text.ids for text in encoded]), False
