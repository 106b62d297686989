"""The edge: strict bodies, problem documents for every fault, headers, logs without user text, counted requests."""

import asyncio
import logging
import re
import time
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

import orjson
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from httpx2 import Response
from prometheus_client.parser import text_string_to_metric_families

from service.app import begin_draining, create_app
from service.engine import Engine
from service.logs import JsonFormatter
from service.problems import ClientLeft, DeadlineExceeded
from service.routes import while_connected
from service.settings import Settings

from .conftest import started

JSON = {"content-type": "application/json"}
SECRET = "zanzibarquux"


def problem_of(response: Response, status: int, kind: str) -> dict[str, Any]:
    assert (response.status_code, response.headers["content-type"]) == (status, "application/problem+json")
    body: dict[str, Any] = response.json()
    assert (body["status"], body["type"]) == (status, f"/problems/{kind}")
    assert body["request_id"] == response.headers["x-request-id"]
    return body


def post(client: TestClient, content: bytes, path: str = "/v1/search", **headers: str) -> Response:
    return client.post(path, content=content, headers=JSON | headers)


def faults(response: Response) -> dict[str, str]:
    return {each["pointer"]: each["detail"] for each in problem_of(response, 422, "invalid-request")["errors"]}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b'{"query": ',
        b'{"query": NaN}',
        b'{"query": "a", "top_k": 1e999}',
        b'{"query": "\\ud800"}',
        b'{"query": "\xff"}',
        b'\xef\xbb\xbf{"query": "a"}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_json_is_a_400(client: TestClient, body: bytes) -> None:
    problem_of(post(client, body), 400, "malformed-body")


