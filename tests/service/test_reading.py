"""Near the deadline an answer reranks and reads less, in that order, and says so.

Rates are set, so that what is estimated does not depend on the machine; models are held up, so that they are slow.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from fastapi.testclient import TestClient

from service.batcher import MicroBatcher
from service.costs import reading_tokens
from service.engine import Models, load_models
from service.queries import AnswerQuery
from service.reading import passages_within
from service.reranking import rerank_until
from service.settings import Settings
from service.stages import Deadline

from .conftest import started
from .test_answer import NEVER, own
from .test_http import count, engine_of, problem_of, stuck

QUERY = "who keeps bees"
TEXTS = ["bees", "the probe kept bees " * 40, "", "honey over the harbour"]


@pytest.fixture(scope="module")
def models(settings: Settings) -> Models:
    return load_models(settings)


def hurried(
    settings: Settings, change: Callable[[TestClient], None], **fields: Any
) -> tuple[dict[str, Any], TestClient]:
    """Answer from all passages within four seconds, by a service that was changed and runs one input a batch."""
    for client in started(settings.model_copy(update={"batch_tokens_per_thread": 1})):
        change(client)
        body = {"query": QUERY, "read_k": 50, "no_answer_threshold": NEVER, "timeout_ms": 4000} | fields
        response = client.post("/v1/answer", json=body)
        assert response.status_code == 200, response.text
        answered: dict[str, Any] = response.json()
    return answered, client


def measured(client: TestClient, *, seconds: float) -> None:
    """Let the reader have been measured to need so long for all passages of the index."""
    engine = engine_of(client)
    n_tokens = reading_tokens(engine.models, AnswerQuery(QUERY, read_k=50), engine.snapshot)
    engine.reading.tokens_per_second = n_tokens / seconds


def held_up(queue: MicroBatcher[Any, Any], *, seconds: float) -> None:
    queue._run = stuck(seconds=seconds, run=queue._run)


def test_reranking_leaves_the_reader_its_time(settings: Settings) -> None:
    for client in started(settings):
        engine = engine_of(client)
        deadline = Deadline(began=100.0, at=104.0)
        n_tokens = reading_tokens(engine.models, AnswerQuery(QUERY, read_k=50), engine.snapshot)
        until = partial(rerank_until, engine, deadline)
        assert until(n_tokens_to_read=0) == pytest.approx(103.2)  # as in a search
        assert until(n_tokens_to_read=n_tokens) == pytest.approx(103.2)  # the rate is not known yet
        for seconds, end in ((1.0, 102.4), (3.0, 100.8), (4.0, 100.0), (8.0, 96.8)):
            measured(client, seconds=seconds)
            assert until(n_tokens_to_read=n_tokens) == pytest.approx(end)
        measured(client, seconds=1.0)
        with engine.will_read(2 * n_tokens), engine.will_read(n_tokens):  # its own, and those of others
            assert until(n_tokens_to_read=n_tokens) == pytest.approx(100.8)
        assert engine.tokens_to_read == 0


def test_when_time_is_too_short_for_all_passages_nothing_is_reranked_and_the_best_are_read(settings: Settings) -> None:
    body, client = hurried(settings, partial(measured, seconds=8.0))
    assert (body["rerank_k_used"], body["skipped"]) == (0, ["rerank:deadline", "read:deadline"])
    assert 0 < body["n_passages_read"] < 13
    assert body["no_answer"]["reason"] == "deadline"
    assert [count(client, "tercet_degraded_total", stage=stage) for stage in ("rerank", "read")] == [1, 1]
    assert count(client, "tercet_batch_items_sum", model="cross_encoder") == 0
    best = {each["passage_id"] for each in fused(settings)[: body["n_passages_read"]]}
    assert {each["passage_id"] for each in body["answers"]} <= best


def fused(settings: Settings) -> list[dict[str, Any]]:
    for client in started(settings):
        body = client.post("/v1/search", json={"query": QUERY, "rerank": False, "top_k": 100}).json()
    results: list[dict[str, Any]] = body["results"]
    return results


def test_a_reader_slower_than_it_was_measured_to_be_still_answers_from_what_it_has_read(settings: Settings) -> None:
    body, client = hurried(settings, lambda client: held_up(engine_of(client).reading, seconds=0.6), rerank=False)
    assert body["skipped"] == ["rerank:not_requested", "read:deadline"]
    assert 0 < body["n_passages_read"] <= 6
    assert body["no_answer"]["reason"] == "deadline"
    assert count(client, "tercet_degraded_total", stage="read") == 1


def test_an_answer_found_in_what_was_read_is_one(settings: Settings) -> None:
    body, _ = hurried(settings, partial(measured, seconds=8.0), no_answer_threshold=-NEVER)
    assert body["answer"] == body["answers"][0]
    assert (body["no_answer"]["reason"], body["skipped"]) == (None, ["rerank:deadline", "read:deadline"])


def test_own_passages_are_all_read_or_it_is_a_504(settings: Settings) -> None:
    for client in started(settings.model_copy(update={"batch_tokens_per_thread": 1})):
        held_up(engine_of(client).reading, seconds=0.3)
        body = {"query": QUERY, "passages": own(*TEXTS), "timeout_ms": 1000}
        problem_of(client.post("/v1/answer", json=body), 504, "deadline-exceeded")
        read = client.post("/v1/answer", json=body | {"timeout_ms": 60_000}).json()
        assert (read["n_passages_read"], read["rerank_k_used"]) == (4, 0)
        assert count(client, "tercet_degraded_total", stage="read") == 0


def test_not_one_passage_read_is_a_504(settings: Settings) -> None:
    for client in started(settings):
        held_up(engine_of(client).reading, seconds=1.0)
        body = {"query": QUERY, "rerank": False, "timeout_ms": 500}
        problem_of(client.post("/v1/answer", json=body), 504, "deadline-exceeded")


def test_the_first_passages_of_a_task_are_what_preparing_only_them_gives(models: Models) -> None:
    task = models.reader.prepare(QUERY, TEXTS)
    for n in range(len(TEXTS) + 1):
        some = task.first(n)
        alone = models.reader.prepare(QUERY, TEXTS[:n])
        assert (some.passages, some.owners) == (alone.passages, alone.owners)
        assert [item.ids.tolist() for item in some.inputs] == [item.ids.tolist() for item in alone.inputs]


def test_so_many_passages_are_begun_as_there_are_tokens_for(models: Models) -> None:
    task = models.reader.prepare(QUERY, TEXTS)
    needed = [sum(item.ids.size for item in task.first(n).inputs) for n in range(1, len(TEXTS) + 1)]
    assert [passages_within(task, n_tokens) for n_tokens in needed] == [1, 2, 3, 4]
    assert [passages_within(task, n_tokens - 1) for n_tokens in needed] == [1, 1, 2, 3]
    assert passages_within(task, 0) == 4  # the rate is not known
    assert passages_within(models.reader.prepare(QUERY, []), 10) == 0
