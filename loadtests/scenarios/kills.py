"""`kill -9`: of the service while clients search, post jobs and make keys, and of builds while another is served."""

import json
import signal
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from scenarios.documents import QUERIES, write_documents
from scenarios.load import Clients, probing, search
from scenarios.processes import JOBS_SECONDS, PATIENCE_SECONDS, Server, Tercet, wait_until
from scenarios.report import Report, Scenario

N_KILLS, SECONDS_BETWEEN_KILLS = 3, 4.0
SECONDS_BETWEEN_JOBS = 1.0
N_SERVED, N_BUILT = 200, 1_000
N_JOB_DOCUMENTS, N_JOB_SOURCES, N_JOBS = 40, 6, 12
FAILED_CONNECTIONS = {"ConnectError", "ReadError", "RemoteProtocolError", "WriteError"}
WAYS_TO_END = {"succeeded", "interrupted"}  # the latter by the kill, which is promised, and said


@dataclass(slots=True)
class Acknowledged:
    """What was said to be taken or done: jobs by id, keys by name with their texts."""

    jobs: list[str] = field(default_factory=list)
    keys: dict[str, str] = field(default_factory=dict)


def bearer(key: str) -> dict[str, str]:
    """Return the header that sends a key."""
    return {"Authorization": f"Bearer {key}"}


def new_key(tercet: Tercet, name: str, *options: str) -> str:
    """Make a key and return its text."""
    return tercet.must("keys", "create", "--name", name, *options).stdout.strip()


def _service(folder: Path, report: Report) -> None:
    sources = folder / "sources"
    sources.mkdir()
    for i in range(N_JOB_SOURCES):
        write_documents(sources / f"{i}.jsonl", N_JOB_DOCUMENTS, seed=100 + i)
    tercet = Tercet(folder, {"JOBS_PATH": str(sources), "JOBS_WAITING": "1000", "JOBS_KEPT": "1000"})
    tercet.must("index", write_documents(folder / "documents.jsonl", N_SERVED, seed=1))
    known = Acknowledged(keys={"admin": new_key(tercet, "admin", "--scope", "admin")})
    admin = bearer(known.keys["admin"])

    def post_job(client: httpx.Client) -> httpx.Response:
        time.sleep(SECONDS_BETWEEN_JOBS)
        if len(known.jobs) >= N_JOBS:
            return client.get("/v1/jobs")
        name = f"{len(known.jobs) % N_JOB_SOURCES}.jsonl"
        response = client.post("/v1/jobs", json={"source": name, "index": f"side{len(known.jobs) % 2}"})
        if response.status_code == 202:
            known.jobs.append(response.json()["job_id"])
        return response

    with tercet.serving() as server:
        asks = [search(query) for query in QUERIES[:3]]
        with Clients(server.url, [*asks, post_job], headers=admin) as clients:
            for i in range(N_KILLS):
                time.sleep(SECONDS_BETWEEN_KILLS)
                known.keys[f"key{i}"] = new_key(tercet, f"key{i}", "--scope", "search")
                report.was_ready_after(server.restart())
            time.sleep(1)
        report.saw_only(clients.seen, {"200", "202", "429", "503", *FAILED_CONNECTIONS})
        _keep_acknowledged(server, known, report)
        ends = _ends_of_jobs(server, known, report)
    report.remarks.append(f"killed {N_KILLS} times; jobs: {', '.join(f'{n} {state}' for state, n in ends.items())}")


def _keep_acknowledged(server: Server, known: Acknowledged, report: Report) -> None:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        admin = bearer(known.keys["admin"])
        report.keep(known.jobs, lambda job: client.get(f"/v1/jobs/{job}", headers=admin).status_code == 200, "job")

        def is_good(name: str) -> bool:
            body = {"query": QUERIES[0], "rerank": False}
            return client.post("/v1/search", json=body, headers=bearer(known.keys[name])).status_code == 200

        report.keep(known.keys, is_good, "key")


