"""A disk that is full: while a snapshot is built and published, a job is posted, and a key is made."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from scenarios.documents import QUERIES, write_documents
from scenarios.kills import bearer, new_key
from scenarios.load import Clients, probing, search
from scenarios.processes import JOBS_SECONDS, PATIENCE_SECONDS, Tercet, wait_until
from scenarios.report import CannotRunError, Report, Scenario

DISK_BYTES = 16_000_000
N_DOCUMENTS = 200
FREE_SHARES = (0.0, 0.3, 0.7, 1.1, 1.6, 2.5)  # of a snapshot; a build needs more than one
ABOUT_SPACE = ("space", "full", "free")


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """Give a folder that is a disk of DISK_BYTES in memory.

    Raises:
        CannotRunError: it cannot be mounted.
    """
    folder.mkdir()
    options = f"size={DISK_BYTES},mode=0700"
    mounting = ["/bin/mount", "-t", "tmpfs", "-o", options, "tercet-chaos", str(folder)]
    done = subprocess.run(mounting, capture_output=True, text=True) if os.geteuid() == 0 else None
    if done is None or done.returncode != 0:
        why = "only root may mount a small disk" if done is None else done.stderr.strip()
        raise CannotRunError(f"no disk of its own: {why}")
    try:
        yield folder
    finally:
        subprocess.run(["/bin/umount", "--lazy", str(folder)], check=True)


class Ballast:
    """A file that leaves so much of a disk free."""

    def __init__(self, disk: Path) -> None:
        self.disk = disk
        self._path = disk / "ballast"

    def leave(self, n_bytes: int) -> None:
        """Fill the disk but for so many bytes, or as nearly as its blocks allow."""
        self.remove()
        free = os.statvfs(self.disk)
        size = max(0, free.f_bavail * free.f_frsize - n_bytes)
        with self._path.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(size, 1))

    def remove(self) -> None:
        """Free the disk."""
        self._path.unlink(missing_ok=True)


def _full(folder: Path, report: Report) -> None:
    with small_disk(folder / "disk") as disk:
        source = write_documents(folder / "documents.jsonl", N_DOCUMENTS, seed=1)
        sources = folder / "sources"
        sources.mkdir()
        settings = {"DATA_PATH": str(disk), "SNAPSHOT_POLL_SECONDS": "0.2", "JOBS_PATH": str(sources)}
        tercet = Tercet(folder, settings)
        tercet.must("index", source)
        known = {"admin": new_key(tercet, "admin", "--scope", "admin")}
        with tercet.serving() as server:
            ask = [search(QUERIES[0], rerank=False)]
            with probing(server.url) as probe, Clients(server.url, ask, headers=bearer(known["admin"])) as clients:
                _fill(tercet, Ballast(disk), folder, report)
                jobs = _post_jobs(server.url, Ballast(disk), sources, known, report)
                snapshot = tercet.must("index", write_documents(folder / "last.jsonl", N_DOCUMENTS, seed=99), "--json")
                report.keep([snapshot.json["snapshot"]], lambda name: tercet.current() == name, "snapshot")
                admin = bearer(known["admin"])
                wait_until(lambda: server.served(admin) == tercet.current(), "it is served", seconds=PATIENCE_SECONDS)
            report.saw_only(clients.seen, {"200"})
            report.probed(probe.max_ms)
            report.was_ready_after(server.restart())
            with httpx.Client(base_url=server.url, timeout=60) as client:
                report.keep(jobs, lambda job: client.get(f"/v1/jobs/{job}", headers=admin).status_code == 200, "job")

                def is_good(name: str) -> bool:
                    return client.get("/v1/indexes", headers=bearer(known[name])).status_code == 200

                report.keep(known, is_good, "key")


def _fill(tercet: Tercet, ballast: Ballast, folder: Path, report: Report) -> None:
    """Build with less and less space missing; each build either publishes or says that there is no space."""
    need = _bytes_of(tercet.data / "default" / "current")
    ends = []
    for i, share in enumerate(FREE_SHARES):
        before = tercet.current()
        source = write_documents(folder / f"{i}.jsonl", N_DOCUMENTS, seed=10 + i)
        ballast.leave(int(share * need))
        done = tercet("index", source, "--json")
        ballast.remove()
        ends.append(f"{share:.0%}: {'published' if done.code == 0 else 'refused'}")
        if done.code == 0:
            report.keep([done.json["snapshot"]], lambda name: tercet.current() == name, "snapshot")
            continue
        is_told = done.is_one_sentence and any(word in done.sentence for word in ABOUT_SPACE)
        report.check(
            is_told, f"with {share:.0%} of the space a build ended with {done.code} and said {done.sentence!r}"
        )
        report.check(tercet.current() == before, f"with {share:.0%} of the space a build changed what is current")
        verified = tercet("snapshots", "verify")
        report.check(verified.code == 0, f"with {share:.0%} of the space the snapshot before is {verified.sentence!r}")
    report.remarks.append(f"builds with a share of the {need / 1e6:.1f} MB of a snapshot free: {', '.join(ends)}")


def _bytes_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.resolve().rglob("*") if path.is_file())


def _post_jobs(url: str, ballast: Ballast, sources: Path, known: dict[str, str], report: Report) -> list[str]:
    """Post jobs and make keys on the full disk and on the free one; return the jobs that were acknowledged."""
    write_documents(sources / "job.jsonl", 20, seed=3)
    tercet = Tercet(sources.parent, {"DATA_PATH": str(ballast.disk)})
    admin, jobs = bearer(known["admin"]), []
    with httpx.Client(base_url=url, timeout=60, headers=admin) as client:
        for free in (0, 6_000, 1_000_000):
            ballast.leave(free)
            for _ in range(5):
                taken = client.post("/v1/jobs", json={"source": "job.jsonl", "index": "side"})
                report.saw_only({str(taken.status_code): 1}, {"202", "507"})
                jobs += [taken.json()["job_id"]] if taken.status_code == 202 else []
            uploaded = client.post(
                "/v1/jobs/upload?file_name=a.jsonl&index=other",
                content=b'{"id":"a","text":"a"}\n' * 50_000,
                headers={"Content-Type": "application/octet-stream"},
            )
            report.saw_only({str(uploaded.status_code): 1}, {"202", "507"})
            jobs += [uploaded.json()["job_id"]] if uploaded.status_code == 202 else []
            made = tercet("keys", "create", "--name", f"key{free}", "--scope", "admin")
            if made.code == 0:
                known[f"key{free}"] = made.stdout.strip()
            else:
                report.check(made.is_one_sentence, f"with {free:,} bytes a key was refused with {made.sentence!r}")
        ballast.remove()

        def are_over() -> bool:
            return not any(client.get(f"/v1/jobs/{job}").json()["state"] in ("queued", "running") for job in jobs)

        wait_until(are_over, "the jobs are over", seconds=JOBS_SECONDS)
    return jobs


SCENARIOS = (
    Scenario(
        "full disk",
        f"builds, jobs and keys on a disk of {DISK_BYTES / 1e6:.0f} MB in memory that has less and less free, while "
        "its snapshot is served.",
        "what does not fit is refused by a sentence about space, or with 507; what was current and acknowledged stays; "
        "searches go on; once there is space everything works.",
        _full,
    ),
)
