"""The tries of one call, without making them: what is sent, whether there is another try and when, what comes of it.

A call is tried again after a 429 or 503 with `Retry-After` and after a connection that failed before a response: a
bounded number of times, no sooner than the service asked for, and not beyond the caller's time.
"""

from __future__ import annotations

import dataclasses
import json
import random
import re
from collections.abc import AsyncIterable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

import httpx

from tercet_client.calls import Call
from tercet_client.deadline import Deadline, OperationTimeouts, growing_pauses
from tercet_client.errors import ConnectionFailed, Problem, TercetError, UnexpectedResponse, api_error
from tercet_client.parsing import parse

T = TypeVar("T")

_MAX_TIMEOUT_MS = 600_000  # of the API
_SPREAD = 0.25  # a pause is longer by up to so much of itself, so that those who were turned away come back one by one
_LATE = "The response has not come"
_SECONDS = re.compile(r"[0-9]{1,6}")

Pieces: TypeAlias = Iterable[bytes] | AsyncIterable[bytes] | None


@dataclass(frozen=True, slots=True)
class Reply:
    """A response that has come whole."""

    status: int
    headers: Mapping[str, str]
    content: bytes


@dataclass(frozen=True, slots=True)
class Failure:
    """A try without a whole response; has_begun says whether its head had come."""

    error: httpx.RequestError
    has_begun: bool


Outcome: TypeAlias = Reply | Failure


class Tries(Generic[T]):
    """Makes the requests of one call, and judges what became of each."""

    def __init__(self, call: Call[T], deadline: Deadline, *, max_retries: int) -> None:
        self.call = call
        self.deadline = deadline
        self._n_left = max_retries
        self._pauses = growing_pauses()

    def request(self, http: httpx.Client | httpx.AsyncClient, pieces: Pieces) -> httpx.Request:
        """Return the request of the next try; pieces are those of the file that goes with it.

        Raises:
            ValueError: an id is too long for an address.
        """
        call = self.call
        headers = {}
        content: bytes | Pieces = pieces
        if call.upload is not None:
            headers["Content-Type"] = "application/octet-stream"
            if call.upload.n_bytes is not None:
                headers["Content-Length"] = str(call.upload.n_bytes)
        elif call.body is not None:
            headers["Content-Type"] = "application/json"
            content = self._json(call.body)
        timeouts = {"timeout": OperationTimeouts(self.deadline)}
        query = call.query if call.query else None
        try:
            return http.build_request(
                call.method, call.path, params=query, headers=headers, content=content, extensions=timeouts
            )
        except httpx.InvalidURL as error:
            raise ValueError(f"There can be no such address: {error}.") from None

    def _json(self, body: Mapping[str, object]) -> bytes:
        if self.call.has_deadline:
            milliseconds = int(min(_MAX_TIMEOUT_MS, max(1.0, 1000 * self.deadline.seconds_left())))
            body = {**body, "timeout_ms": milliseconds}
        text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-8", "surrogatepass")  # the service refuses what is no Unicode text, and says where

    def require_time(self) -> None:
        """Return if there is time for more of the response.

        Raises:
            Timeout: there is none.
        """
        if self.deadline.seconds_left() <= 0:
            raise self.deadline.timeout(_LATE, self._ending())

    def pause_after(self, outcome: Outcome) -> float | None:
        """Return in how many seconds to try again, None if this outcome is the last."""
        if self._n_left <= 0 or not self._may_repeat(outcome):
            return None
        self._n_left -= 1
        least = next(self._pauses)
        if isinstance(outcome, Reply):
            least = max(least, _retry_after_seconds(outcome) or 0)
        pause = least * (1 + random.uniform(0, _SPREAD))  # noqa: S311 - nobody gains from guessing it
        return pause if pause < self.deadline.seconds_left() else None

    def _may_repeat(self, outcome: Outcome) -> bool:
        if self.call.repeat == "never":
            return False
        if isinstance(outcome, Reply):
            return outcome.status in (429, 503) and _retry_after_seconds(outcome) is not None
        if isinstance(outcome.error, httpx.ConnectError):
            return True
        is_broken = isinstance(outcome.error, (httpx.NetworkError, httpx.RemoteProtocolError))
        return is_broken and not outcome.has_begun and self.call.repeat == "always"

    def result(self, outcome: Outcome) -> T:
        """Return what the call gives.

        Raises:
            TercetError: it gives nothing.
        """
        if isinstance(outcome, Failure):
            raise self._failure(outcome.error) from outcome.error
        if 200 <= outcome.status < 300:
            return parse(self.call.returns, outcome.content)
        raise _refusal(outcome)

    def _failure(self, error: httpx.RequestError) -> TercetError:
        if isinstance(error, httpx.DecodingError):
            return UnexpectedResponse("The response cannot be decompressed.")
        was_sent = not isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout))
        ending = self._ending() if was_sent else "."
        if isinstance(error, httpx.TimeoutException):
            return self.deadline.timeout(_LATE, ending)
        url, reason = error.request.url, str(error) or type(error).__name__
        place = f"{url.scheme}://{url.netloc.decode()}"
        return ConnectionFailed(f"The connection to {place} failed: {reason.rstrip('.')}{ending}")

    def _ending(self) -> str:
        return "." if self.call.can_be_made_twice else ". The job may have been taken: look before you send it again."


def _refusal(reply: Reply) -> TercetError:
    """Return the exception for a response that is no success.

    What is no problem document comes from a gateway before the service, which speaks for it; but not when it says 404.
    """
    try:
        problem = dataclasses.replace(parse(Problem, reply.content), status=reply.status)
    except UnexpectedResponse:
        problem = Problem("about:blank", httpx.codes.get_reason_phrase(reply.status), reply.status)
        if reply.status < 400 or reply.status == 404:
            return UnexpectedResponse(f"Is this a Tercet service? The response is {reply.status} {problem.title}.")
    return api_error(problem, _retry_after_seconds(reply))


def _retry_after_seconds(reply: Reply) -> int | None:
    text = reply.headers.get("retry-after", "")
    return int(text) if _SECONDS.fullmatch(text) else None
