"""Measure the latency of /v1/search and /v1/answer, one request at a time, with the time of each stage.

`python loadtests/latency.py QUERIES.jsonl.gz` against a running service; prints Markdown, or JSON with --json. What the
client waits for is measured here; the stages are what the service reports in `timings_ms`.
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
from target import TargetError, check_target, read_queries

WARM_UP_REQUESTS = 5


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Median and 95th percentile of n durations, in milliseconds, linearly interpolated (numpy's default)."""

    n: int
    p50_ms: float
    p95_ms: float


@dataclass(frozen=True, slots=True)
class RouteLatency:
    """One route's latency as its client saw it, and by stage as the service reports it, stages in order."""

    route: str
    client: Quantiles
    stages: dict[str, Quantiles]


def quantiles(durations_ms: Sequence[float]) -> Quantiles:
    """Return the quantiles of at least one duration."""
    p50, p95 = np.quantile(np.asarray(durations_ms), (0.5, 0.95))
    return Quantiles(len(durations_ms), float(p50), float(p95))


def measure(client: httpx.Client, route: str, bodies: Sequence[dict[str, Any]]) -> RouteLatency:
    """Post the bodies one after the other, the first few once more before them to warm up.

    Raises:
        TargetError: a response is not 200.
    """
    for body in bodies[:WARM_UP_REQUESTS]:
        client.post(route, json=body)
    waits_ms: list[float] = []
    stages_ms: dict[str, list[float]] = {}
    for body in bodies:
        started = time.perf_counter()
        response = client.post(route, json=body)
        waits_ms.append(1000 * (time.perf_counter() - started))
        if response.status_code != 200:
            raise TargetError(f"{route} answered {response.status_code} to request {len(waits_ms)}: {response.text}")
        for stage, spent_ms in response.json()["timings_ms"].items():
            stages_ms.setdefault(stage, []).append(spent_ms)
    return RouteLatency(route, quantiles(waits_ms), {stage: quantiles(spent) for stage, spent in stages_ms.items()})


def markdown(measured: Sequence[RouteLatency]) -> str:
    """Return one table: a column pair per route, the client's view first, then the service's stages."""
    longest_first = sorted(measured, key=lambda route: -len(route.stages))  # so that the stages keep their order
    names = ["client", *dict.fromkeys(stage for route in longest_first for stage in route.stages)]
    head = " | ".join(f"`{route.route}` p50 ms | p95 ms" for route in measured)
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
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure both routes and print p50 and p95."""
    try:
        check_target(url)
        bodies: list[dict[str, Any]] = [{"query": query, "rerank_k": rerank_k} for query in read_queries(queries, n=n)]
        with httpx.Client(base_url=url, timeout=60) as client:
            measured = [measure(client, route, bodies) for route in ("/v1/search", "/v1/answer")]
    except TargetError as error:
        sys.exit(str(error))
    typer.echo(json.dumps([asdict(route) for route in measured], indent=2) if as_json else markdown(measured))


if __name__ == "__main__":
    typer.run(main)
