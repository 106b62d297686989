"""Read a JSON body strictly: its media type, its length and its syntax, before any model of it is looked at."""

import asyncio
from collections.abc import Callable, Coroutine
from email.message import Message
from typing import Any

import orjson
from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect

from service.problems import BodyTooLarge, ClientLeft, MalformedBody, RequestTooSlow, UnsupportedMediaType

_LEAST_SECONDS = 1.0  # that a body may take


class StrictRequest(Request):
    """A request whose body was read and parsed before the framework asks for it."""

    parsed: object = None

    async def json(self) -> object:
        """Return the parsed body."""
        return self.parsed


class StrictJsonRoute(APIRoute):
    """A route whose body is UTF-8 JSON by RFC 8259: no NaN, no lone surrogates; of a repeated name the last counts."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the framework's handler, behind the strict reading."""
        handle = super().get_route_handler()
        if self.body_field is None:
            return handle

        async def read_strictly(request: Request) -> Response:
            strict = StrictRequest(request.scope, request.receive)
            require_json(strict)
            settings = request.app.state.settings
            body = await read_body(strict, settings.max_body_bytes, seconds=settings.request_timeout_seconds)
            strict.parsed = parse(body)
            return await handle(strict)

        return read_strictly


def require_json(request: Request) -> None:
    """Return if the body is announced as plain UTF-8 JSON.

    Raises:
        UnsupportedMediaType: it is announced as something else, or as compressed.
    """
    header = Message()
    header["content-type"] = request.headers.get("content-type", "")
    if header.get_content_type() != "application/json" or "content-type" not in request.headers:
        raise UnsupportedMediaType("The header Content-Type must be application/json.")
    if str(header.get_param("charset", "utf-8")).lower() not in ("utf-8", "utf8"):
        raise UnsupportedMediaType("JSON is UTF-8; another charset is not read.")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise UnsupportedMediaType("A compressed body is not read.")


async def read_body(request: Request, max_body_bytes: int, *, seconds: float) -> bytes:
    """Return the whole body, which stays readable as `request.body()`.

    Raises:
        BodyTooLarge: it is longer; no more than the limit was kept in memory.
        RequestTooSlow: it takes longer than so many seconds to come, of which it has one at least.
        ClientLeft: the connection was closed before the body's end.
    """
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > max_body_bytes:
        raise too_large(max_body_bytes)
    chunks: list[bytes] = []
    n_bytes = 0
    try:
        async with asyncio.timeout(max(seconds, _LEAST_SECONDS)):
            async for chunk in request.stream():
                n_bytes += len(chunk)
                if n_bytes > max_body_bytes:
                    raise too_large(max_body_bytes)
                chunks.append(chunk)
    except ClientDisconnect:
        raise ClientLeft from None
    except TimeoutError:
        raise RequestTooSlow(f"Its body did not come within {seconds:g} seconds.") from None
    body = b"".join(chunks)
    request._body = body
    return body


def parse(body: bytes) -> object:
    """Return the JSON value of a body.

    Raises:
        MalformedBody: says where it goes wrong, and quotes nothing.
    """
    try:
        parsed: object = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise MalformedBody(f"Line {error.lineno}, column {error.colno}: {error.msg}.") from None
    return parsed


def too_large(max_bytes: int) -> BodyTooLarge:
    """Return the problem of a body that is longer than a limit."""
    # The rest of the body is not read, so the connection cannot be used again.
    return BodyTooLarge(f"The limit is {max_bytes} bytes.", headers={"Connection": "close"})
