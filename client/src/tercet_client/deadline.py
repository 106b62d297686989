"""How long a caller waits, and how often it looks again meanwhile."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

from tercet_client.errors import TercetError, Timeout

_MAX_SECONDS = 86_400.0  # of one operation on a socket, which takes no infinity
_LEAST_SECONDS = 0.001  # which does not mean that the socket never blocks
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 2.0


class Deadline:
    """When the caller's time is over, and how long the other side may be silent until then."""

    def __init__(self, seconds: float, *, silent_seconds: float = math.inf) -> None:
        """Begin now; both may be infinite.

        Raises:
            ValueError: one of them is not more than 0.
        """
        self._seconds = min(seconds, silent_seconds)
        if not self._seconds > 0:
            raise ValueError(f"A timeout is more than 0 seconds, not {self._seconds}.")
        self._at = time.monotonic() + seconds
        self._silent_seconds = silent_seconds

    def seconds_left(self) -> float:
        """Return how much time there is, negative when it is over."""
        return self._at - time.monotonic()

    def operation_seconds(self) -> float:
        """Return how long one operation on a socket may take from now."""
        return max(_LEAST_SECONDS, min(self.seconds_left(), self._silent_seconds, _MAX_SECONDS))

    def timeout(self, what: str, ending: str = ".") -> Timeout:
        """Return the exception for what has not happened in time."""
        return Timeout(f"{what} within {self._seconds:g} s{ending}")


class OperationTimeouts(dict[str, float]):
    """The timeouts of a request, as the HTTP library looks one up before each phase: what is left by then."""

    def __init__(self, deadline: Deadline) -> None:
        super().__init__()
        self._deadline = deadline

    def get(self, key: str, default: object = None) -> float:
        """Return the timeout of a phase."""
        return self._deadline.operation_seconds()


def growing_pauses() -> Iterator[float]:
    """Yield seconds to wait before the next look, each twice the one before up to a limit."""
    seconds = _FIRST_PAUSE_SECONDS
    while True:
        yield seconds
        seconds = min(_LONGEST_PAUSE_SECONDS, 2 * seconds)


class Patience:
    """Looks again and again for something to happen, less and less often, until a deadline."""

    def __init__(self, what: str, seconds: float) -> None:
        """Begin now; `what` says that it has not happened."""
        self._what = what
        self._deadline = Deadline(seconds)
        self._pauses = growing_pauses()
        self._because: TercetError | None = None

    def look_seconds(self, longest: float) -> float:
        """Return how long the next look may take."""
        return max(_LEAST_SECONDS, min(longest, self._deadline.seconds_left()))

    def pause(self, because: TercetError | None = None) -> float:
        """Return how long to wait before the next look.

        Raises:
            Timeout: it has not happened in time; tells why the last look failed that was not cut short itself.
        """
        if self._because is None or not isinstance(because, Timeout):
            self._because = because
        left = self._deadline.seconds_left()
        if left <= 0:
            ending = "." if self._because is None else f": {self._because}"
            raise self._deadline.timeout(self._what, ending) from self._because
        return min(next(self._pauses), left)
