"""Whether a new snapshot may take the place of the current one: by the queries that an operator cares about.

Each query is searched and answered over both, as the service would. Two figures must not fall by more than is allowed:
the mean nDCG@10 of the queries with judgements, and the share of all queries that get an answer.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import orjson

from models.errors import DataError
from service.engine import Engine
from service.evaluate import SERVED, JudgedQuery, measure, read_judged_queries
from service.pipeline import answer
from service.queries import AnswerQuery

_NAMES = {"ndcg_at_10": "nDCG@10", "answer_rate": "the answer rate"}


@dataclass(frozen=True, slots=True)
class Gate:
    """Queries, and by how much nDCG@10 and the answer rate may fall, both in [0, 1]."""

    queries: Sequence[JudgedQuery]
    max_ndcg_drop: float = 0.01
    max_answer_drop: float = 0.02


@dataclass(frozen=True, slots=True)
class QueryResult:
    """What one snapshot made of one query; ndcg is None where nothing is judged relevant."""

    query: JudgedQuery
    ndcg: float | None
    is_answered: bool


@dataclass(frozen=True, slots=True)
class Loss:
    """A query that the new snapshot serves worse."""

    query_id: str
    ndcg_before: float | None
    ndcg_after: float | None
    lost_answer: bool

    @property
    def fall(self) -> float:
        """By how much nDCG@10 fell, negative where it rose; 0 without judgements."""
        if self.ndcg_before is None or self.ndcg_after is None:
            return 0.0
        return self.ndcg_before - self.ndcg_after


@dataclass(frozen=True, slots=True)
class GateOutcome:
    """Both figures before and after, None where there is nothing to compare, and the losses, the greatest first.

    reasons say which figure fell by more than is allowed; none, and the snapshot may be published.
    """

    after: Mapping[str, float]
    before: Mapping[str, float] | None
    losses: Sequence[Loss]
    reasons: Sequence[str]


def read_gate_queries(path: Path) -> list[JudgedQuery]:
    """Return the judged queries of a BEIR folder, its test split, or of a JSON Lines file.

    Each line is `{"query": …}` with `"id"`, by default the line's number, and `"relevant"`, a list of document ids or
    an object of their grades; without it only the answer counts.

    Raises:
        DataError: a line or the folder is malformed, or there is no query.
    """
    if path.is_dir():
        return read_judged_queries(path, split="test", limit=None)
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    queries = [_query(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not queries:
        raise DataError(f"{path} holds no query")
    return queries


def _query(path: Path, number: int, line: bytes) -> JudgedQuery:
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise DataError(f"{path}, line {number}: not JSON") from error
    query = record.get("query") if isinstance(record, dict) else None
    if not isinstance(query, str) or not query.strip():
        raise DataError(f"{path}, line {number}: `query` must be a text that is not blank")
    relevant = record.get("relevant", {})
    if isinstance(relevant, list):
        relevant = dict.fromkeys(map(str, relevant), 1)
    if not isinstance(relevant, dict) or not all(isinstance(grade, int) for grade in relevant.values()):
        raise DataError(f"{path}, line {number}: `relevant` must be a list of ids, or an object of whole grades by id")
    return JudgedQuery(str(record.get("id", number)), query, relevant)


async def try_queries(
    engine: Engine, queries: Sequence[JudgedQuery], on_done: Callable[[int], None] = lambda n: None
) -> list[QueryResult]:
    """Search and answer every query over the engine's index, one at a time; on_done learns how many are done."""
    results: list[QueryResult] = []
    for query in queries:
        [ranked] = await measure(engine, [query], SERVED)
        outcome = await answer(engine, AnswerQuery(query.query))
        is_judged = any(grade > 0 for grade in query.judgements.values())
        results.append(QueryResult(query, ranked.measures[0] if is_judged else None, outcome.answer is not None))
        on_done(len(results))
    return results


def compare(after: Sequence[QueryResult], before: Sequence[QueryResult] | None, gate: Gate) -> GateOutcome:
    """Return what a gate makes of the results of the new snapshot and of the current one, None if there is none.

    Worked example: nDCG@10 of two queries 1 and .5 before, 1 and .4 after: the mean fell by .05 from .75 to .70, more
    than .01, and the second query is the loss.
    """
    now = _figures(after)
    if before is None:
        return GateOutcome(now, None, (), ())
    then = _figures(before)
    allowed = {"ndcg_at_10": gate.max_ndcg_drop, "answer_rate": gate.max_answer_drop}
    reasons = [
        f"{_NAMES[name]} fell from {then[name]:.3f} to {now[name]:.3f}, by more than {most:g}"
        for name, most in allowed.items()
        if name in now and then[name] - now[name] > most + 1e-9
    ]
    losses = [_loss(new, old) for new, old in zip(after, before, strict=True)]
    worse = [loss for loss in losses if loss.lost_answer or loss.fall > 0]
    return GateOutcome(now, then, sorted(worse, key=lambda loss: (-loss.fall, not loss.lost_answer)), reasons)


def _figures(results: Sequence[QueryResult]) -> dict[str, float]:
    judged = [result.ndcg for result in results if result.ndcg is not None]
    ndcg = {"ndcg_at_10": fmean(judged)} if judged else {}
    return ndcg | {"answer_rate": fmean(float(result.is_answered) for result in results)}


def _loss(after: QueryResult, before: QueryResult) -> Loss:
    lost_answer = before.is_answered and not after.is_answered
    return Loss(after.query.query_id, before.ndcg, after.ndcg, lost_answer)
