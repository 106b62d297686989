"""The read stage: the reader reads the best passages, as many as the deadline allows."""

import asyncio
from collections.abc import Sequence

import numpy as np

from models.reader import ReaderTask, Reading, SpanLogits
from service.answers import Source
from service.engine import Engine
from service.problems import DeadlineExceeded
from service.queries import AnswerQuery
from service.stages import Deadline

READ_SHARE = 0.9  # of the time left when reading begins; the rest is for the decision and the response


def reading_seconds(engine: Engine, n_tokens: int) -> float:
    """Return how long the reader needs for so many tokens beside those of all answers; 0 while its rate is not known.

    Answers that came together are reranked together, and then they want to be read at the same moment.
    """
    rate = engine.reading_rate()
    return max(engine.tokens_to_read, n_tokens) / rate if n_tokens and rate > 0 else 0.0


async def read(
    engine: Engine, query: AnswerQuery, sources: Sequence[Source], deadline: Deadline, skipped: list[str]
) -> tuple[Reading, int]:
    """Return what the reader makes of the sources, best first, and how many of them it has read.

    The caller's own passages are all read. Of those found, the first are that can be in READ_SHARE of the time left;
    if these are not all, that is added to `skipped`.

    Raises:
        DeadlineExceeded: not one could be read.
    """
    reader = engine.models.reader
    task = await asyncio.to_thread(reader.prepare, query.query, [source.text for source in sources])
    if query.passages is None:
        task, logits = await _read_in_time(engine, task, deadline)
    else:
        logits = await engine.reading.submit(task.inputs)
    n_read = len(task.passages)
    if n_read < len(sources):
        skipped.append("read:deadline")
        engine.metrics.degraded.labels("read").inc()
    decided = await asyncio.to_thread(
        reader.decide, task, logits, n_best=query.top_k, threshold=query.no_answer_threshold
    )
    return decided, n_read


async def _read_in_time(
    engine: Engine, task: ReaderTask, deadline: Deadline
) -> tuple[ReaderTask, Sequence[SpanLogits]]:
    """Return the passages that were wholly read, and their logits.

    A batch is done as a whole or not at all, so no more is begun than this answer's share of what can be done at the
    rate measured: who comes first would leave nothing to those that come with it.
    """
    until = deadline.earlier((1 - READ_SHARE) * deadline.seconds_left())
    own = sum(item.ids.size for item in task.inputs)
    share = own / max(engine.tokens_to_read, own, 1)
    begun = task.first(passages_within(task, share * engine.reading_rate() * until.seconds_left()))
    logits = await engine.reading.submit_until(begun.inputs, until.at)
    read = begun.first(begun.owners[len(logits)]) if len(logits) < len(begun.owners) else begun
    if task.passages and not read.passages:
        raise DeadlineExceeded("Not one passage could be read before the deadline.")
    return read, logits[: len(read.windows)]


def passages_within(task: ReaderTask, n_tokens: float) -> int:
    """Return how many passages, from the first on and at least one, have windows of so many tokens; all for 0."""
    if n_tokens <= 0 or not task.passages:
        return len(task.passages)
    tokens = np.bincount(task.owners, [item.ids.size for item in task.inputs])  # each passage has a window
    return max(1, int(np.searchsorted(np.cumsum(tokens), n_tokens, side="right")))
