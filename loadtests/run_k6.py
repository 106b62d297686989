"""Put open-loop load on a running service with k6, and print what it did to latency.

`python loadtests/run_k6.py QUERIES.jsonl.gz --rate 1`. Starts no service: checks that one here is ready, gives
k6 the queries, and reads its summary. A rate that the service cannot keep shows as a growing latency, 429s or dropped
requests, and in no other way.
"""

import json
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from target import TargetError, check_target, read_queries, told_of_hits


@dataclass(frozen=True, slots=True)
class Load:
    """What k6 is to do: requests per second to a route for so many seconds, by at most so many clients at once."""

    route: str
    rate: float
    seconds: int
    clients: int
    rerank_k: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it; latencies in milliseconds over all completed requests, `dropped` for want of a free client.

    The rate is over the whole run, with the time that the last requests took to end.
    """

    completed: int
    completed_per_second: float
    failed: int
    dropped: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float


def run_k6(url: str, load: Load, queries: list[str]) -> Outcome:
    """Run k6 once and return what it measured.

    Raises:
        TargetError: k6 fails; the message has its last words.
    """
    k6 = Path(sys.executable).with_name("k6")
    with tempfile.TemporaryDirectory() as folder:
        summary, queries_file = Path(folder, "summary.json"), Path(folder, "queries.json")
        queries_file.write_text(json.dumps(queries))
        values = {"URL": url, "ROUTE": load.route, "RATE_PER_MINUTE": round(60 * load.rate), "SECONDS": load.seconds}
        values |= {"CLIENTS": load.clients, "RERANK_K": load.rerank_k, "QUERIES": queries_file, "SUMMARY": summary}
        settings = [part for name, value in values.items() for part in ("--env", f"{name}={value}")]
        script = str(Path(__file__).with_name("search.js"))
        command = [str(k6), "run", "--quiet", "--no-usage-report", "--address", "127.0.0.1:0", *settings, script]
        done = subprocess.run(command, capture_output=True, text=True, timeout=load.seconds + 90)
        if done.returncode != 0:
            raise TargetError(f"k6 failed with {done.returncode}: {done.stderr[-500:]}")
        return outcome(json.loads(summary.read_text()))


def outcome(metrics: dict[str, Any]) -> Outcome:
    """Return what k6's metrics say; a metric that never had a sample is missing from them."""
    waits = metrics["http_req_duration"]["values"]
    requests = metrics["http_reqs"]["values"]
    return Outcome(
        completed=int(requests["count"]),
        completed_per_second=requests["rate"],
        failed=int(metrics["checks"]["values"]["fails"]),
        dropped=int(metrics.get("dropped_iterations", {"values": {"count": 0}})["values"]["count"]),
        p50_ms=waits["med"],
        p95_ms=waits["p(95)"],
        p99_ms=waits["p(99)"],
        max_ms=waits["max"],
    )


def markdown(load: Load, found: Outcome) -> str:
    """Return a table of one row."""
    return (
        "| route | asked/s | done/s | done | failed | dropped | p50 ms | p95 ms | p99 ms | max ms |\n"
        "|---|---|---|---|---|---|---|---|---|---|\n"
        f"| `{load.route}` | {load.rate:g} | {found.completed_per_second:.2f} | {found.completed} | {found.failed} | "
        f"{found.dropped} | {found.p50_ms:.0f} | {found.p95_ms:.0f} | {found.p99_ms:.0f} | {found.max_ms:.0f} |"
    )


def main(
    queries: Annotated[Path, typer.Argument(help="JSON Lines with real queries, .gz too.")],
    url: Annotated[str, typer.Option(help="The running service; on this machine.")] = "http://127.0.0.1:8000",
    route: Annotated[str, typer.Option(help="/v1/search or /v1/answer.")] = "/v1/search",
    rate: Annotated[float, typer.Option(min=0.1, max=200, help="Requests started per second.")] = 1.0,
    seconds: Annotated[int, typer.Option(min=1, max=300, help="How long.")] = 60,
    clients: Annotated[int, typer.Option(min=1, max=256, help="Most requests at once.")] = 64,
    rerank_k: Annotated[int, typer.Option(min=1, max=1000, help="Candidates reranked per request.")] = 100,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Run one load and print its latency."""
    load = Load(route=route, rate=rate, seconds=seconds, clients=clients, rerank_k=rerank_k)
    try:
        check_target(url)
        with told_of_hits(url):
            found = run_k6(url, load, read_queries(queries, n=2000))
    except TargetError as error:
        sys.exit(str(error))
    typer.echo(json.dumps({"load": asdict(load), "outcome": asdict(found)}) if as_json else markdown(load, found))


if __name__ == "__main__":
    typer.run(main)
