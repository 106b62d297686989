"""What surrounds every request: its id, one log line, its metrics, headers, and the last handler."""

import logging
import re
import time
import uuid
from collections.abc import Mapping, MutableMapping
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.metrics import METHODS, Metrics
from service.problem_handlers import respond
from service.problems import InternalError, Problem

_LOGGER = logging.getLogger("service.requests")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")

_SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Permissions-Policy": "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Cache-Control": "no-store",
}


class Observe:
    """The outermost ASGI layer. Those inside it find `state["request_id"]`, put what is to be logged into
    `state["facts"]` and what is to be sent with any response into `state["headers"]`, and may raise a Problem.
    """

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; anything but HTTP passes through untouched."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        state: MutableMapping[str, Any] = scope.setdefault("state", {})
        state["request_id"] = request_id(Headers(scope=scope).get("x-request-id"))
        state["route"] = "other"
        state["facts"], state["headers"] = {}, {}
        exchange = _Exchange(state, send)
        try:
            await self._app(scope, receive, exchange.send)
        except Problem as problem:
            await respond(problem, exchange.request_id)(scope, receive, exchange.send)
        except Exception:
            _LOGGER.error("request failed", exc_info=True, extra={"request_id": exchange.request_id})
            if exchange.status is None:
                await respond(InternalError(), exchange.request_id)(scope, receive, exchange.send)
        finally:
            self._record(scope, exchange, time.perf_counter() - started)

    def _record(self, scope: Scope, exchange: "_Exchange", seconds: float) -> None:
        route = getattr(scope.get("route"), "path_format", scope["state"]["route"])
        method = scope["method"] if scope["method"] in METHODS else "other"
        status = exchange.status if exchange.status is not None else 499  # nothing was sent: the client has left
        self._metrics.requests.labels(route, method, str(status)).inc()
        self._metrics.request_duration_seconds.labels(route).observe(seconds)
        facts = {
            "request_id": exchange.request_id,
            "route": route,
            "method": method,
            "status": status,
            "duration_seconds": round(seconds, 6),
        }
        level = logging.DEBUG if route in ("/healthz", "/readyz", "/metrics") and status < 400 else logging.INFO
        _LOGGER.log(level, "request", extra=facts | scope["state"]["facts"])


class _Exchange:
    """Notes the status that leaves, and adds headers to it."""

    def __init__(self, state: Mapping[str, Any], send: Send) -> None:
        self.request_id: str = state["request_id"]
        self._state = state
        self.status: int | None = None
        self._send = send

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers["X-Request-ID"] = self.request_id
            for name, value in self._state["headers"].items():
                headers[name] = value
            for name, value in _SECURITY_HEADERS.items():
                headers.setdefault(name, value)
        await self._send(message)


def request_id(sent: str | None) -> str:
    """Return the id that a client sent if it is 1-64 of letters, digits, `.`, `_` and `-`; otherwise a new one."""
    return sent if sent is not None and _REQUEST_ID.fullmatch(sent) else uuid.uuid4().hex
