"""Measure what it takes to index and to start serving: time and peak memory of the real processes (Linux).

`python loadtests/startup.py` indexes the documentation of this Python; `--source` names something else. Each command is
a process of its own, and its peak resident memory is what the kernel counted for it.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import httpx
import typer
from target import TargetError

TERCET = str(Path(sys.executable).with_name("tercet"))
START_SECONDS = 120
POLL_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class Cost:
    """Wall time in seconds and peak resident memory in MB (10^6 bytes) of one process."""

    step: str
    seconds: float
    peak_mb: float


def index_cost(source: str, *, data: Path) -> Cost:
    """Index a source into a folder and return what it cost; the index is called `default`.

    Raises:
        TargetError: the command fails; its complaints were shown on stderr.
    """
    started = time.perf_counter()
    # Its standard output is its result and ours is the table, so it goes to stderr.
    process = subprocess.Popen([TERCET, "index", "--index", "default", "--data", str(data), "--", source], stdout=2)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise TargetError(f"`tercet index {source}` failed with {process.returncode}.")
    return Cost(f"index {source}", time.perf_counter() - started, usage.ru_maxrss * 1024 / 1e6)


def serve_costs(*, data: Path) -> list[Cost]:
    """Start serving until /readyz says yes, ask one question, stop; return the cost up to each of the first two.

    Raises:
        TargetError: it stops, or is not ready in time.
    """
    port = _free_port()
    environment = {**os.environ, "TERCET_DATA_PATH": str(data), "TERCET_PORT": str(port), "TERCET_LOG_LEVEL": "warning"}
    started = time.perf_counter()
    process = subprocess.Popen([TERCET, "serve"], env=environment)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            _wait_until_ready(client, process)
            ready = Cost("serve, until ready", time.perf_counter() - started, _peak_mb(process))
            started = time.perf_counter()
            client.post("/v1/answer", json={"query": "how do I read a csv file row by row"}).raise_for_status()
            return [ready, Cost("first answer", time.perf_counter() - started, _peak_mb(process))]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


def _wait_until_ready(client: httpx.Client, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise TargetError(f"`tercet serve` stopped with {process.returncode} before it was ready.")
        try:
            if client.get("/readyz").status_code == 200:
                return
        except httpx.TransportError:
            pass  # it does not listen yet
        time.sleep(POLL_SECONDS)
    raise TargetError(f"`tercet serve` was not ready after {START_SECONDS} s.")


def _peak_mb(process: subprocess.Popen[bytes]) -> float:
    status = Path(f"/proc/{process.pid}/status").read_text()
    kibibytes = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(kibibytes) * 1024 / 1e6


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def main(
    source: Annotated[str, typer.Option(help="What `tercet index` takes.")] = "pydoc",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Index, serve, answer once, and print what each step cost."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            costs = [index_cost(source, data=Path(folder)), *serve_costs(data=Path(folder))]
    except TargetError as error:
        sys.exit(str(error))
    if as_json:
        typer.echo(json.dumps([asdict(cost) for cost in costs], indent=2))
        return
    typer.echo("| step | seconds | peak memory, MB |\n|---|---|---|")
    for cost in costs:
        typer.echo(f"| {cost.step} | {cost.seconds:.1f} | {cost.peak_mb:.0f} |")


if __name__ == "__main__":
    typer.run(main)
