"""A service with keys over HTTP: who gets in, who does not, and what either is told."""

import logging
import threading
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any

import anyio.from_thread
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from service.access import Access
from service.keys import Limits
from service.scopes import SCOPE_OF_ROUTE, KeyScope, asked_route
from service.settings import Settings

from .conftest import started
from .keyed import add_key, at, bearer, keyed_settings, revoke
from .test_access import Clock
from .test_http import problem_of

SEARCH = {"query": "honey"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keyed")


@pytest.fixture(scope="module")
def keys(folder: Path) -> dict[str, str]:
    """Keys by name: one of each scope, and one that is over."""
    texts = {scope.value: add_key(folder, scope.value, scope) for scope in KeyScope}
    return texts | {"over": add_key(folder, "over", expires_at=at(1))}


@pytest.fixture(scope="module")
def keyed(settings: Settings, folder: Path, keys: dict[str, str]) -> Iterator[TestClient]:
    yield from started(keyed_settings(settings, folder))


def access_of(client: TestClient) -> Access:
    application = client.app
    assert isinstance(application, FastAPI)
    access: Access = application.state.access
    return access


def look(client: TestClient) -> None:
    """Let the service see now what has changed, and not a second later."""
    assert client.portal is not None
    client.portal.call(access_of(client).look)


def test_every_route_but_probes_and_pages_is_closed_without_a_key(keyed: TestClient) -> None:
    for path, needs in SCOPE_OF_ROUTE.items():
        url = asked_route(path).template.replace("{name}", "style.css").replace("{", "").replace("}", "")
        for method in ("GET", "POST", "DELETE", "HEAD", "OPTIONS", "PATCH"):
            status = keyed.request(method, url).status_code
            assert (status == 401) == (needs != "nothing"), (method, url)
    assert keyed.get("/v1/nothing").status_code == 401


def test_without_a_key_nobody_is_asked_for_a_body(keyed: TestClient) -> None:
    async def receive() -> dict[str, Any]:
        raise AssertionError("a body was asked for")

    async def send(message: MutableMapping[str, Any]) -> None:
        statuses.append(message.get("status"))

    statuses: list[object] = []
    for path in ("/v1/search", "/v1/jobs", "/v1/jobs/upload", "/v1/nothing"):
        headers = [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"content-length", b"20")]
        headers.append((b"expect", b"100-continue"))  # a body that comes unasked is thrown away
        scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": headers}
        assert keyed.portal is not None
        keyed.portal.call(keyed.app, scope, receive, send)
    assert statuses == [401, None] * 4


def test_a_key_opens_what_its_scope_says(keyed: TestClient, keys: dict[str, str]) -> None:
    assert keyed.post("/v1/search", json=SEARCH, headers=bearer(keys["search"])).status_code == 200
    assert keyed.post("/v1/search", json=SEARCH, headers={"X-API-Key": keys["admin"]}).status_code == 200
    assert keyed.get("/metrics", headers=bearer(keys["metrics"])).status_code == 200
    problem_of(keyed.get("/v1/jobs", headers=bearer(keys["index"])), 403, "jobs-disabled")
    problem_of(keyed.get("/v1/nothing", headers=bearer(keys["metrics"])), 404, "unknown-route")
    for name, path in (("index", "/v1/indexes"), ("search", "/v1/jobs"), ("search", "/metrics")):
        refused = keyed.get(path, headers=bearer(keys[name]))
        problem = problem_of(refused, 403, "scope-missing")
        needed = SCOPE_OF_ROUTE[path]
        assert problem["detail"] == f"This needs a key with the scope `{needed}`."
        challenge = f'Bearer realm="tercet", error="insufficient_scope", scope="{needed}"'
        assert refused.headers["www-authenticate"] == challenge


def test_what_is_no_key_is_a_401_that_says_what_may_be_said(keyed: TestClient, keys: dict[str, str]) -> None:
    missing = keyed.get("/v1/indexes")
    problem_of(missing, 401, "key-missing")
    assert missing.headers["www-authenticate"] == 'Bearer realm="tercet"'
    for text, said in ((keys["search"][:-1], "mistyped"), (keys["over"], "expired"), ("ü" * 9, "mistyped")):
        refused = keyed.get("/v1/indexes", headers={b"x-api-key": text.encode("latin-1")})
        assert said in problem_of(refused, 401, "key-refused")["detail"]
        assert refused.headers["www-authenticate"] == 'Bearer realm="tercet", error="invalid_token"'
        assert text not in refused.text


def test_probes_and_pages_need_none_and_mind_none(keyed: TestClient) -> None:
    for path in ("/healthz", "/readyz", "/", "/docs", "/openapi.json", "/page/search.js"):
        assert keyed.get(path, headers=bearer("nonsense")).status_code == 200


