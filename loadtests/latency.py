"""Measure the latency of /v1/search and /v1/answer, one request at a time, with the time of each stage.

`python loadtests/latency.py QUERIES.jsonl.gz` against a running service; prints Markdown, or JSON with --json. What the
client waits for is measured here; the stages are what the service reports in `timings_ms`. With --settle-k given again,
each query is asked in each way in turn: `--settle-k 0 --settle-k 10` compares reading all with the early exit.
"""

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import httpx
import numpy as np
import typer
from target import TargetError, check_target, read_queries, told_of_hits

WARM_UP_REQUESTS = 5


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Median and 95th percentile of n durations, in milliseconds, linearly interpolated (numpy's default)."""

    n: int
    p50_ms: float
    p95_ms: float


@dataclass(frozen=True, slots=True)
class RouteLatency:
    """One way's latency as its client saw it, and by stage as the service reports it, stages in order."""

    name: str
    client: Quantiles
    stages: dict[str, Quantiles]


def quantiles(durations_ms: Sequence[float]) -> Quantiles:
    """Return the quantiles of at least one duration."""
    p50, p95 = np.quantile(np.asarray(durations_ms), (0.5, 0.95))
    return Quantiles(len(durations_ms), float(p50), float(p95))


def measure(
    client: httpx.Client, route: str, queries: Sequence[str], ways: Sequence[dict[str, Any]]
) -> list[RouteLatency]:
    """Ask the queries one after the other, each in all ways, the first few once more before them to warm up.

    Raises:
        TargetError: a response is not 200.
    """
    for query in queries[:WARM_UP_REQUESTS]:
        client.post(route, json={"query": query} | ways[0])
    waits_ms: list[list[float]] = [[] for _ in ways]
    stages_ms: list[dict[str, list[float]]] = [{} for _ in ways]
    for query in queries:
        for way, waits, stages in zip(ways, waits_ms, stages_ms, strict=True):
            started = time.perf_counter()
            response = client.post(route, json={"query": query} | way)
            waits.append(1000 * (time.perf_counter() - started))
            if response.status_code != 200:
                raise TargetError(f"{route} answered {response.status_code} to request {len(waits)}: {response.text}")
            for stage, spent_ms in response.json()["timings_ms"].items():
                stages.setdefault(stage, []).append(spent_ms)
    return [
        RouteLatency(
            f"{route}, settle_k {way['settle_k']}",
            quantiles(waits),
            {stage: quantiles(spent) for stage, spent in stages.items()},
        )
        for way, waits, stages in zip(ways, waits_ms, stages_ms, strict=True)
    ]


def markdown(measured: Sequence[RouteLatency]) -> str:
    """Return one table: a column pair per way, the client's view first, then the service's stages."""
    longest_first = sorted(measured, key=lambda route: -len(route.stages))  # so that the stages keep their order
    names = ["client", *dict.fromkeys(stage for route in longest_first for stage in route.stages)]
    head = " | ".join(f"`{route.name}` p50 ms | p95 ms" for route in measured)
    lines = [f"| n = {measured[0].client.n} | {head} |", "|---" * (1 + 2 * len(measured)) + "|"]
    for name in names:
        found = [route.client if name == "client" else route.stages.get(name) for route in measured]
        cells = ["– | –" if each is None else f"{each.p50_ms:.1f} | {each.p95_ms:.1f}" for each in found]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main(
    queries: Annotated[Path, typer.Argument(help="JSON Lines with real queries, .gz too.")],
    url: Annotated[str, typer.Option(help="The running service; on this machine.")] = "http://127.0.0.1:8000",
    n: Annotated[int, typer.Option(min=1, max=2000, help="How many queries.")] = 200,
    rerank_k: Annotated[int, typer.Option(min=1, max=1000, help="Candidates reranked per request.")] = 100,
    settle_k: Annotated[list[int] | None, typer.Option(help="Results to settle; may be given again.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure both routes and print p50 and p95."""
    try:
        check_target(url)
        asked = read_queries(queries, n=n)
        ways = [{"rerank_k": rerank_k, "settle_k": each} for each in settle_k or [10]]
        with told_of_hits(url), httpx.Client(base_url=url, timeout=60) as client:
            measured = [each for route in ("/v1/search", "/v1/answer") for each in measure(client, route, asked, ways)]
    except TargetError as error:
        sys.exit(str(error))
    typer.echo(json.dumps([asdict(route) for route in measured], indent=2) if as_json else markdown(measured))


if __name__ == "__main__":
    typer.run(main)
