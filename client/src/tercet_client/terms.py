"""What both clients are made with, checked: where the service is, who asks, how long and how often."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeVar

import httpx

from tercet_client.calls import Call
from tercet_client.deadline import Deadline
from tercet_client.tries import Tries

T = TypeVar("T")

BASE_URL = "http://127.0.0.1:8000"
TIMEOUT_SECONDS = 30.0
MAX_RETRIES = 2

# The service closes a connection that was idle for five seconds; one that is older here could close as it is used.
LIMITS = httpx.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=4.0)


@dataclass(frozen=True, slots=True)
class Terms:
    """How long a call may take, and how often it is tried again."""

    timeout: float
    max_retries: int

    def __post_init__(self) -> None:
        """Refuse what makes no sense.

        Raises:
            ValueError: the timeout is not more than 0, or there are fewer retries than none.
        """
        Deadline(self.timeout)
        if self.max_retries < 0:
            raise ValueError(f"max_retries is 0 or more, not {self.max_retries}.")

    def tries(self, call: Call[T], timeout: float | None) -> Tries[T]:
        """Return the tries of a call that begins now; timeout is its own, if it has one.

        A file takes as long as it takes: without a timeout of its own, only silence ends it.
        """
        if timeout is None and call.upload is not None:
            deadline = Deadline(math.inf, silent_seconds=self.timeout)
        else:
            deadline = Deadline(self.timeout if timeout is None else timeout)
        return Tries(call, deadline, max_retries=self.max_retries)


def checked_url(base_url: str) -> httpx.URL:
    """Return where the service is.

    Raises:
        ValueError: it is no address of one.
    """
    try:
        url = httpx.URL(base_url)
    except httpx.InvalidURL as error:
        raise ValueError(f"base_url is no address: {error}.") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise ValueError(f"base_url begins with http:// or https:// and names a host, unlike {base_url!r}.")
    return url


def key_headers(api_key: str | None) -> dict[str, str]:
    """Return the headers that carry an API key.

    Raises:
        ValueError: a header cannot carry it; the message does not show it.
    """
    if api_key is None:
        return {}
    if not (api_key.isascii() and api_key.isprintable() and api_key) or " " in api_key:
        raise ValueError("api_key is empty, or has a space, a line end or another sign that no key has.")
    return {"Authorization": f"Bearer {api_key}"}
