"""What the process of every peer does: load, score once, warm up, score with the clock on, and write what it saw.

It runs in the peers' environments, so it imports nothing but the standard library. The one argument is a file with a
`Task` as JSON.
"""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Task:
    """What to load, and the files of what to score and of what came of it.

    kind is "rerank" or "embed"; requests holds a list of [query, passages], the query empty for "embed".
    """

    kind: str
    model: Path
    variant: str
    requests: Path
    result: Path

    @classmethod
    def read(cls, path: Path) -> "Task":
        """Return the task in a file."""
        said: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))
        return cls(said["kind"], Path(said["model"]), said["variant"], Path(said["requests"]), Path(said["result"]))

    def write(self, path: Path) -> None:
        """Write the task to a file."""
        path.write_text(json.dumps({name: str(value) for name, value in asdict(self).items()}), encoding="utf-8")


# Takes a query and passages; gives a logit for each passage in order, or a vector.
Score = Callable[[str, list[str]], list[Any]]


def run(load: Callable[[Task], Score]) -> None:
    """Do the task that the command line names; load is timed with it."""
    task = Task.read(Path(sys.argv[1]))
    requests = json.loads(task.requests.read_text(encoding="utf-8"))
    score = load(task)
    query, passages = requests[0]
    score(query, passages[:1])
    first_score_at = time.monotonic()  # of the whole machine, so that whoever started this process can compare
    outputs = [score(query, passages) for query, passages in requests]
    started = time.perf_counter()
    for query, passages in requests:
        score(query, passages)
    seconds = time.perf_counter() - started
    found = {"first_score_at": first_score_at, "seconds": seconds, "peak_mb": peak_mb("self"), "outputs": outputs}
    task.result.write_text(json.dumps(found), encoding="utf-8")


def peak_mb(process: "int | str") -> float:
    """Return the most memory that a process had resident since it became this program, in MB (Linux)."""
    status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    kibibytes = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(kibibytes) * 1024 / 1e6
