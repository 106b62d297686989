"""What can go wrong in a call, as one tree.

    TercetError
    ├── ApiError                  the service refused or failed, and says why in a problem document
    │   ├── InvalidRequest        400, 413, 415, 422, 431: it cannot be served as it was sent; `errors` names the places
    │   ├── Unauthorized          401
    │   ├── Forbidden             403, 421
    │   ├── NotFound              404
    │   ├── RequestTooSlow        408
    │   ├── Conflict              409
    │   ├── Overloaded            429, with `retry_after_seconds`
    │   ├── ServerFailed          500, 507 and every other 5xx
    │   │   └── NotReady          503, with `retry_after_seconds`
    │   └── DeadlineExceeded      504; it is a Timeout too
    ├── Timeout                   the time that the caller gave is over
    ├── ConnectionFailed          there was no connection, or it broke
    └── UnexpectedResponse        what came is not what the API promises

The types of problems are listed in docs/problems.md of the service.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """One value of a request that does not fit; `pointer` is a JSON pointer into the body, `#` for the whole."""

    pointer: str
    detail: str


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem document (RFC 9457). `type` is constant for one kind of problem, so it is what programs compare.

    What is no problem document, such as the page of a gateway, is told as the type `about:blank`, with the status.
    """

    type: str
    title: str
    status: int
    detail: str | None = None
    message: str | None = None
    errors: tuple[Fault, ...] | None = None
    request_id: str | None = None


class TercetError(Exception):
    """Anything that this client raises for what happened; a wrong use of it is a ValueError or TypeError."""


class Timeout(TercetError):
    """The time that the caller gave is over."""


class ConnectionFailed(TercetError):
    """There was no connection to the service, or it broke before the whole response had come."""


class UnexpectedResponse(TercetError):
    """The response is not what the API promises: another program answers there, or another version."""


class ApiError(TercetError):
    """The service refused or failed; the attributes are those of its problem document."""

    def __init__(self, problem: Problem, retry_after_seconds: int | None = None) -> None:
        """Take what the service said; retry_after_seconds is its header `Retry-After`, None if there was none."""
        super().__init__(problem, retry_after_seconds)
        self.type = problem.type
        self.title = problem.title
        self.status = problem.status
        self.detail = problem.detail
        self.errors = problem.errors if problem.errors is not None else ()
        self.request_id = problem.request_id
        self.retry_after_seconds = retry_after_seconds

    def __str__(self) -> str:
        """Return everything that helps to understand it in one line."""
        sentence = f"{self.status} {self.title}"
        if self.detail is not None:
            sentence += f": {self.detail}"
        sentence += "".join(f" {fault.pointer}: {fault.detail}" for fault in self.errors)
        return sentence if self.request_id is None else f"{sentence} (request {self.request_id})"


class InvalidRequest(ApiError):
    """What was sent cannot be served as it is; `errors` names each place, where there is one."""


class Unauthorized(ApiError):
    """An API key is needed, or the one that was sent is not accepted."""


class Forbidden(ApiError):
    """This is not allowed here: by the key, or by the operator, who also says under which names the service answers."""


class NotFound(ApiError):
    """There is no such document, index, job or route; `type` says which."""


class RequestTooSlow(ApiError):
    """What was sent arrived too slowly: the connection is a bad one, or an upload's source a slow one."""


class Conflict(ApiError):
    """It cannot be done any more, such as cancelling a job that is over."""


class Overloaded(ApiError):
    """Too much is under way; come back in `retry_after_seconds`."""


class ServerFailed(ApiError):
    """The service, or a gateway before it, failed; the service's log has the cause under the request id."""


class NotReady(ServerFailed):
    """The service is starting or stopping."""


class DeadlineExceeded(ApiError, Timeout):
    """The service ended the call at its deadline: the caller's time, or its own limit if that is less."""


_BY_STATUS: dict[int, type[ApiError]] = {
    400: InvalidRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    408: RequestTooSlow,
    409: Conflict,
    413: InvalidRequest,
    415: InvalidRequest,
    421: Forbidden,
    422: InvalidRequest,
    429: Overloaded,
    431: InvalidRequest,
    503: NotReady,
    504: DeadlineExceeded,
}


def api_error(problem: Problem, retry_after_seconds: int | None) -> ApiError:
    """Return the exception that stands for a problem."""
    kind = _BY_STATUS.get(problem.status, ServerFailed if problem.status >= 500 else ApiError)
    return kind(problem, retry_after_seconds)