@pytest.mark.parametrize(
    "headers",
    [
        {"content-type": "text/plain"},
        {"content-type": "application/jsonp"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": "application/json; charset=latin-1"},
        {"content-type": ""},
        {"content-type": "application/json", "content-encoding": "gzip"},
    ],
)
def test_another_media_type_is_a_415(client: TestClient, headers: dict[str, str]) -> None:
    response = client.post("/v1/search", content=b'{"query": "a"}', headers=headers)
    problem_of(response, 415, "unsupported-media-type")


def test_a_charset_of_utf_8_is_json(client: TestClient) -> None:
    body = b'{"query": "honey"}'
    assert post(client, body, **{"content-type": 'application/json; charset="UTF-8"'}).status_code == 200


def test_a_body_beyond_the_limit_is_a_413_whether_announced_or_streamed(client: TestClient) -> None:
    large = b'{"query": "' + b"a" * 4_000_000 + b'"}'
    problem_of(post(client, large), 413, "body-too-large")
    streamed = client.post(
        "/v1/search", content=(large[i : i + 65536] for i in range(0, len(large), 65536)), headers=JSON
    )
    problem_of(streamed, 413, "body-too-large")
    assert streamed.headers["connection"] == "close"


def test_all_faults_are_told_at_once_by_pointer(client: TestClient) -> None:
    body = {"top_k": 0, "mode": "psychic", "rerank": "yes", "a/b~c": 1, "retrieve_k": 10**30}
    assert set(faults(client.post("/v1/search", json=body))) == {
        "#/query", "#/top_k", "#/mode", "#/rerank", "#/a~1b~0c", "#/retrieve_k"
    }  # fmt: skip
    passages = [{"id": "", "text": "a"}, {"id": "b"}, {"id": "c", "text": 3, "more": 1}]
    assert set(faults(client.post("/v1/answer", json={"query": "a", "passages": passages}))) == {
        "#/passages/0/id", "#/passages/1/text", "#/passages/2/text", "#/passages/2/more"
    }  # fmt: skip


@pytest.mark.parametrize("query", ["", " \n\t", "\u3000", "a" * 4001, None, 7, ["a"]])
def test_a_query_is_text_that_is_neither_blank_nor_too_long(client: TestClient, query: object) -> None:
    assert set(faults(client.post("/v1/search", json={"query": query}))) == {"#/query"}


@pytest.mark.parametrize("body", [b"[]", b'"query"', b"null", b"3", b"true"])
def test_a_body_is_an_object(client: TestClient, body: bytes) -> None:
    assert set(faults(post(client, body))) == {"#"}


@pytest.mark.parametrize(
    ("path", "field", "value"),
    [
        ("search", "top_k", 101),
        ("search", "top_k", "10"),
        ("search", "top_k", True),
        ("search", "offset", -1),
        ("search", "rerank_k", 1001),
        ("search", "filter", {"field": "year"}),
        ("search", "filter", []),
        ("search", "facets", ["year"] * 21),
        ("search", "facets", "year"),
        ("search", "facet_k", 0),
        ("search", "index", 3),
        ("answer", "top_k", 21),
        ("answer", "read_k", 51),
        ("answer", "passages", [{"id": str(i), "text": ""} for i in range(101)]),
        ("answer", "no_answer_threshold", "high"),
    ],
)
def test_a_value_out_of_bounds_is_named(client: TestClient, path: str, field: str, value: object) -> None:
    assert set(faults(client.post(f"/v1/{path}", json={"query": "a", field: value}))) == {f"#/{field}"}


def test_a_whole_number_may_be_written_with_a_fraction_of_zero(client: TestClient) -> None:
    body = {"query": "honey", "top_k": 1.0, "rerank_k": 5.0, "offset": 0.0, "timeout_ms": 6e5}
    assert len(client.post("/v1/search", json=body).json()["results"]) == 1
    assert set(faults(client.post("/v1/search", json=body | {"top_k": 1.5, "facet_k": 1e3 + 1}))) == {
        "#/top_k", "#/facet_k"
    }  # fmt: skip


def test_retrieval_settings_beside_own_passages_are_refused_not_ignored(client: TestClient) -> None:
    body = {"query": "a", "passages": [], "read_k": 3, "index": "default"}
    assert "leave out: index, read_k" in faults(client.post("/v1/answer", json=body))["#"]


def test_of_a_repeated_name_the_last_value_counts(client: TestClient) -> None:
    assert post(client, b'{"query": "a", "query": "honey"}').json()["query"] == "honey"


def test_unknown_things_are_404_each_with_its_type(client: TestClient) -> None:
    problem_of(client.get("/v1/nothing"), 404, "unknown-route")
    problem_of(client.get("/v1/search/"), 404, "unknown-route")
    problem_of(client.get("/page/../settings.py"), 404, "unknown-route")
    problem_of(client.get("/page/nothing.js"), 404, "unknown-route")
    problem_of(client.get("/v1/documents/nothing"), 404, "unknown-document")
    problem_of(client.get("/v1/documents/"), 404, "unknown-document")
    problem_of(client.get("/v1/documents/beta?index=other"), 404, "unknown-index")
    problem = problem_of(client.post("/v1/search", json={"query": "a", "index": "other"}), 404, "unknown-index")
    assert problem["detail"] == "This service serves no index of that name; it serves 'default'."


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        ("/v1/search", "POST"),
        ("/v1/jobs", "GET, POST"),
        ("/v1/jobs/a", "DELETE, GET"),
        ("/v1/jobs/upload", "DELETE, GET, POST"),
        ("/v1/documents/a/b", "GET"),
        ("/page/search.js", "GET"),
    ],
)
def test_another_method_is_a_405_that_lists_the_right_ones(client: TestClient, path: str, methods: str) -> None:
    response = client.put(path)
    problem_of(response, 405, "method-not-allowed")
    assert response.headers["allow"] == methods


