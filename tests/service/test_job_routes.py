"""Jobs over HTTP, with real builds of tiny models: taken, followed, cancelled, refused; described as they are."""

import json
import logging
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from indexer.publish import current_snapshot
from service.app import begin_draining
from service.job_bodies import JobsResponse
from service.job_store import Job
from service.settings import Settings, environment_of, load_settings

from ..e2e.processes import wait_until
from .conftest import started
from .test_http import problem_of

OCTETS = {"content-type": "application/octet-stream"}
SECRET = "zanzibarquux"
LINE = b'{"id": "fog", "text": "Fog over the harbour."}\n'
DEADLINE_SECONDS = 60


@pytest.fixture(scope="module")
def job_settings(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    root = tmp_path_factory.mktemp("root")
    (root / "docs").mkdir()
    (root / "docs" / "fog.txt").write_text("Fog over the harbour.")
    (root / f"{SECRET}.jsonl").write_text(f'{{"id": "{SECRET}"\n')
    (root / "out.txt").symlink_to("/etc/passwd")
    (root / "linked").mkdir()
    (root / "linked" / "out.txt").symlink_to("/etc/passwd")
    return settings.model_copy(update={"jobs_path": root, "max_upload_bytes": 1000})


@pytest.fixture(scope="module")
def jobs_client(job_settings: Settings) -> Iterator[TestClient]:
    yield from started(job_settings)


def over(client: TestClient, location: str) -> dict[str, Any]:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        job: dict[str, Any] = client.get(location).json()
        if job["state"] not in ("queued", "running"):
            return job
        time.sleep(0.05)
    raise AssertionError(f"still {job}")


def post(client: TestClient, **body: object) -> dict[str, Any]:
    taken = client.post("/v1/jobs", json=body)
    assert taken.status_code == 202, taken.text
    assert taken.headers["location"] == f"/v1/jobs/{taken.json()['job_id']}"
    return over(client, taken.headers["location"])


def test_a_job_builds_and_publishes_an_index(jobs_client: TestClient, job_settings: Settings) -> None:
    job = post(jobs_client, source="docs", index="posted")
    assert (job["state"], job["error"]) == ("succeeded", None)
    assert job["progress"] == {"stage": "publish", "done": 1, "total": 1}
    assert job["result"]["n_documents"] == 1
    snapshot = current_snapshot(job_settings.data_path / "posted")
    assert snapshot is not None
    assert snapshot.name == job["result"]["snapshot"]
    assert jobs_client.get("/v1/jobs?limit=1").json() == {"jobs": [job]}
    problem_of(jobs_client.delete(f"/v1/jobs/{job['job_id']}"), 409, "job-over")


def test_a_file_that_is_sent_is_indexed_and_removed(jobs_client: TestClient, job_settings: Settings) -> None:
    url = "/v1/jobs/upload?file_name=fog.jsonl&index=sent&on_error=fail"
    taken = jobs_client.post(url, content=LINE, headers=OCTETS)
    assert taken.status_code == 202
    job = over(jobs_client, taken.headers["location"])
    assert (job["state"], job["source"], job["file_name"]) == ("succeeded", None, "fog.jsonl")
    assert current_snapshot(job_settings.data_path / "sent") is not None
    uploads = job_settings.data_path / ".jobs" / "uploads"
    wait_until(lambda: not list(uploads.iterdir()), "the file is removed, which a job that is over need not wait for")


def test_an_update_keeps_the_documents_that_are_there(jobs_client: TestClient) -> None:
    assert post(jobs_client, source="docs", index="grown")["result"]["n_documents"] == 1
    url = "/v1/jobs/upload?file_name=fog.jsonl&index=grown&update=true"
    job = over(jobs_client, jobs_client.post(url, content=LINE, headers=OCTETS).headers["location"])
    assert (job["state"], job["update"], job["result"]["n_documents"]) == ("succeeded", True, 2)
    replaced = post(jobs_client, source="docs", index="grown", update=False)
    assert replaced["result"]["n_documents"] == 1


@pytest.mark.parametrize(
    "source", ["../data", "/etc/passwd", "nothing", "out.txt", "docs/../../x", "a\0b", f"{SECRET}.txt"]
)
def test_a_source_outside_the_root_is_refused_as_one_that_is_not_there(jobs_client: TestClient, source: str) -> None:
    problem = problem_of(jobs_client.post("/v1/jobs", json={"source": source}), 422, "invalid-request")
    assert problem["errors"] == [{"pointer": "#/source", "detail": "There is nothing there that jobs may read."}]


def test_a_link_inside_a_source_that_leads_out_fails_its_job(jobs_client: TestClient, job_settings: Settings) -> None:
    job = post(jobs_client, source="linked", index="linked")
    assert job["error"] == "linked/out.txt is a link that leads out of the folder that jobs may read."
    assert current_snapshot(job_settings.data_path / "linked") is None


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "#/source"),
        ({"source": ""}, "#/source"),
        ({"source": "docs", "index": "../docs"}, "#/index"),
        ({"source": "docs", "on_error": "cry"}, "#/on_error"),
        ({"source": "docs", "priority": 1}, "#/priority"),
    ],
)
def test_faults_in_the_body_are_named(jobs_client: TestClient, body: dict[str, object], pointer: str) -> None:
    problem = problem_of(jobs_client.post("/v1/jobs", json=body), 422, "invalid-request")
    assert [fault["pointer"] for fault in problem["errors"]] == [pointer]


