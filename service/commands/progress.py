"""Show long work on stderr: a bar with rate and time left on a terminal, a line every few seconds elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from service.commands.output import duration, say

SECONDS_BETWEEN_LINES = 5.0


class ProgressDisplay(Protocol):
    """Shows how far the work is. Phases follow each other; done never falls within one; total None is unknown."""

    def update(self, phase: str, done: int, total: int | None) -> None:
        """Take the news; cheap enough to be called for every item."""


@contextmanager
def progress_display() -> Iterator[ProgressDisplay]:
    """Give the display that fits stderr, and leave it tidy at the end, also of failed work."""
    if not sys.stderr.isatty():
        lines = ProgressLines(say, clock=time.monotonic)
        yield lines
        lines.finish()
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        RateColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bars:
        yield ProgressBars(bars)


class RateColumn(ProgressColumn):
    """Items per second, over the last half minute."""

    def render(self, task: Task) -> Text:
        """Return the rate, nothing while it is unknown."""
        speed = task.finished_speed if task.finished else task.speed
        return Text("" if speed is None else f"{speed:,.0f}/s" if speed >= 10 else f"{speed:.1f}/s")


class ProgressBars:
    """One rich bar per phase."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}

    def update(self, phase: str, done: int, total: int | None) -> None:
        """Move the bar of the phase, drawn at its first news."""
        if phase not in self._tasks:
            self._tasks[phase] = self._bars.add_task(phase, total=total)
        self._bars.update(self._tasks[phase], completed=done, total=total)


class ProgressLines:
    """A line when a phase begins, one every few seconds while it lasts, and one when it is over."""

    def __init__(self, write: Callable[[str], None], *, clock: Callable[[], float]) -> None:
        self._write = write
        self._clock = clock
        self._phase: str | None = None
        self._done, self._total = 0, None
        self._started = self._written = 0.0

    _total: int | None

    def update(self, phase: str, done: int, total: int | None) -> None:
        """Write a line if it is time for one."""
        now = self._clock()
        if phase != self._phase:
            self.finish()
            self._phase, self._started, self._written = phase, now, now
            self._write(f"{phase} …")
        self._done, self._total = done, total
        if now - self._written >= SECONDS_BETWEEN_LINES:
            self._written = now
            self._write(f"{phase}: {self._state(now - self._started)}")

    def finish(self) -> None:
        """Write the last line of the phase that is under way, if any."""
        if self._phase is not None:
            self._write(f"{self._phase}: {self._done:,} in {duration(self._clock() - self._started)}")
            self._phase = None

    def _state(self, elapsed: float) -> str:
        rate = self._done / elapsed
        if self._total is None or not rate:
            return f"{self._done:,}, {rate:,.1f}/s"
        left = duration((self._total - self._done) / rate)
        return f"{self._done:,} of {self._total:,}, {rate:,.1f}/s, {left} left"
