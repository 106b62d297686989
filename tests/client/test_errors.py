"""Each exception, provoked for real: what it is, what it says, and what it does not show."""

import pickle
import socket
import time
from typing import Any

import pytest

from service.app import begin_draining
from service.settings import Settings
from tercet_client import (
    ApiError,
    Client,
    Conflict,
    ConnectionFailed,
    DeadlineExceeded,
    Fault,
    Forbidden,
    InvalidRequest,
    NotFound,
    NotReady,
    Overloaded,
    ServerFailed,
    Timeout,
    Unauthorized,
    UnexpectedResponse,
)
from tests.client.conftest import Ask, Both, Served, serving
from tests.client.scripted import Answer, scripted


def refused(both: Both, url: str, ask: Ask, **settings: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        both(url, ask, **{"max_retries": 0, **settings})
    return caught.value


@pytest.mark.parametrize(
    ("ask", "kind", "type_", "pointers"),
    [
        (lambda c: c.search(" ", tpo_k=3), InvalidRequest, "invalid-request", ["#/query", "#/tpo_k"]),
        (lambda c: c.answer("a", passages=[{"id": "a"}]), InvalidRequest, "invalid-request", ["#/passages/0/text"]),
        (lambda c: c.search("\ud800"), InvalidRequest, "malformed-body", []),
        (lambda c: c.search("a" * 4_000_000), InvalidRequest, "body-too-large", []),
        (lambda c: c.search("a", min_score=float("nan")), InvalidRequest, "malformed-body", []),
        (lambda c: c.search("a", index="other"), NotFound, "unknown-index", []),
        (lambda c: c.document("nothing"), NotFound, "unknown-document", []),
        (lambda c: c.document("alpha/../beta"), NotFound, "unknown-document", []),
        (lambda c: c.document("\ud800"), NotFound, "unknown-document", []),
        (lambda c: c.jobs.get("nothing"), NotFound, "unknown-job", []),
        (lambda c: c.jobs.get(".."), NotFound, "unknown-job", []),
        (lambda c: c.jobs.submit("../x"), InvalidRequest, "invalid-request", ["#/source"]),
        (lambda c: c.jobs.list(limit=0), InvalidRequest, "invalid-request", ["#/limit"]),
    ],
)  # fmt: skip
def test_what_the_service_refuses_is_an_exception_with_its_problem(
    served: Served, both: Both, ask: Ask, kind: type[ApiError], type_: str, pointers: list[str]
) -> None:
    error = refused(both, served.url, ask)
    assert type(error) is kind
    assert error.type == f"/problems/{type_}"
    assert sorted(fault.pointer for fault in error.errors) == sorted(pointers)
    assert error.title
    assert error.request_id is not None
    assert str(error).startswith(f"{error.status} {error.title}")
    assert error.request_id in str(error)
    assert all(f"{fault.pointer}: {fault.detail}" in str(error) for fault in error.errors)


def test_jobs_that_the_operator_does_not_want_are_forbidden_and_one_that_is_over_conflicts(
    served: Served, settings: Settings, both: Both
) -> None:
    job_id = both(served.url, lambda client: client.jobs.submit("manuals", index="over")).job_id
    both(served.url, lambda client: client.jobs.wait(job_id))
    assert type(refused(both, served.url, lambda client: client.jobs.cancel(job_id))) is Conflict
    with serving(settings) as without_jobs:
        assert type(refused(both, without_jobs.url, lambda client: client.jobs.list())) is Forbidden


def test_a_full_service_is_overloaded_and_one_that_stops_not_ready(settings: Settings, both: Both) -> None:
    with serving(settings.model_copy(update={"max_admitted_tokens": 1})) as full:
        admission = full.app.state.engine.admission
        admission.tokens, admission.n_requests = 5, 1  # as if a request were under way
        error = refused(both, full.url, lambda client: client.search("bees"))
        assert isinstance(error, Overloaded)
        assert error.retry_after_seconds is not None
        assert error.retry_after_seconds >= 1
        begin_draining(full.app)
        error = refused(both, full.url, lambda client: client.ready())
        assert isinstance(error, NotReady)
        assert error.retry_after_seconds == 2


def test_the_callers_time_is_the_service_s_deadline_too(settings: Settings, both: Both) -> None:
    with serving(settings.model_copy(update={"request_timeout_seconds": 1e-9})) as hasty:
        error = refused(both, hasty.url, lambda client: client.search("bees"))
        assert type(error) is DeadlineExceeded
        assert isinstance(error, Timeout)


def test_a_service_that_is_not_there_is_a_failed_connection_that_names_it(both: Both) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConnectionFailed, match=f"^The connection to {url} failed: "):
            both(url, lambda client: client.health())
        with pytest.raises(
            Timeout, match=rf"^The service is not ready within 0\.3 s: The connection to {url} failed: "
        ):
            both(url, lambda client: client.wait_until_ready(timeout=0.3))


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, InvalidRequest),
        (401, Unauthorized),
        (403, Forbidden),
        (405, ApiError),
        (413, InvalidRequest),
        (429, Overloaded),
        (500, ServerFailed),
        (502, ServerFailed),
        (503, NotReady),
        (504, DeadlineExceeded),
    ],
)
def test_the_page_of_a_gateway_speaks_for_the_service(both: Both, status: int, kind: type[ApiError]) -> None:
    with scripted(Answer(status, b"<html>", {"Content-Type": "text/html"})) as script:
        error = refused(both, script.url, lambda client: client.search("bees"))
    assert type(error) is kind
    assert (error.type, error.status, error.errors, error.request_id) == ("about:blank", status, (), None)


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (Answer(200, b"<html>"), "is no JSON"),
        (Answer(200, b""), "is no JSON"),
        (Answer(200, b"[]"), "at # an object is expected, not a list"),
        (Answer(200, b'{"indexes": 3}'), "at #/indexes a list is expected, not a whole number"),
        (Answer(200, b'{"indexes": [{"index": "a"}]}'), "at #/indexes/0 the field `snapshot` is missing"),
        (Answer(200, b"no gzip", {"Content-Encoding": "gzip"}), "cannot be decompressed"),
        (Answer(204, b""), "is no JSON"),
        (Answer(307, b"", {"Location": "/elsewhere"}), r"Is this a Tercet service\? .* 307 Temporary Redirect"),
        (Answer(404, b"<html>"), r"Is this a Tercet service\? .* 404 Not Found"),
    ],
)
def test_a_body_that_the_api_does_not_promise_is_unexpected(both: Both, answer: Answer, fault: str) -> None:
    with scripted(answer) as script, pytest.raises(UnexpectedResponse, match=fault):
        both(script.url, lambda client: client.indexes())