def test_an_id_that_a_client_sends_comes_back_unless_it_is_strange(client: TestClient) -> None:
    assert client.get("/healthz", headers={"x-request-id": "a.B-c_1"}).headers["x-request-id"] == "a.B-c_1"
    for strange in ("", "a b", "a" * 65, "<script>", "ü"):
        response = client.get("/healthz", headers={b"x-request-id": strange.encode()})
        assert response.headers["x-request-id"] != strange
        assert len(response.headers["x-request-id"]) == 32


@pytest.mark.parametrize("path", ["/", "/docs", "/page/search.js", "/healthz", "/v1/nothing", "/metrics"])
def test_every_response_has_security_headers(client: TestClient, path: str) -> None:
    headers = client.get(path).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["x-frame-options"] == "DENY"
    assert "geolocation=()" in headers["permissions-policy"]
    assert headers["cache-control"] == ("no-cache" if path in ("/", "/docs", "/page/search.js") else "no-store")
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy


class Captured(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.setFormatter(JsonFormatter())
        self.lines: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        if not record.name.startswith("httpx"):  # the test's client, not the service
            self.lines.append(orjson.loads(self.format(record)))


@pytest.fixture
def log() -> Iterator[Captured]:
    captured = Captured()
    root = logging.getLogger()
    level = root.level
    root.addHandler(captured)
    root.setLevel(logging.DEBUG)
    yield captured
    root.removeHandler(captured)
    root.setLevel(level)


def test_a_request_is_logged_once_with_its_counts_and_stage_times(client: TestClient, log: Captured) -> None:
    response = client.post("/v1/search", json={"query": "honey"})
    [line] = [line for line in log.lines if line["message"] == "request"]
    assert (line["level"], line["route"], line["method"], line["status"]) == ("info", "/v1/search", "POST", 200)
    assert line["request_id"] == response.json()["request_id"]
    assert line["query_characters"] == 5
    assert line["duration_seconds"] >= line["stage_seconds"]["rerank"] > 0


def test_no_text_of_a_user_reaches_log_metrics_or_problem(client: TestClient, log: Captured) -> None:
    responses = [
        client.post("/v1/search", json={"query": f"{SECRET} bees"}),
        client.post("/v1/answer", json={"query": SECRET, "passages": [{"id": SECRET, "text": SECRET}]}),
        client.post("/v1/search", json={"query": "a", "mode": SECRET, "index": 1}),
        client.post("/v1/search", json={"query": "a", "index": SECRET}),
        client.post("/v1/search", json={"query": SECRET, "top_k": SECRET}),
        client.post("/v1/search", json={"query": "a", "filter": {"field": SECRET, "equal": 1}, "facets": [SECRET]}),
        client.post("/v1/search", json={"query": "a", "filter": {"field": SECRET, "equal": {SECRET: SECRET}}}),
        client.post("/v1/rerank", json={"query": SECRET, "documents": [SECRET, {"text": SECRET}], "model": SECRET}),
        client.post("/v1/rerank", json={"query": SECRET, "documents": [{SECRET: SECRET}], "rank_fields": [SECRET]}),
        client.post("/v2/rerank", json={"query": "a", "documents": [{SECRET: SECRET}]}),
        client.post("/rerank", json={"query": SECRET, "texts": [SECRET * 900], "truncate": False}),
        client.post("/v1/embeddings", json={"input": SECRET, "model": SECRET, "user": SECRET}),
        client.post("/v1/embeddings", json={"input": [SECRET, 1], "task": SECRET}),
        client.post("/embed", json={"inputs": SECRET * 900, "truncate": False}),
        client.get(f"/v1/documents/{SECRET}"),
        client.get(f"/{SECRET}?{SECRET}={SECRET}"),
        client.request(SECRET.upper(), "/v1/search"),
        post(client, b'{"query": "' + SECRET.encode()),
        client.post("/v1/search", content=b"", headers={"content-type": f"text/{SECRET}"}),
    ]
    assert SECRET not in orjson.dumps(log.lines).decode().lower()
    assert SECRET not in client.get("/metrics").text.lower()
    assert not [response.text for response in responses if response.is_error and SECRET in response.text]
    assert "porto" not in orjson.dumps(log.lines).decode().lower()


def count(client: TestClient, name: str, **labels: str) -> float:
    families = text_string_to_metric_families(client.get("/metrics").text)
    samples = [sample for family in families for sample in family.samples if sample.name == name]
    return sum(sample.value for sample in samples if labels.items() <= sample.labels.items())


def test_requests_answers_and_cuts_are_counted_once(client: TestClient) -> None:
    def counts() -> list[float]:
        return [
            count(client, "tercet_requests_total", route="/v1/answer", method="POST", status="200"),
            count(client, "tercet_requests_total", route="other", method="GET", status="404"),
            count(client, "tercet_request_duration_seconds_count", route="/v1/answer"),
            count(client, "tercet_stage_duration_seconds_count", stage="read"),
            count(client, "tercet_answers_total", outcome="no_answer"),
            count(client, "tercet_truncated_total", what="query"),
        ]

    before = counts()
    client.post("/v1/answer", json={"query": "who " * 300, "no_answer_threshold": 1e6})
    client.get("/v1/nothing")
    assert [after - earlier for earlier, after in zip(before, counts(), strict=True)] == [1] * 6


def test_the_index_and_readiness_are_exposed(client: TestClient) -> None:
    assert count(client, "tercet_ready") == 1
    [index] = client.get("/v1/indexes").json()["indexes"]
    assert count(client, "tercet_index_info", index="default", snapshot=index["snapshot"]) == 1
    assert count(client, "tercet_index_passages", index="default") == index["n_passages"]


def test_a_fault_of_ours_is_a_500_that_says_nothing_and_a_log_line_that_says_where(
    settings: Settings, log: Captured
) -> None:
    def break_routes(app: FastAPI) -> None:
        async def fail() -> None:
            raise RuntimeError(SECRET)

        app.add_api_route("/fail", fail)

    for client in started(settings, break_routes):
        body = problem_of(client.get("/fail"), 500, "internal-error")
        assert set(body) == {"type", "title", "status", "request_id"}
    [line] = [line for line in log.lines if line["message"] == "request failed"]
    assert (line["level"], line["request_id"]) == ("error", body["request_id"])
    assert line["exception"][0]["type"] == "RuntimeError"
    assert "test_http.py" in orjson.dumps(line["exception"]).decode()
    assert SECRET not in orjson.dumps(log.lines).decode()


def test_a_passed_deadline_is_a_504(settings: Settings) -> None:
    for client in started(settings.model_copy(update={"request_timeout_seconds": 1e-9})):
        for path, body, stage in (
            ("/v1/search", {"query": "honey"}, "encode"),
            ("/v1/rerank", {"query": "honey", "documents": ["bees"]}, "rerank"),
            ("/embed", {"inputs": "bees"}, "encode"),
        ):
            problem = problem_of(client.post(path, json=body), 504, "deadline-exceeded")
            assert f"`{stage}`" in problem["detail"]


def engine_of(client: TestClient) -> Engine:
    application = client.app
    assert isinstance(application, FastAPI)
    engine: Engine = application.state.engine
    return engine


def test_a_full_service_says_429_with_retry_after_before_any_work(settings: Settings) -> None:
    for client in started(settings.model_copy(update={"max_admitted_tokens": 1})):
        assert client.post("/v1/search", json={"query": "honey"}).status_code == 200
        admission = engine_of(client).admission
        assert (admission.tokens, admission.n_requests) == (0, 0)
        admission.tokens, admission.n_requests = 5, 1  # as if a request were under way
        n_batches = count(client, "tercet_batch_items_count", model="dual_encoder")
        for path, body in (
            ("/v1/search", {"query": "honey"}),
            ("/v1/search/batch", {"searches": [{"query": "honey"}]}),
            ("/v1/answer", {"query": "honey"}),
            ("/v1/answer", {"query": "honey", "passages": [{"id": "a", "text": "b"}]}),
        ):
            response = client.post(path, json=body)
            problem_of(response, 429, "overloaded")
            assert int(response.headers["retry-after"]) >= 1
        assert count(client, "tercet_requests_refused_total", reason="full") == 4
        assert count(client, "tercet_batch_items_count", model="dual_encoder") == n_batches


@pytest.mark.parametrize("path", ["/v1/search", "/v1/answer"])
def test_the_deadline_that_a_client_sends_counts_if_it_is_earlier(settings: Settings, path: str) -> None:
    for client in started(settings):
        engine = engine_of(client)
        engine.encoding._run = stuck(seconds=0.3, run=engine.encoding._run)
        problem_of(client.post(path, json={"query": "honey", "timeout_ms": 20}), 504, "deadline-exceeded")
        assert client.post(path, json={"query": "honey", "timeout_ms": 600_000}).status_code == 200
    for client in started(settings.model_copy(update={"request_timeout_seconds": 1e-9})):
        problem_of(client.post(path, json={"query": "honey", "timeout_ms": 1000}), 504, "deadline-exceeded")


@pytest.mark.parametrize(("seconds", "some"), [(0.25, True), (1.5, False)])
def test_near_the_deadline_fewer_candidates_are_reranked_and_the_response_says_so(
    settings: Settings, seconds: float, some: bool
) -> None:
    for client in started(settings.model_copy(update={"batch_tokens_per_thread": 1})):  # one candidate a batch
        fused = client.post("/v1/search", json={"query": "honey", "rerank": False, "top_k": 100}).json()
        engine = engine_of(client)
        engine.reranking._run = stuck(seconds=seconds, run=engine.reranking._run)
        body = client.post("/v1/search", json={"query": "honey", "top_k": 100, "timeout_ms": 1000}).json()
        n_reranked = body["rerank_k_used"]
        assert "rerank:deadline" in body["skipped"]
        assert 0 < n_reranked < 10 if some else n_reranked == 0
        ids, fused_ids = ([each["passage_id"] for each in page["results"]] for page in (body, fused))
        assert set(ids[:n_reranked]) == set(fused_ids[:n_reranked])
        assert ids[n_reranked:] == fused_ids[n_reranked:]
        assert [each["score_kind"] for each in body["results"][n_reranked:]] == ["rrf"] * (len(ids) - n_reranked)
        assert count(client, "tercet_degraded_total", stage="rerank") == 1


def stuck(*, seconds: float, run: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a model that takes so long a batch."""

    def slow(items: Any) -> Any:
        time.sleep(seconds)
        return run(items)

    return slow


def test_before_and_after_it_is_ready_the_service_says_503_and_is_alive(settings: Settings) -> None:
    app = create_app(settings)
    with_nothing_loaded = TestClient(
        app, "http://localhost", raise_server_exceptions=False
    )  # without `with` there is no lifespan
    assert with_nothing_loaded.get("/healthz").status_code == 200
    for path in ("/readyz", "/v1/indexes"):
        response = with_nothing_loaded.get(path)
        problem_of(response, 503, "not-ready")
        assert response.headers["retry-after"] == "2"
    for client in started(settings):
        ready = client.get("/readyz").json()
        assert ready["status"] == "ready"
        assert set(ready["engines"]) == {"dual_encoder", "cross_encoder", "reader"}
        reader = f'tercet_engine_info{{engine="{ready["engines"]["reader"]}",model="reader"}} 1.0'
        assert reader in client.get("/metrics").text
        application = client.app
        assert isinstance(application, FastAPI)
        begin_draining(application)
        problem_of(client.get("/readyz"), 503, "not-ready")
        problem_of(client.post("/v1/search", json={"query": "honey"}), 503, "not-ready")
        assert client.get("/healthz").status_code == 200
        assert count(client, "tercet_ready") == 0


def test_a_client_that_leaves_cancels_its_work() -> None:
    class Leaving:
        async def receive(self) -> dict[str, str]:
            await begun.wait()
            return {"type": "http.disconnect"}

    async def main() -> None:
        ended = asyncio.Event()

        async def work() -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        with pytest.raises(ClientLeft):
            await while_connected(Leaving(), work())  # type: ignore[arg-type]  # all that is asked of a request
        assert ended.is_set()

    begun = asyncio.Event()
    asyncio.run(main())


def test_a_client_that_leaves_within_its_body_is_no_fault_of_ours(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    async def receive() -> dict[str, str]:
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        statuses.append(message.get("status"))

    statuses: list[object] = []
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"content-length", b"20")]
    scope = {"type": "http", "method": "POST", "path": "/v1/search", "query_string": b"", "headers": headers}
    with caplog.at_level(logging.INFO):
        asyncio.run(create_app(settings)(scope, receive, send))
    assert statuses[0] == 499
    assert [record.levelname for record in caplog.records if record.name == "service.requests"] == ["INFO"]


def test_work_that_fails_fails_its_caller() -> None:
    class Staying:
        async def receive(self) -> dict[str, str]:
            await asyncio.Event().wait()
            raise AssertionError

    async def work() -> None:
        raise DeadlineExceeded

    with pytest.raises(DeadlineExceeded):
        asyncio.run(while_connected(Staying(), work()))  # type: ignore[arg-type]  # all that is asked of a request


@pytest.mark.parametrize(
    ("path", "body", "detail"),
    [
        ("/v1/search", {}, "It is missing."),
        ("/v1/search", {"query": "a", "tpo_k": 1}, "There is no field of this name."),
        ("/v1/search", {"query": 1}, "It must be a text."),
        ("/v1/search", {"query": "a" * 4001}, "It must have at most 4000 characters."),
        ("/v1/search", {"query": "a", "top_k": "1"}, "It must be a whole number."),
        ("/v1/search", {"query": "a", "top_k": 1.5}, "It must be a whole number."),
        ("/v1/search", {"query": "a", "top_k": 0}, "It must be at least 1."),
        ("/v1/search", {"query": "a", "top_k": 101}, "It must be at most 100."),
        ("/v1/search", {"query": "a", "min_score": "high"}, "It must be a number."),
        ("/v1/search", {"query": "a", "rerank": 1}, "It must be true or false."),
        ("/v1/search", {"query": "a", "mode": "psychic"}, "It must be 'hybrid', 'dense' or 'bm25'."),
        ("/v1/search", {"query": "a", "facets": "year"}, "It must be a list."),
        ("/v1/search", {"query": "a", "facets": ["a"] * 21}, "It must have at most 20 items."),
        ("/v1/search", {"query": "a", "filter": 1}, "It must be an object."),
        ("/v1/search", {"query": "a", "filter": {"field": "", "exists": True}}, "It must have at least 1 character."),
        (
            "/v1/search",
            {"query": "a", "filter": {"field": "a", "equal": []}},
            "It must be a text, a number, true or false.",
        ),
        ("/v1/search/batch", {"searches": []}, "It must have at least 1 item."),
        ("/v1/search", [], "It must be an object."),
        ("/v1/rerank", {"query": "a", "documents": 1}, "It must be a list."),
        ("/v1/embeddings", {"input": 1}, None),
    ],
)
def test_what_is_wrong_is_said_in_words_of_ours(
    client: TestClient, path: str, body: object, detail: str | None
) -> None:
    problem = problem_of(client.post(path, json=body), 422, "invalid-request")
    details = [fault["detail"] for fault in problem["errors"]]
    assert details == [detail] or detail is None
    for each in details:
        assert each.endswith(".")
        assert not re.search("Input|String|List|should|valid", each)
