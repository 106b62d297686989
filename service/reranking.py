"""The rerank stage: the cross-encoder reads candidates, best prior first, until the head of the ranking is settled.

It also stops where the deadline says so.
"""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from indexer.ranking import NO_HITS, Hits, Rows
from indexer.snapshot import Snapshot
from models.early_exit import best_possible, kth_best, looks
from models.tokenization import ModelInput, TokenIds
from service.candidates import Reranked, best_first
from service.engine import Engine
from service.metrics import Metrics
from service.query_cache import Asked, Logits, QueryVector
from service.reading import reading_seconds
from service.stages import Deadline

WhyUnread: TypeAlias = Literal["settled", "deadline"]

RERANK_SHARE = 0.8  # of the time from a request's start to its deadline; the rest is for what comes after

NOTHING_RERANKED = Reranked(
    rows=NO_HITS.rows,
    bm25_shares=NO_HITS.scores,
    rerank_logits=NO_HITS.scores,
    relevance_logits=NO_HITS.scores,
    cut_tokens=np.empty(0, np.int64),
    not_finite=NO_HITS.rows,
    n_tokens_left_out=0,
)


@dataclass(frozen=True, slots=True)
class Head:
    """What no unread candidate may be able to change: the best k results, which are documents where grouped.

    Nor may one stay unread that could reach the relevance logit least, which is infinite where there is no such bar.
    """

    k: int
    is_grouped: bool = False
    least: float = math.inf


@dataclass(frozen=True, slots=True, eq=False)
class RerankTask:
    """What to rerank: the best rerank_k of the fused candidates of a query, and the tokens that are to be read then.

    head is None where all of them are to be read.
    """

    asked: Asked
    encoded: QueryVector
    fused: Hits
    rerank_k: int
    head: Head | None = None
    n_tokens_to_read: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class _Candidates:
    """What can be read, best prior first: arrays (n,)."""

    rows: Rows
    dense_scores: NDArray[np.float32]
    bm25_shares: NDArray[np.float64]
    priors: NDArray[np.float64]


@dataclass(slots=True, eq=False)
class _Reading:
    """The candidates of one query, what reads them, and the inputs made of the first of them so far.

    left_out says how many tokens of each of these an excerpt leaves out.
    n_retokenized of these were tokenized anew, since the index holds tokens of another tokenizer.
    """

    engine: Engine
    snapshot: Snapshot
    asked: Asked
    candidates: _Candidates
    inputs: list[ModelInput] = field(default_factory=list)
    left_out: list[int] = field(default_factory=list)
    n_retokenized: int = 0

    async def logits(self, head: Head | None, *, until: float) -> tuple[Logits, WhyUnread | None]:
        """Return the rerank logits of as many candidates, from the first on, as were read, and why not of all."""
        n = self.candidates.rows.size
        if self.engine.models.cross_encoder.early_exit is None:
            head = None
        logits = np.empty(0, np.float32)
        for start, end in pairwise([0, *(looks(n) if head is not None else ()), n]):
            logits = np.append(logits, await self._slice(slice(start, end), until=until))
            if logits.size < end:
                return logits, "deadline"
            if end < n and head is not None and self._is_settled(logits, head):
                return logits, "settled"
        return logits, None

    async def _slice(self, part: slice, *, until: float) -> Logits:
        """Return the logits of a part, as many of the first as are known or could be read."""
        cache, snapshot_id = self.engine.cache, self.snapshot.snapshot_id
        rows = self.candidates.rows[part]
        inputs, left_out = await asyncio.to_thread(self._pair_inputs, rows)
        self.inputs += inputs
        self.left_out += left_out
        logits = cache.logits(snapshot_id, self.asked, rows)
        unknown = np.flatnonzero(np.isnan(logits))
        read = await self.engine.reranking.submit_until([inputs[i] for i in unknown.tolist()], until)
        if read:
            is_read = unknown[: len(read)].tolist()
            logits[is_read] = read
            self.engine.metrics.rerank_tokens.labels("read").inc(sum(inputs[i].ids.size for i in is_read))
            self.engine.metrics.rerank_tokens.labels("left_out").inc(sum(left_out[i] for i in is_read))
            cache.keep_logits(snapshot_id, self.asked, rows, logits)
        return logits if len(read) == unknown.size else logits[: unknown[len(read)]]

    def _pair_inputs(self, rows: Rows) -> tuple[list[ModelInput], list[int]]:
        """Return what is to be read of each passage, and how many of its tokens are left out of that."""
        passages = self._tokens(rows)
        excerpts = self._excerpts(passages) if self.asked.rerank_tokens else passages
        left_out = [whole.size - part.size for whole, part in zip(passages, excerpts, strict=True)]
        return self.engine.models.cross_encoder.inputs(self.asked.query, excerpts), left_out

    def _tokens(self, rows: Rows) -> list[TokenIds]:
        cross_encoder = self.engine.models.cross_encoder
        tokens = self.snapshot.passage_tokens(rows, tokenizer_fingerprint=cross_encoder.tokenizer_fingerprint)
        if tokens is not None:
            return tokens
        self.n_retokenized += rows.size
        return [text.ids for text in cross_encoder.tokenizer.encode_batch(self.snapshot.passage_texts(rows))]

    def _excerpts(self, passages: Sequence[TokenIds]) -> list[TokenIds]:
        cross_encoder, (query, n_tokens) = self.engine.models.cross_encoder, self.asked
        rarity = self.snapshot.token_rarity(tokenizer_fingerprint=cross_encoder.tokenizer_fingerprint)
        return cross_encoder.excerpts(query, passages, rarity, n_tokens=n_tokens)

    def _is_settled(self, logits: Logits, head: Head) -> bool:
        """Return whether no unread candidate is held to change the head of the ranking."""
        cross_encoder, candidates = self.engine.models.cross_encoder, self.candidates
        assert cross_encoder.early_exit is not None, "without a calibration all are read"
        read, weight = logits.astype(np.float64), cross_encoder.calibration.logit_weight
        deviations = cross_encoder.early_exit.deviations
        reach = best_possible(candidates.priors, read, logit_weight=weight, deviations=deviations)
        relevance = candidates.priors[: read.size] + weight * read
        if head.is_grouped:
            best = np.argsort(-relevance, kind="stable")
            _, firsts = np.unique(self.snapshot.documents_of(candidates.rows[best]), return_index=True)
            relevance = relevance[best[firsts]]
        return reach < min(kth_best(relevance, head.k), head.least)


