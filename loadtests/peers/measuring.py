"""Start one process, let it score, and return what it saw; a failure is a `PeerError` with the process's last words."""

import json
import os
import re
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peers.failures import PeerError
from peers.workers.protocol import Task

ROOT = Path(__file__).parents[2]
WORKERS = Path(__file__).parent / "workers"
PROCESS_SECONDS = 3_600
_ERROR = re.compile(r"[\w.]+(Error|Exception): ")
_WORDS = 200  # characters of a failure that are shown


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """What one process did in one round.

    outputs is (n_requests, n_passages) logits, or (n_passages, dimension) vectors; per_second counts pairs, or
    passages. start_seconds is from the process's start to its first score, peak_mb its greatest resident memory.
    """

    per_second: float
    outputs: NDArray[np.float32]
    peak_mb: float
    start_seconds: float


def quiet_environment() -> dict[str, str]:
    """Return the environment of a peer's process: no hub is asked, nobody is told, and it finds Tercet's own code."""
    asks_nobody = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "DO_NOT_TRACK": "1"}
    threads = {"OMP_NUM_THREADS": str(len(os.sched_getaffinity(0)))}
    return {**os.environ, **asks_nobody, **threads, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'loadtests'}"}


def last_line(text: str) -> str:
    """Return the last line of a process's words that names an error, else the last that says something, cut."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if _ERROR.match(line)]
    return (errors or lines or ["it said nothing"])[-1][:_WORDS]


def measure(python: Path, worker: Path, task: Task) -> Sample:
    """Run a worker in an interpreter.

    Raises:
        PeerError: it fails, or takes too long.
    """
    order = task.result.with_suffix(".task")
    task.write(order)
    task.result.unlink(missing_ok=True)
    started = time.monotonic()
    _finish([str(python), str(worker), str(order)])
    found = json.loads(task.result.read_bytes())
    requests = json.loads(task.requests.read_bytes())
    n_units = sum(len(passages) for _, passages in requests)
    return Sample(
        per_second=n_units / found["seconds"],
        outputs=outputs_of(task.kind, found["outputs"]),
        peak_mb=found["peak_mb"],
        start_seconds=found["first_score_at"] - started,
    )


def outputs_of(kind: str, outputs: Sequence[Any]) -> NDArray[np.float32]:
    """Return a worker's outputs as an array.

    Raises:
        PeerError: they are ragged, or no finite numbers.
    """
    try:
        found = np.array(outputs if kind != "embed" else outputs[0], np.float32)
    except (ValueError, TypeError):
        raise PeerError("it gave other than one number, or one vector, for each passage") from None
    if not np.isfinite(found).all():
        raise PeerError("it gave numbers that are not finite")
    return found


def _finish(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(
            command, env=quiet_environment(), capture_output=True, text=True, errors="replace", timeout=PROCESS_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise PeerError(f"it took more than {PROCESS_SECONDS} s") from None
    if done.returncode != 0:
        raise PeerError(f"it ended with {done.returncode}: {last_line(done.stderr)}")
