"""The load tests run against the real service, and only against one on this machine."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from .processes import ROOT, RunningService


@pytest.fixture(scope="module")
def queries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("queries") / "queries.jsonl"
    asked = ["who kept the lighthouse", "what do beavers build", "how long does rye bread bake"]
    path.write_text("".join(json.dumps({"_id": str(i), "text": text}) + "\n" for i, text in enumerate(asked)))
    return path


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "loadtests" / script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_latency_is_measured_for_both_routes_and_every_stage(service: RunningService, queries: Path) -> None:
    done = run("latency.py", str(queries), "--url", service.url, "--json")
    assert done.returncode == 0, done.stderr
    search, answer = json.loads(done.stdout)
    assert (search["name"], search["client"]["n"]) == ("/v1/search, settle_k 10", 3)
    assert {"encode", "retrieve", "fuse", "rerank", "total"} <= set(search["stages"])
    assert {"read", "total"} <= set(answer["stages"])
    for route in (search, answer):
        assert 0 < route["stages"]["total"]["p50_ms"] <= route["client"]["p50_ms"] <= route["client"]["p95_ms"]


def test_latency_is_printed_as_a_table(service: RunningService, queries: Path) -> None:
    ways = ["--settle-k", "0", "--settle-k", "3"]
    done = run("latency.py", str(queries), "--url", service.url, "--n", "2", *ways)
    assert done.returncode == 0, done.stderr
    names = [f"`{route}, settle_k {k}` p50 ms | p95 ms" for route in ("/v1/search", "/v1/answer") for k in (0, 3)]
    assert done.stdout.splitlines()[0] == f"| n = 2 | {' | '.join(names)} |"
    assert {line.count("|") for line in done.stdout.splitlines()} == {10}


def test_k6_keeps_its_rate_and_reports_what_it_saw(service: RunningService, queries: Path) -> None:
    done = run("run_k6.py", str(queries), "--url", service.url, "--rate", "5", "--seconds", "2", "--json")
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)["outcome"]
    assert 10 <= outcome["completed"] + outcome["dropped"] <= 11
    assert outcome["failed"] == 0
    assert 0 < outcome["p50_ms"] <= outcome["p95_ms"] <= outcome["max_ms"]


@pytest.mark.parametrize("script", ["latency.py", "run_k6.py"])
def test_load_never_goes_to_another_machine(queries: Path, script: str) -> None:
    refused = run(script, str(queries), "--url", "http://192.0.2.1:8000")
    assert refused.returncode == 1
    assert "not on this machine" in refused.stderr


def test_a_service_that_is_not_there_is_one_sentence(queries: Path) -> None:
    refused = run("latency.py", str(queries), "--url", "http://127.0.0.1:1")
    assert refused.returncode == 1
    assert refused.stderr.count("\n") == 1
    assert "start it with `tercet serve`" in refused.stderr


def test_clients_are_measured_together_with_healthz_and_beside_long_requests(
    service: RunningService, queries: Path
) -> None:
    done = run("clients.py", str(queries), "--url", service.url, "--n", "16", "--rerank-k", "2", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [level["n_clients"] for level in found["levels"]] == [1, 4, 16]
    for level in found["levels"]:
        assert 0 < level["p50_ms"] <= level["p99_ms"]
        assert 0 < level["healthz_p99_ms"] <= level["healthz_max_ms"]
    assert found["short_alone_ms"] > 0
    assert found["short_beside_long_ms"] > 0


def test_a_soak_says_how_memory_grew_and_what_was_answered(service: RunningService, queries: Path) -> None:
    done = run("soak.py", str(queries), "--url", service.url, "--minutes", "0.05", "--clients", "2", "--json")
    found = json.loads(done.stdout)
    assert set(found["statuses"]) == {"200"}, done.stderr
    assert found["median_mb"] > 10
    assert done.returncode == (1 if found["growth"] > 0.05 else 0)