@pytest.mark.parametrize("name", ["", "../a.txt", "a/b.txt", "a\\b.txt", ".a.txt", "..", "a\n.txt", "ä" * 101])
def test_the_name_of_an_upload_is_no_path(jobs_client: TestClient, name: str) -> None:
    sent = jobs_client.post("/v1/jobs/upload", params={"file_name": name}, content=LINE, headers=OCTETS)
    assert [fault["pointer"] for fault in problem_of(sent, 422, "invalid-request")["errors"]] == ["#/file_name"]


def test_an_upload_is_bounded_whether_announced_or_streamed_and_of_one_type(
    jobs_client: TestClient, job_settings: Settings
) -> None:
    url = "/v1/jobs/upload?file_name=fog.txt"
    problem_of(jobs_client.post(url, content=b"a" * 1001, headers=OCTETS), 413, "body-too-large")
    streamed = jobs_client.post(url, content=(b"a" * 100 for _ in range(11)), headers=OCTETS)
    problem_of(streamed, 413, "body-too-large")
    problem_of(
        jobs_client.post(url, content=b"a", headers={"content-type": "text/plain"}), 415, "unsupported-media-type"
    )
    zipped = OCTETS | {"content-encoding": "gzip"}
    problem_of(jobs_client.post(url, content=b"a", headers=zipped), 415, "unsupported-media-type")
    assert list((job_settings.data_path / ".jobs" / "uploads").iterdir()) == []


def test_an_unknown_job_is_a_404(jobs_client: TestClient) -> None:
    problem_of(jobs_client.get("/v1/jobs/nothing"), 404, "unknown-job")
    problem_of(jobs_client.delete("/v1/jobs/nothing"), 404, "unknown-job")
    problem_of(jobs_client.get(f"/v1/jobs/{'a' * 65}"), 422, "invalid-request")
    problem_of(jobs_client.get("/v1/jobs?limit=1001"), 422, "invalid-request")


def test_without_a_root_there_are_no_jobs(client: TestClient) -> None:
    problem_of(client.post("/v1/jobs", json={"source": "docs"}), 403, "jobs-disabled")
    for path in ("/v1/jobs", "/v1/jobs/nothing"):
        problem_of(client.get(path), 403, "jobs-disabled")
    problem_of(client.post("/v1/jobs/upload?file_name=a.txt", content=b"", headers=OCTETS), 403, "jobs-disabled")


