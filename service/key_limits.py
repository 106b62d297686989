"""How much each key has asked for: a token bucket for requests a minute, and a count of those that run.

The bucket holds a minute's worth and fills steadily, so after a pause a key may spend a minute's worth at once.
`RateLimit` and `RateLimit-Policy` are those of draft-ietf-httpapi-ratelimit-headers-11; their window is here the time
until one more request is granted.
"""

import math

from service.keys import Limits
from service.problems import KeyAtLimit

_CONCURRENCY_RETRY_SECONDS = 1  # nobody knows when one of those that run will end
_ROUNDING = 1e-9  # so that who waits as long as was said is served


class TokenBucket:
    """Full at first. Times are in seconds, of a clock that is never set."""

    def __init__(self, per_minute: int, now: float) -> None:
        self.per_minute = per_minute
        self._tokens = float(per_minute)
        self._filled_at = now

    def fill(self, now: float) -> None:
        """Add what has come since the last time."""
        self._tokens = min(self.per_minute, self._tokens + (now - self._filled_at) * self.per_minute / 60)
        self._filled_at = now

    def take(self) -> None:
        """Take one of at least one."""
        self._tokens -= 1

    @property
    def n_left(self) -> int:
        """How many can be taken."""
        return math.floor(self._tokens + _ROUNDING)

    @property
    def seconds_to_next(self) -> int:
        """In how many whole seconds, at least one, there is one more than now."""
        return max(1, math.ceil((self.n_left + 1 - self._tokens) * 60 / self.per_minute))


class Usage:
    """What one key has used."""

    def __init__(self, limits: Limits, now: float) -> None:
        self._concurrent = limits.concurrent
        self._bucket = TokenBucket(limits.requests_per_minute, now) if limits.requests_per_minute is not None else None
        self._n_running = 0

    def enter(self, now: float) -> None:
        """Count a request that begins; `leave` must follow.

        Raises:
            KeyAtLimit: it may not begin, and is not counted.
        """
        bucket = self._bucket
        if bucket is not None:
            bucket.fill(now)
            if bucket.n_left < 1:
                detail = f"This key may send {bucket.per_minute} requests a minute."
                raise KeyAtLimit(detail, retry_after_seconds=bucket.seconds_to_next)
        if self._concurrent is not None and self._n_running >= self._concurrent:
            detail = f"This key may have {self._concurrent} requests under way at once."
            raise KeyAtLimit(detail, retry_after_seconds=_CONCURRENCY_RETRY_SECONDS)
        if bucket is not None:
            bucket.take()
        self._n_running += 1

    def leave(self) -> None:
        """Count a request that has ended."""
        self._n_running -= 1

    def headers(self) -> dict[str, str]:
        """Return how much was left when a request last wanted to enter."""
        bucket = self._bucket
        if bucket is None:
            return {}
        return {
            "RateLimit-Policy": f'"requests";q={bucket.per_minute};w=60',
            "RateLimit": f'"requests";r={bucket.n_left};t={bucket.seconds_to_next}',
        }
