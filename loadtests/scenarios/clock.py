"""A wall clock that jumps by days, forward and backward, under a running service, its jobs and its builds.

libfaketime 0.9.10 (Debian) would do, but with the monotonic clock left alone `time.sleep` fails under it; so a library
of a page is compiled and preloaded.
"""

import shutil
import struct
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from scenarios.documents import QUERIES, write_documents
from scenarios.kills import bearer, new_key
from scenarios.processes import JOBS_SECONDS, PATIENCE_SECONDS, Server, Tercet, wait_until
from scenarios.report import CannotRunError, Report, Scenario

N_DOCUMENTS = 100
DAY_SECONDS = 86_400
LIMIT = 2  # requests a minute
N_KEPT = 3


class WallClock:
    """A wall clock that can be set, for processes with `environment`."""

    def __init__(self, folder: Path) -> None:
        """Compile what makes it.

        Raises:
            CannotRunError: there is no C compiler, or it fails.
        """
        compiler = shutil.which("cc")
        if compiler is None:
            raise CannotRunError("there is no C compiler (cc) to make a wall clock that can be set")
        library, source = folder / "wall_clock.so", Path(__file__).with_name("wall_clock.c")
        compiling = [compiler, "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
        done = subprocess.run(compiling, capture_output=True, text=True)
        if done.returncode != 0:
            raise CannotRunError(f"the wall clock cannot be compiled: {done.stderr.strip()[-200:]}")
        self._offset = folder / "clock-offset"
        self._offset.write_bytes(bytes(8))
        self.environment = {"LD_PRELOAD": str(library), "CLOCK_OFFSET_FILE": str(self._offset)}

    def set(self, days: float) -> None:
        """Let it be off by so many days."""
        with self._offset.open("r+b") as file:
            file.write(struct.pack("=q", int(days * DAY_SECONDS)))


@dataclass(frozen=True, slots=True)
class Service:
    """A service with a clock, and the keys that ask it."""

    server: Server
    clock: WallClock
    keys: dict[str, str]

    def get(self, path: str, key: str = "admin") -> httpx.Response:
        """Ask for a path."""
        return httpx.get(f"{self.server.url}{path}", headers=bearer(self.keys[key]), timeout=60)

    def post(self, path: str, body: dict[str, object], key: str = "admin") -> httpx.Response:
        """Post a body."""
        return httpx.post(f"{self.server.url}{path}", json=body, headers=bearer(self.keys[key]), timeout=60)

    def search(self, key: str = "admin") -> int:
        """Return the status of a search that has 29 seconds."""
        return self.post("/v1/search", {"query": QUERIES[0], "rerank_k": 3, "timeout_ms": 29_000}, key).status_code

    def job(self, source: str, index: str = "side") -> str:
        """Post a job and return its id."""
        job_id: str = self.post("/v1/jobs", {"source": source, "index": index}).json()["job_id"]
        return job_id

    def jobs(self) -> list[dict[str, Any]]:
        """Return the jobs, the newest first."""
        found: list[dict[str, Any]] = self.get("/v1/jobs").json()["jobs"]
        return found

    def wait_over(self) -> None:
        """Return when no job waits or runs."""

        def are_over() -> bool:
            return not any(job["state"] in ("queued", "running") for job in self.jobs())

        wait_until(are_over, "the jobs are over", seconds=JOBS_SECONDS)

    def job_seconds(self) -> float:
        """Return what the metrics say that all jobs took together."""
        lines = self.get("/metrics").text.splitlines()
        sums = [line for line in lines if line.startswith("tercet_job_duration_seconds_sum")]
        return sum(float(line.split()[-1]) for line in sums)


def _jumps(folder: Path, report: Report) -> None:
    clock = WallClock(folder)
    sources = folder / "sources"
    sources.mkdir()
    for i in range(6):
        write_documents(sources / f"{i}.jsonl", 20, seed=50 + i)
    write_documents(sources / "long.jsonl", 300, seed=60)
    settings = {"JOBS_PATH": str(sources), "JOBS_KEPT": str(N_KEPT), "SNAPSHOT_POLL_SECONDS": "0.2"}
    tercet = Tercet(folder, settings, clock.environment)
    tercet.must("index", write_documents(folder / "documents.jsonl", N_DOCUMENTS, seed=1))
    keys = {
        "admin": new_key(tercet, "admin", "--scope", "admin"),
        "short": new_key(tercet, "short", "--scope", "search", "--expires", "24h"),
        "limited": new_key(tercet, "limited", "--scope", "search", "--requests-per-minute", str(LIMIT)),
    }
    with tercet.serving() as server:
        service = Service(server, clock, keys)
        _expiry(service, report)
        _rate_limit(service, report)
        _snapshots(service, report)
        _job_history(service, report)
        _job_order(service, report)
        report.keep(keys, lambda name: service.get("/v1/indexes", name).status_code in (200, 429), "key")
        log = server.log_path.read_text()
        report.check('"level":"error"' not in log, "errors stand in the log")


def _statuses(service: Service, report: Report, wanted: Sequence[tuple[float, str, int]]) -> None:
    """Set the clock and search, again and again, and compare the status."""
    for days, key, status in wanted:
        service.clock.set(days)
        found = service.search(key)
        report.seen[str(found)] += 1
        report.check(found == status, f"with the clock off by {days:g} days the key {key!r} got {found}, not {status}")


def _expiry(service: Service, report: Report) -> None:
    """A key expires by the wall clock, a request's deadline does not."""
    wanted = [(0, "short", 200), (2, "short", 401), (2, "admin", 200), (-3, "short", 200), (-3, "admin", 200)]
    _statuses(service, report, [*wanted, (0, "short", 200)])


def _rate_limit(service: Service, report: Report) -> None:
    """A limit is one of real minutes: a jump grants nothing and takes nothing."""

    def ask() -> int:
        return service.get("/v1/indexes", "limited").status_code

    found = [ask() for _ in range(LIMIT + 1)]
    report.check(found == [200] * LIMIT + [429], f"a key of {LIMIT} requests a minute got {found}")
    for days in (2, -3):
        service.clock.set(days)
        jumped = [ask() for _ in range(3)]
        granted = jumped.count(200)
        report.check(granted <= 1, f"a jump to {days:+} days granted a key at its limit {granted} requests at once")
    time.sleep(60 / LIMIT + 1)
    again = ask()
    report.check(again == 200, f"a key at its limit got {again} after the time of one request, with the clock set back")
    service.clock.set(0)


def _snapshots(service: Service, report: Report) -> None:
    """What was published last is current whatever its date, and a rollback goes to the one before."""
    tercet, published = service.server.tercet, [service.server.tercet.current()]
    for i, days in enumerate((2, -3, 0)):
        service.clock.set(days)
        source = write_documents(tercet.folder / f"{i}.jsonl", N_DOCUMENTS, seed=20 + i)
        published.append(tercet.must("index", source, "--json", "--keep", "4").json["snapshot"])
        report.keep(published[-1:], lambda name: tercet.current() == name, "snapshot")
        wait_until(
            lambda: service.get("/v1/indexes").json()["indexes"][0]["snapshot"] == published[-1],
            "the new snapshot is served",
            seconds=PATIENCE_SECONDS,
        )
    for before in reversed(published[:-1]):
        back = tercet("snapshots", "rollback")
        report.check(
            back.code == 0 and tercet.current() == before, f"a rollback went to {tercet.current()}, not {before}"
        )
    listed = tercet.must("snapshots", "ls", "--json").json["snapshots"]
    report.check(len(listed) == len(published), f"{len(listed)} snapshots are there, not {len(published)}")


def _job_history(service: Service, report: Report) -> None:
    """The jobs that ended last are kept, whatever their date; none took less than no time."""
    posted = []
    for i, days in enumerate((2, 2, 2, -3, -3)):
        service.clock.set(days)
        posted.append(service.job(f"{i}.jsonl"))
        service.wait_over()
        known = service.get(f"/v1/jobs/{posted[-1]}").status_code
        report.check(known == 200, "a job that ended after the clock was set back is forgotten at once")
    kept = [job["job_id"] for job in service.jobs()]
    report.check(
        kept == posted[: -N_KEPT - 1 : -1], "the jobs that are kept are not those that ended last, newest first"
    )
    before = service.job_seconds()
    service.clock.set(0)
    job = service.job("long.jsonl")
    wait_until(lambda: service.get(f"/v1/jobs/{job}").json()["state"] == "running", "the job runs")
    service.clock.set(-3)
    service.wait_over()
    ended = service.get(f"/v1/jobs/{job}").json()
    report.check(ended["state"] == "succeeded", f"a job during which the clock was set back is {ended['state']}")
    took = service.job_seconds() - before
    report.check(
        0 <= took < DAY_SECONDS, f"a job during which the clock was set back took {took:,.0f} s by the metrics"
    )


def _job_order(service: Service, report: Report) -> None:
    """Jobs that wait keep their order over a restart, whatever their dates."""
    service.clock.set(2)
    service.job("long.jsonl", "other")
    waiting: list[str] = []
    for days in (2, -3, 0):
        service.clock.set(days)
        waiting.append(service.job(f"{len(waiting)}.jsonl"))
    report.was_ready_after(service.server.restart())
    listed = [job["job_id"] for job in service.jobs() if job["job_id"] in waiting]
    report.keep(waiting, lambda job: service.get(f"/v1/jobs/{job}").status_code == 200, "job")
    report.check(listed == waiting[::-1], "after a restart, jobs are not in the order in which they were posted")
    service.wait_over()


SCENARIOS = (
    Scenario(
        "clock jumps",
        "the wall clock of a service, its jobs and builds jumps two days forward and three days back.",
        "keys expire by it and nothing else does: deadlines, rate limits, the order of jobs and of snapshots, and how "
        "long a job took are right; what was acknowledged is there.",
        _jumps,
    ),
)
