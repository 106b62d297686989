"""Measure how the service shares itself: throughput and latency by number of clients, /healthz meanwhile, and fairness.

`python loadtests/clients.py QUERIES.jsonl.gz` against a running service. Each client asks for one search after the
other (closed loop). Meanwhile /healthz is asked every 20 ms: it tells whether the event loop was ever blocked. At the
end a client with short requests (one candidate reranked) runs alone, and then beside one whose requests rerank as
many as the service allows: it should wait for one slice of the long request, not for all of it.
"""

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Annotated

import httpx
import numpy as np
import typer
from target import TargetError, check_target, read_queries, told_of_hits

LEVELS = (1, 4, 16)
PROBE_SECONDS = 0.02
LONG_RERANK_K = 1000


@dataclass(frozen=True, slots=True)
class Level:
    """What so many clients saw together; times in milliseconds."""

    n_clients: int
    per_second: float
    p50_ms: float
    p99_ms: float
    n_refused: int
    healthz_p99_ms: float
    healthz_max_ms: float


class Client:
    """Searches, one after the other, and remembers how long each took."""

    def __init__(self, url: str, body: dict[str, object]) -> None:
        self._client = httpx.Client(base_url=url, timeout=120)
        self._body = body
        self.waits_ms: list[float] = []
        self.n_refused = 0

    def search(self, query: str) -> None:
        """Ask once; a refusal (429) is counted, and waits as long as it says.

        Raises:
            TargetError: any other status but 200.
        """
        started = time.perf_counter()
        response = self._client.post("/v1/search", json={"query": query, **self._body})
        if response.status_code == 429:
            self.n_refused += 1
            time.sleep(int(response.headers["Retry-After"]))
            return
        if response.status_code != 200:
            raise TargetError(f"/v1/search answered {response.status_code}: {response.text}")
        self.waits_ms.append(1000 * (time.perf_counter() - started))


@contextmanager
def in_background(work: Callable[[], None]) -> Iterator[None]:
    """Do work again and again in a thread, as long as the context."""
    is_over = threading.Event()

    def run() -> None:
        while not is_over.is_set():
            work()

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run)
        try:
            yield
        finally:
            is_over.set()
            running.result()


class Probe:
    """Asks /healthz at a steady pace."""

    def __init__(self, url: str) -> None:
        self._client = httpx.Client(base_url=url, timeout=60)
        self.waits_ms: list[float] = []

    def ask(self) -> None:
        """Ask once, then rest."""
        started = time.perf_counter()
        self._client.get("/healthz").raise_for_status()
        self.waits_ms.append(1000 * (time.perf_counter() - started))
        time.sleep(PROBE_SECONDS)


def measure(url: str, queries: Sequence[str], *, n_clients: int, body: dict[str, object]) -> Level:
    """Let so many clients ask all queries between them.

    Raises:
        TargetError: a search fails.
    """
    clients = [Client(url, body) for _ in range(n_clients)]
    probe = Probe(url)

    def ask(i: int) -> None:
        for query in queries[i::n_clients]:
            clients[i].search(query)

    started = time.perf_counter()
    with in_background(probe.ask), ThreadPoolExecutor(n_clients) as pool:
        list(pool.map(ask, range(n_clients)))
    seconds = time.perf_counter() - started
    waits = [wait for client in clients for wait in client.waits_ms]
    p50, p99 = np.quantile(waits, (0.5, 0.99))
    return Level(
        n_clients,
        len(waits) / seconds,
        float(p50),
        float(p99),
        sum(client.n_refused for client in clients),
        float(np.quantile(probe.waits_ms, 0.99)),
        max(probe.waits_ms),
    )


def measure_fairness(url: str, queries: Sequence[str]) -> tuple[float, float]:
    """Return the median latency of a short search alone, and beside a client with the longest ones, in milliseconds."""
    longest: dict[str, object] = {"rerank_k": LONG_RERANK_K, "retrieve_k": LONG_RERANK_K, "settle_k": 0}
    short, long = Client(url, {"rerank_k": 1}), Client(url, longest)
    found = []
    for query in queries:
        short.search(query)
    found.append(float(np.median(short.waits_ms)))
    short.waits_ms.clear()
    with in_background(lambda: long.search(queries[0])):
        time.sleep(1)
        for query in queries:
            short.search(query)
    return found[0], float(np.median(short.waits_ms))


def main(
    queries: Annotated[Path, typer.Argument(help="JSON Lines with real queries, .gz too.")],
    url: Annotated[str, typer.Option(help="The running service; on this machine.")] = "http://127.0.0.1:8000",
    n: Annotated[int, typer.Option(min=1, max=5000, help="Searches at each number of clients.")] = 96,
    rerank_k: Annotated[int, typer.Option(min=0, max=1000, help="Candidates reranked; 0 to leave it out.")] = 100,
    settle_k: Annotated[int, typer.Option(min=0, max=1000, help="Results to settle; 0 to read all candidates.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print a line for each number of clients, and the medians of a short search alone and beside a long one."""
    body: dict[str, object] = {"rerank_k": rerank_k, "settle_k": settle_k} if rerank_k else {"rerank": False}
    try:
        check_target(url)
        asked = list(islice(cycle(read_queries(queries, n=n)), n))
        measure(url, asked[:5], n_clients=1, body=body)  # to warm up
        with told_of_hits(url):
            levels = [measure(url, asked, n_clients=n_clients, body=body) for n_clients in LEVELS]
            alone, beside = measure_fairness(url, asked[:20])
    except TargetError as error:
        sys.exit(str(error))
    if as_json:
        found = {"levels": [asdict(level) for level in levels], "short_alone_ms": alone, "short_beside_long_ms": beside}
        typer.echo(json.dumps(found, indent=2))
        return
    typer.echo("| clients | searches/s | over one | p50 ms | p99 ms | 429 | /healthz p99 ms | max ms |")
    typer.echo("|---|---|---|---|---|---|---|---|")
    for level in levels:
        typer.echo(
            f"| {level.n_clients} | {level.per_second:.2f} | {level.per_second / levels[0].per_second:.2f} |"
            f" {level.p50_ms:.0f} | {level.p99_ms:.0f} | {level.n_refused} | {level.healthz_p99_ms:.1f} |"
            f" {level.healthz_max_ms:.1f} |"
        )
    typer.echo(f"\nA search that reranks one candidate: {alone:.0f} ms alone, {beside:.0f} ms beside the longest ones.")


if __name__ == "__main__":
    typer.run(main)
