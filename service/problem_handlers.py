"""From exceptions to problem documents, for the framework. The last handler is in service/observe.py."""

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match

from service.metrics import METHODS
from service.problems import (
    MEDIA_TYPE,
    InternalError,
    InvalidRequest,
    MethodNotAllowed,
    Problem,
    UnknownRoute,
    json_pointer,
)
from service.value_faults import plain


def respond(problem: Problem, request_id: str) -> Response:
    """Return the HTTP response of a problem."""
    return Response(
        orjson.dumps(problem.document(request_id)), problem.status, headers=problem.headers, media_type=MEDIA_TYPE
    )


def install_handlers(app: FastAPI) -> None:
    """Make the framework's errors leave as problem documents too."""
    app.add_exception_handler(Problem, _on_problem)
    app.add_exception_handler(RequestValidationError, _on_problem)
    app.add_exception_handler(HTTPException, _on_problem)


async def _on_problem(request: Request, error: Exception) -> Response:
    problem = as_problem(error)
    if isinstance(problem, MethodNotAllowed):
        problem.headers["allow"] = _methods(request)
    return respond(problem, request.state.request_id)


def _methods(request: Request) -> str:
    """Return every method that a request's path takes; the framework names those of one route."""

    def is_taken(method: str) -> bool:
        scope = {**request.scope, "method": method}
        return any(route.matches(scope)[0] is Match.FULL for route in request.app.routes)

    return ", ".join(filter(is_taken, sorted(METHODS)))


def as_problem(error: Exception) -> Problem:
    """Return the problem that stands for any exception; InternalError for those that nobody expected."""
    match error:
        case Problem():
            return error
        case RequestValidationError():
            return InvalidRequest(f"{len(error.errors())} of the request's values do not fit.", errors=_faults(error))
        case HTTPException(status_code=404):
            return UnknownRoute()
        case HTTPException(status_code=405):
            return MethodNotAllowed()
        case _:
            return InternalError()


def _faults(error: RequestValidationError) -> list[dict[str, str]]:
    return [{"pointer": json_pointer(fault["loc"][1:]), "detail": plain(fault)} for fault in error.errors()]