def _ends_of_jobs(server: Server, known: Acknowledged, report: Report) -> Counter[str]:
    """Wait until all jobs are over and return how many ended how."""
    admin = bearer(known.keys["admin"])

    def jobs() -> dict[str, dict[str, str]]:
        found = httpx.get(f"{server.url}/v1/jobs?limit=1000", headers=admin, timeout=60).json()["jobs"]
        return {job["job_id"]: job for job in found}

    wait_until(
        lambda: not any(job["state"] in ("queued", "running") for job in jobs().values()),
        "the jobs are over",
        seconds=JOBS_SECONDS,
    )
    over = jobs()
    for name in known.jobs:
        state = over[name]["state"] if name in over else "forgotten"
        report.check(state in WAYS_TO_END, f"an acknowledged job is {state}: {over.get(name, {}).get('error')}")
    interrupted = sum(over[name]["state"] == "interrupted" for name in known.jobs if name in over)
    report.check(interrupted <= N_KILLS, f"{interrupted} jobs were interrupted by {N_KILLS} kills, one ran at a time")
    return Counter(over[name]["state"] for name in known.jobs if name in over)


def _build(folder: Path, report: Report) -> None:
    tercet = Tercet(folder, {"SNAPSHOT_POLL_SECONDS": "0.2"})
    tercet.must("index", write_documents(folder / "documents.jsonl", N_SERVED, seed=1))
    source = write_documents(folder / "more.jsonl", N_BUILT, seed=2)
    with ExitStack() as stack:
        server = stack.enter_context(tercet.serving())
        before = server.served()
        probe = stack.enter_context(probing(server.url))
        clients = stack.enter_context(Clients(server.url, [search(QUERIES[0], rerank=False)]))
        stages = [_killed(tercet, source, stage, share) for stage, share in KILLED_AT]
        report.check(tercet.current() == before == server.served(), "a build that was killed changed what is served")
        verified = tercet("snapshots", "verify")
        report.check(verified.code == 0, f"the snapshot before is not intact: {verified.sentence}")
        started = time.monotonic()
        built = tercet.must("index", source, "--json").json
        report.keep([built["snapshot"]], lambda name: tercet.current() == name, "snapshot")
        waited = wait_until(lambda: server.served() == built["snapshot"], "it is served", seconds=PATIENCE_SECONDS)
        stack.close()
        report.remarks.append(
            f"killed at {', '.join(stages)}; the next run embedded {built['n_embedded_passages']:,} of "
            f"{built['n_passages']:,} passages, published in {time.monotonic() - started:.0f} s and was served "
            f"{waited:.1f} s later"
        )
        is_continued = built["n_embedded_passages"] < built["n_passages"]
        report.check(is_continued, "the next run did not go on where the killed ones were")
        left = [path.name for path in (tercet.data / "default" / "snapshots").glob(".building-*")]
        report.check(not left, f"the killed builds left {left}")
        report.check(tercet("snapshots", "verify").code == 0, "the new snapshot is not intact")
        report.saw_only(clients.seen, {"200"})
        report.probed(probe.max_ms)


KILLED_AT = (("chunk", 0.5), ("embed", 0.3), ("embed", 0.5), ("embed", 0.7))


def _killed(tercet: Tercet, source: Path, stage: str, share: float) -> str:
    """Kill a build when it says that so much of a stage is done, and return what it said last."""
    with tercet.start("index", source, "--progress", "json") as process:
        assert process.stderr is not None
        said = "nothing"
        for line in process.stderr:
            if not line.startswith('{"stage"'):
                continue
            news = json.loads(line)
            said = f"{news['stage']} {news['done']:,}"
            if news["stage"] == stage and news["total"] and news["done"] >= share * news["total"]:
                break
        process.send_signal(signal.SIGKILL)
        process.stderr.close()
    return said if process.returncode == -signal.SIGKILL else f"{said}, where it had ended already"


SCENARIOS = (
    Scenario(
        "kill -9 of the service",
        f"it is killed {N_KILLS} times and started again at once, while clients search, post jobs and keys are made.",
        "every job and key that was acknowledged is there afterwards; jobs that waited are done, one that ran is "
        "said to be interrupted; clients see failed connections meanwhile, and no 500.",
        _service,
    ),
    Scenario(
        "kill -9 of a build",
        "builds of an index are killed at several stages, while its snapshot before is served.",
        "what is served stays; the next run goes on with the vectors that were made, publishes, and is served.",
        _build,
    ),
)
