"""A run's log as CSV: loss, speed and learning rate as it goes, and the dev measures of each check."""

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

LOG_FILE = "log.csv"
_COLUMNS = ("step", "n_steps", "loss", "tokens_per_second", "learning_rate", "dev")


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run is; loss and speed are means since the line before, measures those of a check on dev."""

    step: int
    n_steps: int
    loss: float
    tokens_per_second: float
    measures: Mapping[str, float] = field(default_factory=dict)


def append_progress(path: Path, progress: Progress, *, learning_rate: float) -> None:
    """Append a line, after the header if it is the first; the measures become JSON in the last column."""
    is_new = not path.is_file()
    dev = json.dumps({name: round(value, 5) for name, value in progress.measures.items()}) if progress.measures else ""
    speed = f"{progress.tokens_per_second:.0f}"
    with path.open("a", newline="") as file:
        writer = csv.writer(file)
        if is_new:
            writer.writerow(_COLUMNS)
        writer.writerow([progress.step, progress.n_steps, f"{progress.loss:.5f}", speed, learning_rate, dev])


def drop_after(path: Path, step: int) -> None:
    """Drop the lines after a step, which the resumed run will write again; no log is an empty one."""
    rows = _rows(path)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(row for number, row in enumerate(rows) if number == 0 or int(row[0]) <= step)


def read_log(path: Path) -> list[Progress]:
    """Return the lines of a log in order; none for a file that is not there."""
    return [
        Progress(int(step), int(n_steps), float(loss), float(speed), json.loads(dev) if dev else {})
        for step, n_steps, loss, speed, _, dev in _rows(path)[1:]
    ]


def _rows(path: Path) -> Sequence[list[str]]:
    if not path.is_file():
        return []
    with path.open(newline="") as file:
        return list(csv.reader(file))