def test_too_many_jobs_are_a_429_with_retry_after_and_a_service_that_stops_takes_none(
    job_settings: Settings, tmp_path: Path
) -> None:
    (tmp_path / "default").symlink_to(job_settings.data_path / "default")
    changes = {"data_path": tmp_path, "jobs_waiting": 1}
    for client in started(job_settings.model_copy(update=changes)):
        application = client.app
        assert isinstance(application, FastAPI)
        application.state.jobs._n_arriving = 1
        refused = client.post("/v1/jobs", json={"source": "docs"})
        problem_of(refused, 429, "too-many-jobs")
        assert refused.headers["retry-after"] == "60"
        application.state.jobs._n_arriving = 0
        begin_draining(application)
        problem_of(client.post("/v1/jobs", json={"source": "docs"}), 503, "not-ready")


def test_no_text_of_a_user_reaches_log_or_metrics(jobs_client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        job = post(jobs_client, source=f"{SECRET}.jsonl", index=SECRET, on_error="fail")
        jobs_client.get(f"/v1/jobs/{SECRET}")
        jobs_client.post("/v1/jobs/upload", params={"file_name": f"{SECRET}/a"}, headers=OCTETS)
    assert job["state"] == "failed"
    assert re.match(rf"^{SECRET}\.jsonl.*[.]$", job["error"])
    ours = [record for record in caplog.records if record.name.startswith("service")]
    assert {record.getMessage() for record in ours} == {"request", "job queued", "job started", "job ended"}
    assert SECRET not in str([vars(record) for record in ours])
    assert SECRET not in jobs_client.get("/metrics").text


def test_every_status_is_described_with_a_valid_example(jobs_client: TestClient) -> None:
    paths = jobs_client.get("/openapi.json").json()["paths"]
    expected = {
        ("/v1/jobs", "post"): "202 400 401 403 408 413 415 421 422 429 500 503 507",
        ("/v1/jobs", "get"): "200 401 403 421 422 429 500 503",
        ("/v1/jobs/upload", "post"): "202 401 403 408 413 415 421 422 429 500 503 507",
        ("/v1/jobs/{job_id}", "get"): "200 401 403 404 421 422 429 500 503",
        ("/v1/jobs/{job_id}", "delete"): "200 401 403 404 409 421 422 429 500 503",
    }
    for (path, method), statuses in expected.items():
        responses = paths[path][method]["responses"]
        assert sorted(responses) == statuses.split()
        example = responses[min(responses)]["content"]["application/json"]["example"]
        model = JobsResponse if (path, method) == ("/v1/jobs", "get") else Job
        assert model.model_validate_json(json.dumps(example)).model_dump(mode="json") == example
        for status in statuses.split()[1:]:
            assert responses[status]["content"]["application/problem+json"]["examples"]
    assert "application/octet-stream" in paths["/v1/jobs/upload"]["post"]["requestBody"]["content"]


def test_a_job_has_the_settings_of_its_service_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERCET_READER", "other")
    monkeypatch.setenv("HOME", "/home/someone")
    environment = environment_of(Settings(reader="mine", n_threads=3))
    assert (environment["TERCET_READER"], environment["TERCET_N_THREADS"]) == ("mine", "3")
    assert environment["HOME"] == "/home/someone"
    assert "TERCET_JOBS_PATH" not in environment


def test_a_job_that_updates_is_told_no_language_that_nobody_said(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"TERCET_RECALL": "0.9", "TERCET_DENSE_INDEX": "hnsw"}
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    environment = environment_of(load_settings(index="mine").model_copy(update={"n_threads": 3}))
    given = {name: value for name, value in environment.items() if name.startswith("TERCET_")}
    assert given == said | {"TERCET_INDEX": "mine", "TERCET_N_THREADS": "3"}
