"""Indexing jobs of a real service: followed to their end, cancelled, remembered over restarts, dying with it."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from .processes import ROOT, RunningService, running_service, wait_until

OVER = {"succeeded", "failed", "cancelled", "interrupted"}
N_LONG = 20_000  # documents, which take far longer than anyone here waits


@pytest.fixture(scope="module")
def settings(service_settings: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A data folder of its own with the index that is served, and a folder of sources: a short and a long one."""
    folder = tmp_path_factory.mktemp("jobs")
    root, data = folder / "root", folder / "data"
    (root / "short").mkdir(parents=True)
    (root / "short" / "beavers.txt").write_text("Beavers build dams of branches and mud across streams.")
    text = "The keeper of the lighthouse wrote into the log that the lamp had been lit before the storm came."
    with (root / "long.jsonl").open("w") as file:
        file.writelines(json.dumps({"id": str(i), "text": f"{i} {text}"}) + "\n" for i in range(N_LONG))
    shutil.copytree(Path(service_settings["DATA_PATH"]), data, symlinks=True)
    return {**service_settings, "DATA_PATH": str(data), "JOBS_PATH": str(root)}


@pytest.fixture
def service(settings: dict[str, str], tmp_path: Path) -> Iterator[RunningService]:
    with running_service(settings, folder=tmp_path) as running:
        yield running


def post(service: RunningService, source: str, index: str) -> str:
    taken = service.post("/v1/jobs", source=source, index=index)
    assert taken.status_code == 202, taken.text
    return taken.headers["location"]


def job(service: RunningService, location: str) -> dict[str, Any]:
    found: dict[str, Any] = service.get(location).json()
    return found


def follow(service: RunningService, location: str, *states: str) -> dict[str, Any]:
    wait_until(lambda: job(service, location)["state"] in states, f"the job is {' or '.join(states)}")
    return job(service, location)


def begin(service: RunningService, location: str) -> None:
    wait_until(lambda: job(service, location)["progress"] is not None, "the build tells its progress")


def children(process_id: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{process_id}/task/{process_id}/children").read_text().split()]


def lives(process_id: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{process_id}/status").read_text()
    except FileNotFoundError:
        return False


def current(settings: dict[str, str], index: str) -> Path | None:
    link = Path(settings["DATA_PATH"], index, "current")
    return link.readlink() if link.is_symlink() else None


def test_a_job_is_followed_to_its_end_another_is_cancelled_and_a_restart_remembers_both(
    settings: dict[str, str], service: RunningService, tmp_path: Path
) -> None:
    short = follow(service, post(service, "short", "short"), *OVER)
    assert (short["state"], short["error"], short["result"]["n_documents"]) == ("succeeded", None, 1)
    assert current(settings, "short") is not None

    before = current(settings, "default")
    location = post(service, "long.jsonl", "default")
    begin(service, location)
    assert service.post("/v1/search", query="who kept the lighthouse").status_code == 200
    cancelled = httpx.delete(service.url + location, timeout=60)
    assert (cancelled.status_code, cancelled.json()["state"]) == (200, "cancelled")
    assert httpx.delete(service.url + location, timeout=60).status_code == 200
    assert current(settings, "default") == before
    assert [path.name for path in Path(settings["DATA_PATH"], "default", "snapshots").glob(".building-*")] == []

    history = service.get("/v1/jobs").json()
    assert [each["state"] for each in history["jobs"]] == ["cancelled", "succeeded"]
    assert service.stop() == 0, service.log_text()
    (tmp_path / "again").mkdir()
    with running_service(settings, folder=tmp_path / "again") as again:
        assert again.get("/v1/jobs").json() == history


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_build_ends_with_its_service_and_what_waited_goes_on(
    settings: dict[str, str], service: RunningService, tmp_path: Path, number: signal.Signals
) -> None:
    before = current(settings, "default")
    running, waiting = post(service, "long.jsonl", "default"), post(service, "short", "default")
    begin(service, running)
    [build] = children(service.process.pid)
    os.kill(service.process.pid, number)
    wait_until(lambda: not lives(build), "the build is gone")
    assert service.process.wait(timeout=60) == (0 if number == signal.SIGTERM else -number)
    assert current(settings, "default") == before
    (tmp_path / "again").mkdir()
    with running_service(settings, folder=tmp_path / "again") as again:
        interrupted = job(again, running)
        how = "was stopped" if number == signal.SIGTERM else "ended"
        assert (interrupted["state"], interrupted["error"]) == ("interrupted", f"The service {how} while the job ran.")
        # Its lock is free too: the next build of the same index succeeds.
        assert follow(again, waiting, *OVER)["state"] == "succeeded"


def test_a_second_service_for_the_same_jobs_fails_with_one_sentence(
    settings: dict[str, str], service: RunningService, tmp_path: Path
) -> None:
    (tmp_path / "second").mkdir()
    with pytest.raises(pytest.fail.Exception, match="the process ended with 1"):
        running_service(settings, folder=tmp_path / "second").__enter__()
    assert "Another service runs the jobs of" in (tmp_path / "second" / "service.log").read_text()


def test_what_a_job_costs_a_search_is_measured(service: RunningService, tmp_path: Path) -> None:
    queries = tmp_path / "queries.jsonl"
    queries.write_text('{"text": "who kept the lighthouse"}\n')
    script = str(ROOT / "loadtests" / "jobs_latency.py")
    command = [sys.executable, script, str(queries), "long.jsonl", "--url", service.url, "--n", "3", "--rounds", "1"]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=120)
    assert "start it with TERCET_CACHE_BYTES=0" in done.stderr  # it asks the one query again and again
    alone, beside = json.loads(done.stdout)["rounds"]
    assert (alone["has_job"], alone["n"], alone["n_embedded"]) == (False, 3, 0)
    assert (beside["has_job"], beside["n"]) == (True, 3)
    assert beside["n_embedded"] > 0
    assert {each["state"] for each in service.get("/v1/jobs").json()["jobs"]} >= {"cancelled"}