def test_a_connection_that_breaks_in_the_response_is_told_and_not_tried_again(both: Both) -> None:
    with scripted(Answer(200, b"{", {"Content-Length": "100"})) as script:
        with pytest.raises(ConnectionFailed, match="closed connection without sending complete message body"):
            both(script.url, lambda client: client.indexes())
        assert len(script.requests) == 1


@pytest.mark.parametrize(
    "slow", [Answer(200, b"{}", pause_seconds=5), Answer(200, b"{" + b" " * 500, drip_seconds=0.1)]
)
def test_a_timeout_is_one_time_for_the_whole_call(both: Both, slow: Answer) -> None:
    with scripted(slow) as script:
        began = time.monotonic()
        with pytest.raises(Timeout, match=r"^The response has not come within 0\.5 s\.$"):
            both(script.url, lambda client: client.indexes(timeout=0.5))
        assert 0.5 <= time.monotonic() - began < 4
        with pytest.raises(Timeout):
            both(script.url, lambda client: client.indexes(), timeout=0.2)


def test_an_api_key_is_sent_and_never_shown(both: Both) -> None:
    with scripted(Answer(401, b"{}")) as script:
        error = refused(both, script.url, lambda client: client.health(), api_key="tct_secret")
        [request] = script.requests
    assert request.headers["authorization"] == "Bearer tct_secret"
    assert "secret" not in f"{error!r} {error}"
    for key in ("", "tct_secret\n", "tct secret", "tct_secrét"):
        with pytest.raises(ValueError, match=r"^api_key ") as caught:
            Client(api_key=key)
        assert "tct" not in str(caught.value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"base_url": "127.0.0.1:8000"},
        {"base_url": "localhost"},
        {"base_url": "ftp://localhost"},
        {"base_url": "http://"},
        {"base_url": "http://a:b:c"},
        {"timeout": 0},
        {"timeout": -1.0},
        {"timeout": float("nan")},
        {"max_retries": -1},
    ],
)
def test_a_client_that_makes_no_sense_is_refused_at_once(wrong: dict[str, Any]) -> None:
    [name] = wrong
    with pytest.raises(ValueError, match=f"(?i)^(a )?{name} "):
        Client(**wrong)


def test_exceptions_go_from_process_to_process(served: Served) -> None:
    with Client(served.url) as client, pytest.raises(InvalidRequest) as caught:
        client.search("")
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is InvalidRequest
    assert str(again) == str(caught.value)
    assert again.errors == caught.value.errors
    assert isinstance(again.errors[0], Fault)
