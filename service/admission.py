"""Whether a request is taken, decided before any of its work by the tokens that it will cost the models.

Each clause is a test:

1. The tokens of all requests under way stay within a limit; who would go beyond it is turned away at once. An idle
   service takes any request, so that none is too long to be served ever.
2. `Retry-After` is how long the service needs, at the rate measured, until there is room.
3. A request whose least work cannot be done before its deadline is turned away instead of computed.

A request holds its tokens to its end, whatever of them is done: an estimate from above, which errs by refusing.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, TypeAlias

from service.problems import DeadlineExceeded, Overloaded
from service.stages import Deadline

Refusal: TypeAlias = Literal["full", "deadline"]
MAX_RETRY_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Cost:
    """Estimated tokens: all that a request will cost, and the least of it that cannot be left out near a deadline."""

    tokens: int
    least: int


class Admission:
    """Counts the tokens of the requests under way, on one event loop."""

    def __init__(
        self, max_tokens: int, *, tokens_per_second: Callable[[], float], refused: Callable[[Refusal], None]
    ) -> None:
        """tokens_per_second is what the models were last measured to do, 0 while unknown; refused is told why."""
        self._max_tokens = max_tokens
        self._tokens_per_second = tokens_per_second
        self._refused = refused
        self.tokens = 0
        self.n_requests = 0

    @contextmanager
    def admitted(self, cost: Cost, deadline: Deadline) -> Iterator[None]:
        """Hold a request's tokens for the while.

        Raises:
            Overloaded: there is no room for it, or with what is under way its deadline cannot be kept.
            DeadlineExceeded: its deadline could not be kept even by an idle service.
        """
        self._require_room(cost)
        self._require_time(cost, deadline)
        self.tokens += cost.tokens
        self.n_requests += 1
        try:
            yield
        finally:
            self.tokens -= cost.tokens
            self.n_requests -= 1

    def _require_room(self, cost: Cost) -> None:
        excess = self.tokens + cost.tokens - self._max_tokens
        if self.n_requests and excess > 0:
            self._refused("full")
            raise Overloaded(
                f"About {self.tokens:,} tokens are under way, of {self._max_tokens:,} at most; this request is about"
                f" {cost.tokens:,} more.",
                retry_after_seconds=self._seconds(min(excess, self.tokens)),
            )

    def _require_time(self, cost: Cost, deadline: Deadline) -> None:
        """Return if the request can be done in time.

        Batches are dealt in turn to all who wait, so a request gets its share of the rate or better: it waits for the
        tokens of all others, or for as many of theirs as it has itself, whichever is less.
        """
        rate, left = self._tokens_per_second(), deadline.seconds_left()
        if rate <= 0:
            return
        alone = cost.least / rate
        expected = min(self.tokens + cost.least, cost.least * (self.n_requests + 1)) / rate
        if expected <= left:
            return
        self._refused("deadline")
        if alone > left:
            raise DeadlineExceeded(f"This takes about {alone:.2g} s; {left:.2g} s are left to the deadline.")
        raise Overloaded(
            f"With what is under way this takes about {expected:.2g} s; {left:.2g} s are left to the deadline.",
            retry_after_seconds=self._seconds(self.tokens),
        )

    def _seconds(self, tokens: int) -> int:
        """Return how long the service needs for so many tokens, from 1 to MAX_RETRY_SECONDS."""
        rate = self._tokens_per_second()
        return min(MAX_RETRY_SECONDS, max(1, math.ceil(tokens / rate))) if rate > 0 else 1
