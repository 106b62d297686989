"""Documents that the caller sent, ranked by the cross-encoder: search's model, batcher and deadline, and no index.

Order is by logit descending, then by place in the request. A document without a score, because it is blank or the
model's number for it is not finite, comes after all others with LOWEST_LOGIT, whose sigmoid is 0.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from models.calibration import sigmoid
from models.cross_encoder import PairTask
from service.candidates import best_first
from service.costs import pairs_cost
from service.engine import Engine
from service.problems import Fit, InputTooLong
from service.stages import Deadline, Stages

PairScoreKind: TypeAlias = Literal["relevance", "relevance_logit", "rerank_sigmoid", "rerank_logit"]
Unscored: TypeAlias = Literal["blank", "no_finite_score"]

LOWEST_LOGIT = float(np.finfo(np.float32).min)


@dataclass(frozen=True, slots=True)
class RerankQuery:
    """What to rank by, and what. Every document is scored; top_n and min_score say which are returned, None for all.

    A document is read in at most max_windows windows, None for as many as hold it, and no further than
    max_document_tokens. uncut names the field of the request whose texts may not be cut, None where they may.
    """

    query: str
    documents: Sequence[str]
    top_n: int | None = None
    min_score: float | None = None
    raw_scores: bool = False
    max_windows: int | None = 1
    max_document_tokens: int | None = None
    uncut: str | None = None


@dataclass(frozen=True, slots=True)
class RankedDocument:
    """documents[index] with its score. Of its n_tokens tokens, cut_tokens were not read.

    window is the slice of its text that earned the score, None where one window is read of each document.
    """

    index: int
    score: float
    unscored: Unscored | None
    n_tokens: int
    cut_tokens: int
    window: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class RerankOutcome:
    """The best documents, best first, and how that came about; n_tokens are all that the model read."""

    results: list[RankedDocument]
    score_kind: PairScoreKind
    n_documents: int
    n_unscored: int
    n_documents_cut: int
    query_cut_tokens: int
    n_tokens: int
    timings: dict[str, float]


async def rerank(engine: Engine, query: RerankQuery, deadline: Deadline | None = None) -> RerankOutcome:
    """Return the caller's documents by relevance.

    Raises:
        InputTooLong: something would have to be cut that may not be.
        Overloaded: too much is under way.
        DeadlineExceeded: the deadline passed, or it is sure to.
    """
    cost = pairs_cost(
        query.query,
        query.documents,
        engine.models.cross_encoder.lengths,
        max_windows=query.max_windows,
        max_text_tokens=query.max_document_tokens,
    )
    with engine.admitted(cost, deadline) as deadline:
        return await _rerank(engine, query, Stages(engine.metrics, deadline))


async def _rerank(engine: Engine, query: RerankQuery, stages: Stages) -> RerankOutcome:
    cross_encoder = engine.models.cross_encoder
    async with stages.stage("rerank"):
        task = await asyncio.to_thread(
            cross_encoder.prepare,
            query.query,
            query.documents,
            max_windows=query.max_windows,
            max_passage_tokens=query.max_document_tokens,
        )
        if query.uncut is not None:
            max_query_tokens = cross_encoder.lengths.max_query_tokens
            InputTooLong.require_fit(_fits(task, query.uncut, max_query_tokens=max_query_tokens))
        logits = np.array(await engine.reranking.submit(task.inputs), np.float32)
    async with stages.stage("respond"):
        ranked = await asyncio.to_thread(_ranked, engine, query, task, logits)
    n_cut = int((task.cut_tokens > 0).sum())
    engine.metrics.count_cut(query_tokens=task.query_cut, n_passages=n_cut)
    return RerankOutcome(
        results=[each for each in ranked if query.min_score is None or each.score >= query.min_score][: query.top_n],
        score_kind=_score_kind(engine, query),
        n_documents=len(ranked),
        n_unscored=sum(each.unscored is not None for each in ranked),
        n_documents_cut=n_cut,
        query_cut_tokens=task.query_cut,
        n_tokens=sum(item.ids.size for item in task.inputs),
        timings=stages.timings(),
    )


def _fits(task: PairTask, field: str, *, max_query_tokens: int) -> Iterator[Fit]:
    yield Fit(("query",), max_query_tokens, task.query_cut)
    for i, (tokens, n_cut) in enumerate(zip(task.tokens, task.cut_tokens.tolist(), strict=True)):
        yield Fit((field, i), tokens.ids.size - n_cut, n_cut)


def _ranked(engine: Engine, query: RerankQuery, task: PairTask, logits: NDArray[np.float32]) -> list[RankedDocument]:
    """Return every document, best first."""
    read = np.unique(task.owners)
    best = task.best_windows(logits)
    rerank_logits = np.append(logits, np.float32(np.nan))[best[read]]  # -1, for no window, takes the last
    relevance_logits = engine.models.cross_encoder.pair_calibration.pair_logits(rerank_logits)
    order, others = best_first(relevance_logits, read, engine.metrics)
    scores = relevance_logits if query.raw_scores else sigmoid(relevance_logits)
    lowest = LOWEST_LOGIT if query.raw_scores else 0.0
    unscored: dict[int, Unscored] = dict.fromkeys(read[others].tolist(), "no_finite_score")
    unscored |= dict.fromkeys(np.setdiff1d(np.arange(best.size), read).tolist(), "blank")
    scored = dict(zip(read[order].tolist(), scores[order].tolist(), strict=True))
    return [
        RankedDocument(
            index=i,
            score=score,
            unscored=unscored.get(i),
            n_tokens=task.tokens[i].ids.size,
            cut_tokens=int(task.cut_tokens[i]),
            window=_slice(task, int(best[i])) if query.max_windows != 1 and i in scored else None,
        )
        for i, score in (scored | dict.fromkeys(sorted(unscored), lowest)).items()
    ]


def _slice(task: PairTask, window: int) -> tuple[int, int]:
    """Return what a window holds of its document, in code points."""
    place = task.windows[window]
    offsets = task.tokens[int(task.owners[window])].offsets
    return int(offsets[place.passage_start, 0]), int(offsets[place.passage_end - 1, 1])


def _score_kind(engine: Engine, query: RerankQuery) -> PairScoreKind:
    if engine.models.cross_encoder.folder.settings.pair_relevance is not None:
        return "relevance_logit" if query.raw_scores else "relevance"
    return "rerank_logit" if query.raw_scores else "rerank_sigmoid"