async def rerank(
    engine: Engine, snapshot: Snapshot, task: RerankTask, deadline: Deadline, skipped: list[str]
) -> tuple[Reranked, int]:
    """Return the reranked candidates by relevance, and how many of the query's tokens were cut.

    Those that were not read keep their fused order below the others. What was left out is added to `skipped`.
    """
    if not task.fused.rows.size:
        skipped.append("rerank:nothing_retrieved")
        return NOTHING_RERANKED, 0
    candidates = await asyncio.to_thread(_candidates, engine, snapshot, task)
    reading = _Reading(engine, snapshot, task.asked, candidates)
    until = rerank_until(engine, deadline, n_tokens_to_read=task.n_tokens_to_read)
    logits, why_unread = await reading.logits(task.head, until=until)
    if reading.n_retokenized:
        skipped.append("stored_tokens:other_tokenizer")
        engine.metrics.retokenized_passages.inc(reading.n_retokenized)
    if why_unread is not None:
        skipped.append(f"rerank:{why_unread}")
    n_read, n_unread = logits.size, candidates.rows.size - logits.size
    _count(engine.metrics, n_read, why_unread, n_unread=n_unread)
    if task.head is not None:
        engine.note_reranked(1.0 if why_unread == "deadline" else n_read / candidates.rows.size)
    reranked = _ranked(reading, logits)
    if reranked.not_finite.size:
        skipped.append("rerank:no_finite_score")
    return reranked, reading.inputs[0].query_cut


def _ranked(reading: _Reading, logits: Logits) -> Reranked:
    """Return the candidates that the logits (n_read,) are of, by relevance."""
    candidates, engine = reading.candidates, reading.engine
    rows, bm25_shares = candidates.rows[: logits.size], candidates.bm25_shares[: logits.size]
    relevance = engine.models.cross_encoder.calibration.relevance_logits(
        logits, candidates.dense_scores[: logits.size], bm25_shares
    )
    order, others = best_first(relevance, rows, engine.metrics)
    cut_tokens = np.array([item.passage_cut for item in reading.inputs[: logits.size]], np.int64)
    return Reranked(
        rows=rows[order],
        bm25_shares=bm25_shares[order],
        rerank_logits=logits[order].astype(np.float64),
        relevance_logits=relevance[order],
        cut_tokens=cut_tokens[order],
        not_finite=rows[others],
        n_tokens_left_out=sum(reading.left_out[: logits.size]),
    )


def rerank_until(engine: Engine, deadline: Deadline, *, n_tokens_to_read: int) -> float:
    """Return when RERANK_SHARE is over of the request's time, less what the reader needs afterwards."""
    return deadline.earlier(reading_seconds(engine, n_tokens_to_read)).share(RERANK_SHARE)


def _candidates(engine: Engine, snapshot: Snapshot, task: RerankTask) -> _Candidates:
    rows = task.fused.rows[: task.rerank_k]
    dense_scores = snapshot.dense_scores(task.encoded.vector, rows).astype(np.float32)
    bm25_shares = _bm25_shares(snapshot, task)
    priors = engine.models.cross_encoder.calibration.priors(dense_scores, bm25_shares)
    order = np.argsort(-priors, kind="stable")
    return _Candidates(rows[order], dense_scores[order], bm25_shares[order], priors[order])


def _bm25_shares(snapshot: Snapshot, task: RerankTask) -> NDArray[np.float64]:
    """Return the BM25 score of each candidate to rerank, over the best of all candidates; 0 where none has a term."""
    scores = snapshot.bm25_scores(task.asked.query, task.fused.rows)
    return scores[: task.rerank_k] / (scores.max(initial=0.0) or 1.0)


def _count(metrics: Metrics, n_read: int, why_unread: WhyUnread | None, *, n_unread: int) -> None:
    metrics.rerank_candidates.labels("read").inc(n_read)
    if why_unread is not None:
        metrics.rerank_candidates.labels(why_unread).inc(n_unread)
    if why_unread == "deadline":
        metrics.degraded.labels("rerank").inc()
