"""Replay queries as often as users would ask them, and tell how many the service knew: hit rates of its cache.

    python loadtests/zipf.py QUERIES.jsonl.gz --url http://127.0.0.1:8000 [--url http://127.0.0.1:8001]

The query of rank r is drawn with a probability in proportion to 1 / r ** exponent (Zipf's law; 0.6 to 1.0 was seen in
logs of web searches). With a second service, such as one with TERCET_CACHE_BYTES=0, each drawn query is asked of both
in turn. Hits are what /metrics counted meanwhile.
"""

import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import httpx
import numpy as np
import typer
from target import TargetError, cache_lookups, check_target, read_queries

DEFAULT_URL = "http://127.0.0.1:8000"


@dataclass(slots=True)
class Replay:
    """What one service was asked, and what its cache knew: lookups are (hits, misses) by what was looked up."""

    url: str
    client: httpx.Client
    before: dict[str, tuple[float, float]]
    waits_ms: list[float] = field(default_factory=list)

    def ask(self, query: str) -> None:
        """Search once.

        Raises:
            TargetError: the response is not 200.
        """
        started = time.perf_counter()
        response = self.client.post("/v1/search", json={"query": query})
        self.waits_ms.append(1000 * (time.perf_counter() - started))
        if response.status_code != 200:
            raise TargetError(f"/v1/search answered {response.status_code}: {response.text}")

    def row(self) -> str:
        """Return the table's row."""
        rates = []
        for what, (hits, misses) in cache_lookups(self.client).items():
            found, needed = hits - self.before[what][0], hits + misses - sum(self.before[what])
            rates.append(f"{found / needed:.1%}" if needed else "–")
        p50, p95 = np.quantile(self.waits_ms, (0.5, 0.95))
        return f"| {self.url} | {' | '.join(rates)} | {p50:.1f} | {p95:.1f} | {np.mean(self.waits_ms):.1f} |"


def drawn(n_queries: int, *, n: int, exponent: float, seed: int) -> list[int]:
    """Return n ranks from 0, each with a probability in proportion to 1 / (rank + 1) ** exponent."""
    weights = 1 / np.arange(1, n_queries + 1) ** exponent
    draws = np.random.default_rng(seed).choice(n_queries, size=n, p=weights / weights.sum())
    return [int(rank) for rank in draws]


def main(
    queries: Annotated[Path, typer.Argument(help="JSON Lines with real queries, .gz too.")],
    url: Annotated[list[str] | None, typer.Option(help="A running service; may be given again.")] = None,
    n: Annotated[int, typer.Option(min=1, help="How many requests.")] = 1000,
    distinct: Annotated[int, typer.Option(min=1, help="How many queries at most they are drawn from.")] = 10_000,
    exponent: Annotated[
        float, typer.Option(min=0, help="0: all alike; 1: the second half as often as the first.")
    ] = 0.8,
    seed: int = 1,
) -> None:
    """Replay and print a row for each service."""
    try:
        asked = read_queries(queries, n=distinct)
        replays = []
        for each in url or [DEFAULT_URL]:
            check_target(each)
            client = httpx.Client(base_url=each, timeout=60)
            replays.append(Replay(each, client, cache_lookups(client)))
        for rank in drawn(len(asked), n=n, exponent=exponent, seed=seed):
            for replay in replays:
                replay.ask(asked[rank])
    except TargetError as error:
        sys.exit(str(error))
    typer.echo(f"{n} requests, {len(asked)} queries, exponent {exponent}\n")
    typer.echo("| service | vectors known | logits known | p50 ms | p95 ms | mean ms |\n|---|---|---|---|---|---|")
    for replay in replays:
        typer.echo(replay.row())


if __name__ == "__main__":
    typer.run(main)
