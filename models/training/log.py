"""A run's log as CSV: loss, speed and learning rate as it goes, and the dev measures of each check.

A kill or a full disk can cut its last line off. Lines that cannot be read are left out.
"""

import csv
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

LOG_FILE = "log.csv"
_COLUMNS = ["step", "n_steps", "loss", "tokens_per_second", "learning_rate", "dev"]


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run is; loss and speed are means since the line before, measures those of a check on dev."""

    step: int
    n_steps: int
    loss: float
    tokens_per_second: float
    measures: Mapping[str, float] = field(default_factory=dict)


def append_progress(path: Path, progress: Progress, *, learning_rate: float) -> None:
    """Append a line to a log that `start_log` made; the measures become JSON in the last column."""
    dev = json.dumps({name: round(value, 5) for name, value in progress.measures.items()}) if progress.measures else ""
    speed = f"{progress.tokens_per_second:.0f}"
    with path.open("a", newline="") as file:
        csv.writer(file).writerow([progress.step, progress.n_steps, f"{progress.loss:.5f}", speed, learning_rate, dev])


def start_log(path: Path, step: int) -> None:
    """Leave the header and the lines up to a step, which a run goes on after; it will write the later ones again."""
    kept = [row for progress, row in _rows(path) if progress.step <= step]
    partial = path.with_name(f"{path.name}.partial")
    with partial.open("w", newline="") as file:
        csv.writer(file).writerows([_COLUMNS, *kept])
    os.replace(partial, path)


def read_log(path: Path) -> list[Progress]:
    """Return the lines of a log in order; none for a file that is not there."""
    return [progress for progress, _ in _rows(path)]


def _rows(path: Path) -> Iterator[tuple[Progress, list[str]]]:
    """Yield each line that can be read, and its fields."""
    if not path.is_file():
        return
    with path.open(newline="", errors="replace") as file:
        for line in file:
            try:
                [row] = csv.reader([line])
                step, n_steps, loss, speed, _, dev = row
                measures = {name: float(value) for name, value in json.loads(dev or "{}").items()}
                progress = Progress(int(step), int(n_steps), float(loss), float(speed), measures)
            except (ValueError, TypeError, AttributeError, csv.Error):
                continue
            yield progress, row
