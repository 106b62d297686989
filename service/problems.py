"""Every HTTP error, as RFC 9457 problem documents (`application/problem+json`). The table is docs/problems.md.

How they leave is in service/problem_handlers.py.

    Problem
    ├── MalformedBody          400
    ├── MalformedRequest       400
    ├── KeyMissing             401
    ├── KeyRefused             401
    ├── ForeignPage            403
    ├── JobsDisabled           403
    ├── ScopeMissing           403
    ├── UnknownRoute           404
    ├── UnknownDocument        404
    ├── UnknownIndex           404
    ├── UnknownJob             404
    ├── MethodNotAllowed       405
    ├── RequestTooSlow         408
    ├── JobOver                409
    ├── BodyTooLarge           413
    ├── InputTooLong           413
    ├── UnsupportedMediaType   415
    ├── WrongHost              421
    ├── InvalidRequest         422
    ├── Overloaded             429
    │   ├── KeyAtLimit         429
    │   └── TooManyJobs        429
    ├── HeadersTooLarge        431
    ├── ClientLeft             499
    ├── InternalError          500
    ├── NotReady               503
    ├── DeadlineExceeded       504
    └── NoSpace                507

A problem's `detail` never quotes text that a user sent, and a 500 says nothing about its cause.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar
from urllib.parse import quote

MEDIA_TYPE = "application/problem+json"

_REALM = 'realm="tercet"'


class Problem(Exception):  # noqa: N818 - the word of RFC 9457
    """One kind of failure; each subclass is one problem type. `detail` says what happened this time."""

    type: ClassVar[str] = "/problems/internal-error"
    title: ClassVar[str] = "Internal server error"
    status: ClassVar[int] = 500

    def __init__(
        self,
        detail: str | None = None,
        *,
        errors: Sequence[Mapping[str, str]] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail if detail is not None else self.title)
        self.detail = detail
        self.errors = errors
        self.headers = dict(headers) if headers is not None else {}

    def document(self, request_id: str) -> dict[str, object]:
        """Return the body of the response."""
        body: dict[str, object] = {"type": self.type, "title": self.title, "status": self.status}
        if self.detail is not None:
            first = "".join(f" {fault['pointer']}: {fault['detail']}" for fault in self.errors[:1])
            body |= {"detail": self.detail, "message": self.detail + first}
        if self.errors:
            body["errors"] = list(self.errors)
        return body | {"request_id": request_id}


class MalformedBody(Problem):
    """The body is not JSON: bad syntax, NaN, lone surrogates, wrong encoding, too deep."""

    type, title, status = "/problems/malformed-body", "The request body is not valid JSON", 400


class MalformedRequest(Problem):
    """What came is not HTTP/1.1."""

    type, title, status = "/problems/malformed-request", "This is no HTTP request", 400


class KeyMissing(Problem):
    """No API key was sent."""

    type, title, status = "/problems/key-missing", "An API key is needed", 401

    def __init__(self) -> None:
        detail = "Send one as `Authorization: Bearer KEY` or as `X-API-Key: KEY`."
        super().__init__(detail, headers={"WWW-Authenticate": f"Bearer {_REALM}"})


class KeyRefused(Problem):
    """What was sent is no key, or one that is unknown, revoked or expired; `detail` never says which part was wrong."""

    type, title, status = "/problems/key-refused", "The API key is not accepted", 401

    def __init__(self, detail: str) -> None:
        super().__init__(detail, headers={"WWW-Authenticate": f'Bearer {_REALM}, error="invalid_token"'})


class ScopeMissing(Problem):
    """The key is good, but not for this route."""

    type, title, status = "/problems/scope-missing", "The API key may not do this", 403

    def __init__(self, scope: str) -> None:
        challenge = f'Bearer {_REALM}, error="insufficient_scope", scope="{scope}"'
        super().__init__(f"This needs a key with the scope `{scope}`.", headers={"WWW-Authenticate": challenge})


class ForeignPage(Problem):
    """A page of another site wants this of a service without keys."""

    type, title, status = "/problems/foreign-page", "Pages of other sites may not do this", 403


class WrongHost(Problem):
    """A service without keys was asked under a name that is not its own, as a page does that rebinds its name."""

    type, title, status = "/problems/wrong-host", "This service has another name", 421


class UnknownRoute(Problem):
    """No such path."""

    type, title, status = "/problems/unknown-route", "There is nothing at this path", 404


class UnknownDocument(Problem):
    """The index holds no document with this id."""

    type, title, status = "/problems/unknown-document", "There is no such document", 404


class UnknownIndex(Problem):
    """This service serves no index of this name."""

    type, title, status = "/problems/unknown-index", "There is no such index", 404


class JobsDisabled(Problem):
    """The operator has not set TERCET_JOBS_PATH."""

    type, title, status = "/problems/jobs-disabled", "This service takes no jobs", 403


class UnknownJob(Problem):
    """No job has this id, or it was over long ago."""

    type, title, status = "/problems/unknown-job", "There is no such job", 404


class RequestTooSlow(Problem):
    """Its headers or its body took too long to come."""

    type, title, status = "/problems/request-too-slow", "The request came too slowly", 408

    def __init__(self, detail: str) -> None:
        super().__init__(detail, headers={"Connection": "close"})  # the rest of it is not read


class JobOver(Problem):
    """The job ended before it could be cancelled."""

    type, title, status = "/problems/job-over", "The job is over", 409


class MethodNotAllowed(Problem):
    """The path exists, the method does not; `Allow` lists those that do."""

    type, title, status = "/problems/method-not-allowed", "The method is not allowed here", 405


class BodyTooLarge(Problem):
    """The body is longer than TERCET_MAX_BODY_BYTES, or an upload than TERCET_MAX_UPLOAD_BYTES."""

    type, title, status = "/problems/body-too-large", "The request body is too large", 413


@dataclass(frozen=True, slots=True)
class Fit:
    """A text of the body, by its path, and how many of its tokens the model takes and how many it does not."""

    path: tuple[str | int, ...]
    n_taken: int
    n_cut: int


class InputTooLong(Problem):
    """A text has more tokens than the model takes, and the request says that nothing may be cut (`truncate` false)."""

    type, title, status = "/problems/input-too-long", "A text is too long for the model", 413

    @classmethod
    def require_fit(cls, texts: Iterable[Fit]) -> None:
        """Return if all of the texts fit, else raise this with those that do not."""
        faults = [
            {
                "pointer": json_pointer(text.path),
                "detail": f"It has {text.n_taken + text.n_cut} tokens; the model takes {text.n_taken} of them.",
            }
            for text in texts
            if text.n_cut > 0
        ]
        if faults:
            raise cls(f"{len(faults)} of the texts would have to be cut.", errors=faults)


class UnsupportedMediaType(Problem):
    """The body is not announced as UTF-8 JSON, an upload not as application/octet-stream; or it is compressed."""

    type, title, status = "/problems/unsupported-media-type", "The request body is of another media type", 415


class InvalidRequest(Problem):
    """Fields are missing, unknown or out of bounds; `errors` lists all of them with JSON pointers."""

    type, title, status = "/problems/invalid-request", "The request is not valid", 422


class Overloaded(Problem):
    """Too much work is waiting; come back after `Retry-After` seconds."""

    type, title, status = "/problems/overloaded", "Too many requests are waiting", 429

    def __init__(self, detail: str, *, retry_after_seconds: int) -> None:
        super().__init__(detail, headers={"Retry-After": str(retry_after_seconds)})


class KeyAtLimit(Overloaded):
    """The API key has sent as many requests a minute, or at once, as it may."""

    type, title, status = "/problems/key-at-limit", "The API key is at its limit", 429


class TooManyJobs(Overloaded):
    """TERCET_JOBS_WAITING jobs wait already."""

    type, title, status = "/problems/too-many-jobs", "Too many jobs are waiting", 429


class HeadersTooLarge(Problem):
    """The request line and the headers together, or the trailers, are longer than a request may have them."""

    type, title, status = "/problems/headers-too-large", "The request's headers are too large", 431


class ClientLeft(Problem):
    """The client closed the connection before its response; seen in logs and metrics only."""

    type, title, status = "/problems/client-left", "The client has left", 499


class InternalError(Problem):
    """A fault of ours. The log has the cause under the same request id; the response has none."""


class NotReady(Problem):
    """The service is starting or stopping."""

    type, title, status = "/problems/not-ready", "The service is not ready", 503

    def __init__(self, detail: str) -> None:
        super().__init__(detail, headers={"Retry-After": "2"})


class DeadlineExceeded(Problem):
    """The request took longer than TERCET_REQUEST_TIMEOUT_SECONDS."""

    type, title, status = "/problems/deadline-exceeded", "The request took too long", 504


class NoSpace(Problem):
    """The disk has no space for a job or its upload."""

    type, title, status = "/problems/no-space", "There is no space for this", 507


def json_pointer(path: Iterable[str | int]) -> str:
    """Return a path into the body as a JSON pointer in URI fragment form (RFC 6901, section 6), `#` for the whole.

    Worked example: ("passages", 3, "a/b") gives "#/passages/3/a~1b".
    """
    return "#" + "".join("/" + quote(str(part).replace("~", "~0").replace("/", "~1"), safe="~") for part in path)
