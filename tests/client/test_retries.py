"""When a call is made again, and when it is not: against a small server that answers as it is told."""

import io
import json
import time
from typing import Any

import pytest

from tercet_client import ConnectionFailed, NotReady, Overloaded, Timeout, calls
from tercet_client.deadline import Deadline
from tercet_client.tries import Reply, Tries
from tests.client.conftest import Ask, Both
from tests.client.scripted import Answer, scripted

INDEXES = Answer(200, b'{"indexes": []}')
JOB = Answer(
    202,
    json.dumps(
        {
            "job_id": "a", "state": "queued", "index": "default", "source": None, "file_name": "a.txt",
            "on_error": "skip", "created_at": "2026-01-01T00:00:00Z", "from_a_newer_service": 1,
        }
    ).encode(),
)  # fmt: skip
FULL = Answer(429, b"", {"Retry-After": "0"})
STARTING = Answer(503, b"", {"Retry-After": "0"})
GONE = Answer(None)
READY = b'{"status": "ready", "engines": {"reader": "onnxruntime on cpu"}}'


def indexes(client: Any) -> Any:
    return client.indexes()


def submit(client: Any) -> Any:
    return client.jobs.submit("a.txt")


@pytest.mark.parametrize("failures", [[FULL], [STARTING], [GONE], [FULL, STARTING], [GONE, GONE]])
def test_what_can_pass_is_tried_again(both: Both, failures: list[Answer]) -> None:
    with scripted(*failures, INDEXES) as script:
        assert both(script.url, indexes) == ()
        assert len(script.requests) == len(failures) + 1
        assert len({(request.method, request.path) for request in script.requests}) == 1


@pytest.mark.parametrize(
    ("failure", "kind"), [(FULL, Overloaded), (STARTING, NotReady), (GONE, ConnectionFailed)], ids=str
)
@pytest.mark.parametrize("max_retries", [0, 1, 2])
def test_the_number_of_tries_is_bounded(both: Both, failure: Answer, kind: type[Exception], max_retries: int) -> None:
    with scripted(failure) as script:
        with pytest.raises(kind):
            both(script.url, indexes, max_retries=max_retries)
        assert len(script.requests) == 1 + max_retries


@pytest.mark.parametrize(
    "answer",
    [Answer(429), Answer(503), Answer(429, b"", {"Retry-After": "Fri, 01 Jan 2100 00:00:00 GMT"}), Answer(500)],
)
def test_what_does_not_say_when_or_will_not_pass_is_not_tried_again(both: Both, answer: Answer) -> None:
    with scripted(answer, INDEXES) as script:
        with pytest.raises(Exception, match=f"^{answer.status} "):
            both(script.url, indexes)
        assert len(script.requests) == 1


def test_no_try_comes_before_its_time_or_after_the_callers(both: Both) -> None:
    with scripted(Answer(429, b"", {"Retry-After": "1"}), INDEXES) as script:
        assert both(script.url, indexes) == ()
        first, second = (request.at for request in script.requests)
        assert second - first >= 1
    with scripted(Answer(429, b"", {"Retry-After": "60"})) as script:
        began = time.monotonic()
        with pytest.raises(Overloaded) as caught:
            both(script.url, indexes)
        assert caught.value.retry_after_seconds == 60
        assert time.monotonic() - began < 30
        assert len(script.requests) == 1


def test_all_tries_share_one_time_and_the_service_is_told_what_is_left(both: Both) -> None:
    with scripted(GONE, GONE, Answer(200, pause_seconds=5)) as script:
        with pytest.raises(Timeout):
            both(script.url, lambda client: client.search("bees", timeout=2))
        told = [json.loads(request.content)["timeout_ms"] for request in script.requests]
    assert len(told) == 3
    assert 2000 >= told[0] > told[1] > told[2] > 0


@pytest.mark.parametrize(("timeout", "milliseconds"), [(1e9, 600_000), (float("inf"), 600_000), (1e-9, 1)])
def test_the_time_that_is_told_is_one_that_the_service_takes(timeout: float, milliseconds: int) -> None:
    tries = Tries(calls.search("bees", {}), Deadline(timeout), max_retries=0)
    import httpx

    with httpx.Client(base_url="http://localhost") as http:
        assert json.loads(tries.request(http, None).content)["timeout_ms"] == milliseconds


def test_a_job_is_posted_again_only_if_it_was_surely_not_taken(both: Both) -> None:
    with scripted(FULL, STARTING, JOB) as script:
        assert both(script.url, submit).job_id == "a"
        assert len(script.requests) == 3
    for failure, kind, timeout in ((GONE, ConnectionFailed, 30), (Answer(202, pause_seconds=60), Timeout, 1)):
        with scripted(failure, JOB) as script:
            with pytest.raises(kind, match=r"\. The job may have been taken: look before you send it again\.$"):
                both(script.url, submit, timeout=timeout)
            assert len(script.requests) == 1


def test_a_file_is_sent_again_from_where_it_began_if_that_can_be_done(both: Both) -> None:
    file = io.BytesIO(b"skipped, sent")
    file.seek(9)
    with scripted(FULL, JOB) as script:
        both(script.url, lambda client: client.jobs.upload(file, file_name="a.txt"))
        assert [request.content for request in script.requests] == [b"sent", b"sent"]
        assert {request.headers["content-length"] for request in script.requests} == {"4"}

    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

    with scripted(FULL, JOB) as script:
        with pytest.raises(Overloaded):
            both(script.url, lambda client: client.jobs.upload(Pipe(b"sent"), file_name="a.txt"))
        [request] = script.requests
        assert (request.content, request.headers["transfer-encoding"]) == (b"sent", "chunked")


@pytest.mark.parametrize("probe", [lambda client: client.health(), lambda client: client.ready()])
def test_a_probe_is_asked_once(both: Both, probe: Ask) -> None:
    with scripted(STARTING) as script:
        with pytest.raises(NotReady):
            both(script.url, probe)
        assert len(script.requests) == 1


def test_waiting_for_a_service_outlasts_whatever_stands_before_it(both: Both) -> None:
    answers = [GONE, Answer(502, b"<html>"), Answer(503, b"<html>"), STARTING, Answer(200, READY)]
    with scripted(*answers) as script:
        both(script.url, lambda client: client.wait_until_ready())
        assert len(script.requests) == len(answers)


def test_pauses_grow_differ_and_keep_to_what_the_service_asked_for() -> None:
    def pauses(reply: Reply) -> list[float]:
        tries = Tries(calls.indexes(), Deadline(1000), max_retries=5)
        return [pause for _ in range(6) if (pause := tries.pause_after(reply)) is not None]

    asked = pauses(Reply(429, {"retry-after": "7"}, b""))
    assert len(asked) == len(set(asked)) == 5
    assert all(7 <= pause <= 7 * 1.25 for pause in asked)
    at_once = pauses(Reply(503, {"retry-after": "0"}, b""))
    assert all(least <= pause <= 1.25 * least for least, pause in zip([0.1, 0.2, 0.4, 0.8, 1.6], at_once, strict=True))
