"""Texts that the caller sent, encoded by the dual encoder: search's model, batcher and deadline, and no index."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.dual_encoder import Side
from service.costs import texts_cost
from service.engine import Engine
from service.problems import Fit, InputTooLong
from service.stages import Deadline, Stages


@dataclass(frozen=True, slots=True)
class EmbedQuery:
    """Texts to encode as queries or as passages; uncut names the request's field if they may not be cut."""

    texts: Sequence[str]
    side: Side = "passage"
    uncut: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class EmbedOutcome:
    """Unit vectors (n, dimension), the tokens of each text that did not fit (n,), and all that the model read."""

    vectors: NDArray[np.float32]
    cut_tokens: list[int]
    n_tokens: int
    timings: dict[str, float]

    @property
    def n_cut(self) -> int:
        """Texts that did not fit."""
        return sum(cut > 0 for cut in self.cut_tokens)


async def embed(engine: Engine, query: EmbedQuery, deadline: Deadline | None = None) -> EmbedOutcome:
    """Return the vectors of the caller's texts, in order.

    Raises:
        InputTooLong: a text would have to be cut that may not be.
        Overloaded: too much is under way.
        DeadlineExceeded: the deadline passed, or it is sure to.
    """
    with engine.admitted(texts_cost(engine.models, query.texts), deadline) as deadline:
        return await _embed(engine, query, Stages(engine.metrics, deadline))


async def _embed(engine: Engine, query: EmbedQuery, stages: Stages) -> EmbedOutcome:
    encoder = engine.models.dual_encoder
    async with stages.stage("encode"):
        inputs = await asyncio.to_thread(encoder.inputs, query.texts, query.side)
        if query.uncut is not None:
            InputTooLong.require_fit(
                Fit((query.uncut, i), item.ids.size, item.passage_cut) for i, item in enumerate(inputs)
            )
        vectors = np.array(await engine.encoding.submit(inputs), np.float32).reshape(-1, encoder.dimension)
    assert np.isfinite(vectors).all(), "the dual encoder gives finite vectors"
    cut_tokens = [item.passage_cut for item in inputs]
    engine.metrics.truncated.labels(query.side).inc(sum(cut > 0 for cut in cut_tokens))
    return EmbedOutcome(vectors, cut_tokens, sum(item.ids.size for item in inputs), stages.timings())