def test_a_key_that_is_made_counts_and_one_that_is_revoked_does_not(keyed: TestClient, folder: Path) -> None:
    text = add_key(folder, "short-lived")
    look(keyed)
    assert keyed.get("/v1/indexes", headers=bearer(text)).status_code == 200
    revoke(folder, ["short-lived"])
    look(keyed)
    assert "revoked" in problem_of(keyed.get("/v1/indexes", headers=bearer(text)), 401, "key-refused")["detail"]


def test_requests_beyond_a_key_s_rate_are_a_429_that_says_when_to_come_back(settings: Settings, tmp_path: Path) -> None:
    clock = Clock()
    text = add_key(tmp_path, "slow", limits=Limits(requests_per_minute=2))

    def turn(app: FastAPI) -> None:
        app.state.access._steady_clock = clock

    for client in started(keyed_settings(settings, tmp_path), turn):
        clock.now += 3600
        first, second, third = (client.get("/v1/indexes", headers=bearer(text)) for _ in range(3))
        assert [first.status_code, second.status_code] == [200, 200]
        assert (first.headers["ratelimit-policy"], first.headers["ratelimit"]) == (
            '"requests";q=2;w=60',
            '"requests";r=1;t=30',
        )
        problem = problem_of(third, 429, "key-at-limit")
        assert problem["detail"] == "This key may send 2 requests a minute."
        assert (third.headers["retry-after"], third.headers["ratelimit"]) == ("30", '"requests";r=0;t=30')
        clock.now += 30
        assert client.get("/v1/indexes", headers=bearer(text)).status_code == 200
        assert client.get("/healthz", headers=bearer(text)).status_code == 200


def test_requests_beyond_those_a_key_may_have_under_way_are_a_429(settings: Settings, tmp_path: Path) -> None:
    text = add_key(tmp_path, "one", limits=Limits(concurrent=1))
    begun, ending = threading.Event(), threading.Event()

    def slow_route(app: FastAPI) -> None:
        def wait() -> None:
            begun.set()
            ending.wait(30)

        app.add_api_route("/slow", wait)

    for client in started(keyed_settings(settings, tmp_path), slow_route):
        with anyio.from_thread.start_blocking_portal() as others:
            running = others.start_task_soon(_get, client.app, "/slow", text)
            assert begun.wait(30)
            refused = client.get("/v1/indexes", headers=bearer(text))
            problem = problem_of(refused, 429, "key-at-limit")
            assert problem["detail"] == "This key may have 1 requests under way at once."
            assert refused.headers["retry-after"] == "1"
            ending.set()
            assert running.result(30) == 200
        assert client.get("/v1/indexes", headers=bearer(text)).status_code == 200


async def _get(app: Any, path: str, text: str) -> int:
    """Send a request beside the client, which sends one after the other."""
    statuses: list[int] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    headers = [(b"host", b"localhost"), (b"authorization", f"Bearer {text}".encode())]
    await app({"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": headers}, receive, send)
    return statuses[0]


def test_a_request_is_logged_and_counted_by_its_key_and_never_with_it(
    keyed: TestClient, keys: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        keyed.get("/v1/indexes", headers=bearer(keys["search"]))
        keyed.get("/v1/jobs", headers=bearer(keys["search"]))
        keyed.get("/v1/indexes", headers=bearer(keys["over"]))
        keyed.get("/v1/indexes", headers={"x-api-key": f"{keys['search']}x"})
    lines = [vars(record) for record in caplog.records if record.name == "service.requests"]
    told = [(line["route"], line["status"], line.get("key_id")) for line in lines]
    key_id = keys["search"][7:15]
    assert told == [
        ("/v1/indexes", 200, key_id), ("/v1/jobs", 403, key_id), ("/v1/indexes", 401, None), ("/v1/indexes", 401, None)
    ]  # fmt: skip
    metrics = keyed.get("/metrics", headers=bearer(keys["metrics"])).text
    for text in keys.values():
        assert text[16:] not in str(lines) + metrics
        assert text[7:15] not in metrics
    assert 'tercet_key_requests_total{key="search",outcome="scope_missing"}' in metrics
    assert 'tercet_requests_total{method="GET",route="/v1/indexes",status="401"}' in metrics


def test_refusals_have_the_headers_of_every_response(keyed: TestClient, keys: dict[str, str]) -> None:
    for response in (keyed.get("/v1/indexes"), keyed.get("/v1/jobs", headers=bearer(keys["search"]))):
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["cache-control"] == "no-store"
        assert len(response.headers["x-request-id"]) == 32
