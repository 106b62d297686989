"""A request's deadline and its stages: the one place where a stage is timed, counted and stopped."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from service.metrics import Metrics
from service.problems import DeadlineExceeded


@dataclass(frozen=True, slots=True)
class Deadline:
    """A span of the running event loop's time: a request begins at one end and must be over at the other."""

    began: float
    at: float

    @classmethod
    def after(cls, seconds: float) -> "Deadline":
        """Return the deadline of a request that begins now, `seconds` away."""
        now = asyncio.get_running_loop().time()
        return cls(now, now + seconds)

    def earlier(self, seconds: float) -> "Deadline":
        """Return the deadline that is so much earlier, for what must leave time for something else."""
        return Deadline(self.began, self.at - seconds)

    def share(self, share: float) -> float:
        """Return the time at which that share of the span is over."""
        return self.began + share * (self.at - self.began)

    def seconds_left(self) -> float:
        """Return how long it is to the deadline, negative when it has passed."""
        return self.at - asyncio.get_running_loop().time()

    def check(self, stage: str) -> None:
        """Raise DeadlineExceeded if the deadline has passed."""
        if self.seconds_left() <= 0:
            raise DeadlineExceeded(f"The deadline passed before the end of the stage `{stage}`.")


@dataclass(slots=True)
class Stages:
    """Times the stages of one request; `seconds` maps each stage that ran to its duration, in order."""

    metrics: Metrics
    deadline: Deadline
    seconds: dict[str, float] = field(default_factory=dict)
    started: float = field(default_factory=time.perf_counter)

    @asynccontextmanager
    async def stage(self, name: str) -> AsyncIterator[None]:
        """Run the block as stage `name`, which ends at the deadline at the latest.

        Raises:
            DeadlineExceeded: the deadline has passed, or passes while the block waits.
        """
        self.deadline.check(name)
        started = time.perf_counter()
        limit = asyncio.timeout_at(self.deadline.at)
        try:
            async with limit:
                yield
        except TimeoutError:
            if not limit.expired():
                raise
            raise DeadlineExceeded(f"The deadline passed before the end of the stage `{name}`.") from None
        finally:
            seconds = time.perf_counter() - started
            self.seconds[name] = self.seconds.get(name, 0.0) + seconds
            self.metrics.stage_duration_seconds.labels(name).observe(seconds)

    def timings(self) -> dict[str, float]:
        """Return the seconds of each stage and of everything together so far (`total`)."""
        return self.seconds | {"total": time.perf_counter() - self.started}
