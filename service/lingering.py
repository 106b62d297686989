"""Read the rest of a body that is refused, for a while, so that its sender gets to read why.

A connection that is closed while bytes of the request are unread is reset, and a reset overtakes the response.
"""

import asyncio
from contextlib import suppress

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LINGER_SECONDS = 2.0


class Lingering:
    """An ASGI layer that lets a response of 400 and above wait until its request has come whole, or has taken long."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; anything but HTTP passes through untouched."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = _Body(Headers(scope=scope), receive)

        async def send_later(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] >= 400:
                await body.discard()
            await send(message)

        await self._app(scope, body.receive, send_later)


class _Body:
    """Passes a request's body on, and knows whether more of it is on its way."""

    def __init__(self, headers: Headers, receive: Receive) -> None:
        self._receive = receive
        self._is_coming = "transfer-encoding" in headers or headers.get("content-length", "0") != "0"
        self._is_asked_for = headers.get("expect", "").lower() != "100-continue"  # else it comes once we read

    async def receive(self) -> Message:
        self._is_asked_for = True
        message = await self._receive()
        self._is_coming = message["type"] == "http.request" and message.get("more_body", False)
        return message

    async def discard(self) -> None:
        if not self._is_asked_for:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(LINGER_SECONDS):
                while self._is_coming:
                    await self.receive()
