"""Show how far a build is: as every command shows long work, or as JSON lines for the program that started it."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Literal

import orjson

from indexer.recipe import BuildProgress
from service.commands.output import say
from service.commands.progress import progress_display

SECONDS_BETWEEN_JSON_LINES = 0.25

_PHASES = {
    "read": "Reading documents",
    "chunk": "Cutting passages",
    "embed": "Embedding passages",
}


@contextmanager
def build_progress(shown: Literal["auto", "json"]) -> Iterator[Callable[[BuildProgress], None]]:
    """Give what takes the news of a build, and leave stderr tidy at the end, also of failed work."""
    if shown == "json":
        lines = JsonLines(say, clock=time.monotonic)
        yield lines.update
        lines.finish()
        return
    with progress_display() as display:

        def show(progress: BuildProgress) -> None:
            if progress.stage in _PHASES:
                display.update(_PHASES[progress.stage], progress.done, progress.total)

        yield show


class JsonLines:
    """Writes `{"stage":"embed","done":64,"total":900}`: when a stage begins, a few times a second, when it ends."""

    def __init__(self, write: Callable[[str], None], *, clock: Callable[[], float]) -> None:
        self._write, self._clock = write, clock
        self._last: BuildProgress | None = None  # the news that came last, None once it is written
        self._stage = ""
        self._written = 0.0

    def update(self, progress: BuildProgress) -> None:
        """Write a line if it is time for one; cheap enough to be called for every item."""
        now = self._clock()
        if progress.stage != self._stage:
            self.finish()
        elif now - self._written < SECONDS_BETWEEN_JSON_LINES:
            self._last = progress
            return
        self._stage, self._written, self._last = progress.stage, now, None
        self._write(orjson.dumps(asdict(progress)).decode())

    def finish(self) -> None:
        """Write what was held back, if anything."""
        if self._last is not None:
            self._write(orjson.dumps(asdict(self._last)).decode())
            self._last = None
