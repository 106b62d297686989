"""Measure what an indexing job costs those who search meanwhile: p50 and p99 of /v1/search with a job and without.

`python loadtests/jobs_latency.py QUERIES.jsonl.gz SOURCE` against a running service that may read SOURCE for jobs.

Searches run one after the other, as in `latency.py`. Rounds without a job and with one alternate, because a shared
machine changes its speed from minute to minute; the ratio is that of their medians over rounds. A job that ends within
its round is posted again, and the last is cancelled: give a source that takes longer than a round to embed.
"""

import json
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Annotated

import httpx
import numpy as np
import typer
from target import TargetError, check_target, read_queries, told_of_hits

INDEX = "jobs-latency"
START_SECONDS = 120
POLL_SECONDS = 0.1
ALLOWED_RATIO = 2.0


@dataclass(frozen=True, slots=True)
class Round:
    """Latency of n searches in milliseconds, and the passages that a job embedded meanwhile, 0 without one."""

    has_job: bool
    n: int
    p50_ms: float
    p99_ms: float
    n_embedded: int


class BuildUnderWay:
    """A job that is kept running, posted again when it ends."""

    def __init__(self, client: httpx.Client, source: str) -> None:
        self._client, self._source = client, source
        self._location = ""
        self._embedded_before = 0

    def start(self) -> None:
        """Post the job and return when it embeds.

        Raises:
            TargetError: it is refused, fails, or embeds nothing in time.
        """
        taken = self._client.post("/v1/jobs", json={"source": self._source, "index": INDEX})
        if taken.status_code != 202:
            raise TargetError(f"/v1/jobs answered {taken.status_code}: {taken.text}")
        self._location = taken.headers["location"]
        deadline = time.monotonic() + START_SECONDS
        while not self._n_embedding():
            if time.monotonic() > deadline:
                raise TargetError(f"The job embedded nothing in {START_SECONDS} s.")
            time.sleep(POLL_SECONDS)

    def keep(self) -> None:
        """Post the job again if it is over."""
        job = self._client.get(self._location).json()
        if job["state"] == "succeeded":
            self._embedded_before += job["result"]["n_passages"]
            self.start()
        elif job["state"] != "running":
            raise TargetError(f"The job is {job['state']}: {job['error']}")

    def n_embedded(self) -> int:
        """Return how many passages were embedded since the beginning."""
        return self._embedded_before + self._n_embedding()

    def cancel(self) -> None:
        """End it."""
        if self._location:
            self._client.delete(self._location)

    def _n_embedding(self) -> int:
        job = self._client.get(self._location).json()
        if job["state"] not in ("queued", "running", "succeeded"):
            raise TargetError(f"The job is {job['state']}: {job['error']}")
        progress = job["progress"]
        return int(progress["done"]) if progress is not None and progress["stage"] in ("embed", "publish") else 0


@contextmanager
def building(client: httpx.Client, source: str) -> Iterator[BuildUnderWay]:
    """Give a job that embeds, and cancel it at the end.

    Raises:
        TargetError: as `BuildUnderWay.start`.
    """
    build = BuildUnderWay(client, source)
    try:
        build.start()
        yield build
    finally:
        build.cancel()


def measure(client: httpx.Client, queries: Sequence[str], *, source: str | None, rerank_k: int) -> Round:
    """Search for the queries one after the other, while a job indexes the source unless that is None.

    Raises:
        TargetError: a search or the job fails.
    """
    if source is None:
        waits_ms = [_wait_ms(client, query, rerank_k) for query in queries]
        return _round(waits_ms, n_embedded=0, has_job=False)
    with building(client, source) as build:
        waits_ms = []
        for query in queries:
            waits_ms.append(_wait_ms(client, query, rerank_k))
            build.keep()
        return _round(waits_ms, n_embedded=build.n_embedded(), has_job=True)


def _wait_ms(client: httpx.Client, query: str, rerank_k: int) -> float:
    started = time.perf_counter()
    response = client.post("/v1/search", json={"query": query, "rerank_k": rerank_k})
    if response.status_code != 200:
        raise TargetError(f"/v1/search answered {response.status_code}: {response.text}")
    return 1000 * (time.perf_counter() - started)


def _round(waits_ms: Sequence[float], *, n_embedded: int, has_job: bool) -> Round:
    p50, p99 = np.quantile(np.asarray(waits_ms), (0.5, 0.99))
    return Round(has_job, len(waits_ms), float(p50), float(p99), n_embedded)


def ratios(rounds: Sequence[Round]) -> tuple[float, float]:
    """Return p50 and p99 with a job over those without, each the median over its rounds."""

    def median(name: str, *, has_job: bool) -> float:
        return statistics.median(float(getattr(each, name)) for each in rounds if each.has_job == has_job)

    p50, p99 = (median(name, has_job=True) / median(name, has_job=False) for name in ("p50_ms", "p99_ms"))
    return p50, p99


def main(
    queries: Annotated[Path, typer.Argument(help="JSON Lines with real queries, .gz too.")],
    source: Annotated[str, typer.Argument(help="What the job indexes, below TERCET_JOBS_PATH; minutes of work.")],
    url: Annotated[str, typer.Option(help="The running service; on this machine.")] = "http://127.0.0.1:8000",
    n: Annotated[int, typer.Option(min=1, max=2000, help="Searches in a round.")] = 100,
    rounds: Annotated[int, typer.Option(min=1, max=50, help="Rounds of each kind.")] = 3,
    rerank_k: Annotated[int, typer.Option(min=1, max=1000, help="Candidates reranked per request.")] = 100,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print each round and the ratios; exit with 1 if p99 with a job is more than twice that without."""
    measured: list[Round] = []
    try:
        check_target(url)
        asked = list(islice(cycle(read_queries(queries, n=n)), n))
        with told_of_hits(url), httpx.Client(base_url=url, timeout=120) as client:
            measure(client, asked[:5], source=None, rerank_k=rerank_k)  # to warm up
            for _ in range(rounds):
                measured.append(measure(client, asked, source=None, rerank_k=rerank_k))
                measured.append(measure(client, asked, source=source, rerank_k=rerank_k))
    except TargetError as error:
        sys.exit(str(error))
    p50, p99 = ratios(measured)
    if as_json:
        found = {"rounds": [asdict(each) for each in measured], "p50_ratio": p50, "p99_ratio": p99}
        typer.echo(json.dumps(found, indent=2))
    else:
        typer.echo("| job | n | p50 ms | p99 ms | passages embedded |\n|---|---|---|---|---|")
        for each in measured:
            name = "yes" if each.has_job else "no"
            typer.echo(f"| {name} | {each.n} | {each.p50_ms:.1f} | {each.p99_ms:.1f} | {each.n_embedded} |")
        typer.echo(f"\nWith a job over without: p50 {p50:.2f}, p99 {p99:.2f} (allowed: {ALLOWED_RATIO:g}).")
    if p99 > ALLOWED_RATIO:
        sys.exit(1)


if __name__ == "__main__":
    typer.run(main)
