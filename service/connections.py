"""One connection of a client, which may not send headers without end, nor take for ever to send what it sends, nor ask
without end while nothing is answered.

uvicorn bounds none of it. What is refused here never reaches the application, so it is answered and counted here too.
"""

import asyncio
import logging
import socket
import uuid
from typing import Any, NoReturn

from fastapi import FastAPI
from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn._types import ASGI3Application
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from service.lingering import LINGER_SECONDS
from service.problem_handlers import respond
from service.problems import HeadersTooLarge, MalformedRequest, Problem, RequestTooSlow

_LOGGER = logging.getLogger(__name__)

HEADER_SECONDS = 10.0
LOOK_SECONDS = 0.1  # between two looks whether a client that sends no more is still there
MAX_HEADER_BYTES = 65_536  # of the request line and the headers; a browser's cookies of one site are a tenth of that
MAX_UNANSWERED = 16  # requests of a connection, beyond which no more are begun
PART_BYTES = 2048  # parsed at once, so that no more than a hundred requests begin beyond MAX_UNANSWERED

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_NOTHING = memoryview(b"")


class _Flow(FlowControl):
    """Reads no more, whoever wants it, while what was read is held back."""

    is_held = False

    def resume_reading(self) -> None:
        if not self.is_held:
            super().resume_reading()


class BoundedProtocol(HttpToolsProtocol):
    """HTTP/1.1; a request for another protocol is answered as if it were none.

    All that is asked is answered in turn, but what comes behind MAX_UNANSWERED requests is held back unparsed (one read
    of it, a quarter of a megabyte at most; the rest stays with the client) until some of them are answered.
    """

    flow: _Flow

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._waiting: asyncio.TimerHandle | None = None
        self._is_in_body = False
        self._n_header_bytes = 0  # or of what is neither body nor header, but lies between the parts of a body
        self._n_trailer_bytes = 0
        self._fault: Problem | None = None
        self._n_unanswered = 0
        self._refusal: bytes | None = None  # which waits until the requests before are answered
        self._held = _NOTHING
        self._running: RequestResponseCycle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Begin to wait for headers."""
        super().connection_made(transport)
        self.flow = _Flow(transport)
        self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more, and tell the request that runs, which need not be the last one, that its client has left."""
        self._stop_waiting()
        self._held = _NOTHING
        self.pipeline.clear()
        if self._running is not None:
            self._running.disconnected = True
            self._running.message_event.set()
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # type: ignore[override]  # uvicorn always closes
        """Keep the connection of a client that sends no more until what it asked is answered (RFC 9112, section 9.6).

        One that has left looks the same until it is sent something. Any HTTP/1.1 client passes over a 100.
        """
        if self._n_unanswered == 0 or self._is_in_body:
            return False
        self._stop_waiting()
        self.cycle.keep_alive = False
        if self._n_unanswered == 1 and not self.cycle.response_started and self.cycle.scope["http_version"] == "1.1":
            self.transport.write(_CONTINUE)
        self._look_after_client()
        return True

    def _look_after_client(self) -> None:
        """Close if the client turned out to have left; nobody else looks while nothing is read or written."""
        if self.transport.is_closing():
            return
        if self.transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0:
            self.transport.abort()
        else:
            self.loop.call_later(LOOK_SECONDS, self._look_after_client)

    def data_received(self, data: bytes) -> None:
        """Take what comes, unless headers come without end; what comes after a refusal is thrown away."""
        self._unset_keepalive_if_required()
        self._held = memoryview(b"".join((self._held, data)))
        self._parse_held()

    def _parse_held(self) -> None:
        """Parse what is held, as far as requests may begin; in the body of one that has begun, go on."""
        while self._held and self._refusal is None:
            if self._n_unanswered >= MAX_UNANSWERED and not self._is_in_body:
                break
            part, self._held = self._held[:PART_BYTES], self._held[PART_BYTES:]
            self._parse(part)
        if self._refusal is not None:
            self._held = _NOTHING
        self.flow.is_held = len(self._held) > 0
        if self.flow.is_held:
            self.flow.pause_reading()

    def _parse(self, part: memoryview) -> None:
        if not self._is_in_body:
            self._await_headers()
        self._n_header_bytes += len(part)
        try:
            self.parser.feed_data(part)
        except HttpParserError:
            self.send_400_response("")
        except HttpParserUpgrade as upgrade:
            self._pass_over_upgrade(part[upgrade.args[0] :])
        if self._n_header_bytes > MAX_HEADER_BYTES and self._refusal is None:
            self._refuse(self._too_large())

    def _asks_for_another_protocol(self) -> bool:
        return self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"

    def _pass_over_upgrade(self, rest: memoryview) -> None:
        """Parse the headers again without the wish for another protocol, which made the parser stop behind them."""
        if not self._asks_for_another_protocol():
            self._refusal = b""  # what follows a CONNECT, which is answered as any other method, is not HTTP
            return
        start = b"%s %s HTTP/%s\r\n" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        headers = [b"%s:%s\r\n" % header for header in self.headers if header[0] != b"upgrade"]
        self._held = memoryview(b"".join((start, *headers, b"\r\n", rest, self._held)))
        self._n_header_bytes = 0
        self.parser = HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does

    def on_message_begin(self) -> None:
        """Wait for the headers of another request."""
        super().on_message_begin()
        self._n_header_bytes = max(1, self._n_header_bytes)  # it may have come with the end of the request before it
        self._n_trailer_bytes = 0
        self._await_headers()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; what comes after a body is none, and is thrown away, if there is not too much of it."""
        if not self._is_in_body:
            super().on_header(name, value)
            return
        self._n_trailer_bytes += len(name) + len(value)
        if self._n_trailer_bytes > MAX_HEADER_BYTES:
            self._end_parsing(self._too_large())

    def on_body(self, body: bytes) -> None:
        """Take a part of a body; what came before it was not without end."""
        self._n_header_bytes = 0
        super().on_body(body)

    def on_headers_complete(self) -> None:
        """Begin with the request if its headers are short enough."""
        self._stop_waiting()
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > MAX_HEADER_BYTES:
            self._end_parsing(self._too_large())
        if self._asks_for_another_protocol():
            return
        super().on_headers_complete()
        self._is_in_body, self._n_header_bytes = True, 0
        self._n_unanswered += 1

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def on_message_complete(self) -> None:
        """Note that what follows is another request."""
        if self._asks_for_another_protocol():
            return
        self._is_in_body, self._n_header_bytes = False, 0
        super().on_message_complete()
        if self.cycle.response_complete:
            self._stop_waiting()
            self._await_headers()

    def on_response_complete(self) -> None:
        """Send a refusal that waited, or wait for what is left of a body that nobody reads as long as for headers.

        Go on with what was held back.
        """
        self._n_unanswered -= 1
        super().on_response_complete()
        if self._refusal is not None:
            self._end_if_answered()
        elif self._is_in_body and self.cycle.response_complete:
            self._await_headers()
        if self._held and not self.transport.is_closing():
            self._parse_held()
            self.flow.resume_reading()

    def _too_large(self) -> HeadersTooLarge:
        where = " beside the parts of its body" if self._is_in_body else ", the request line included"
        return HeadersTooLarge(f"The limit is {MAX_HEADER_BYTES:,} bytes{where}.")

    def _end_parsing(self, fault: Problem) -> NoReturn:
        self._fault = fault
        raise fault  # which comes out of the parser as a call of `send_400_response`

    def send_400_response(self, msg: str) -> None:
        """Answer what the parser gave up on."""
        self._refuse(self._fault if self._fault is not None else MalformedRequest())

    def _await_headers(self) -> None:
        if self._waiting is None:
            self._waiting = self.loop.call_later(HEADER_SECONDS, self._give_up)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _give_up(self) -> None:
        if self._n_header_bytes == 0 or self._is_in_body:
            # Nobody asked for anything (a browser or a balancer that connects ahead), or not for what still comes.
            self.transport.close()
        elif self.flow.read_paused:  # it is not the client that lets us wait
            self._stop_waiting()
            self._await_headers()
        elif not self.transport.is_closing():
            self._refuse(RequestTooSlow(f"Its headers did not come within {HEADER_SECONDS:g} seconds."))

    def _refuse(self, problem: Problem) -> None:
        """Answer with a problem once the requests before are answered; not at all if its response is under way."""
        self._stop_waiting()
        request_id = uuid.uuid4().hex
        facts = {"request_id": request_id, "route": "other", "method": "other", "status": problem.status}
        _LOGGER.info("request refused", extra=facts)
        assert isinstance(self.config.app, FastAPI)
        self.config.app.state.metrics.requests.labels("other", "other", str(problem.status)).inc()
        self._refusal = _response(problem, request_id)
        if self._is_in_body and not self.cycle.response_complete:
            self._abandon()
        self._end_if_answered()

    def _abandon(self) -> None:
        """Let go of the request whose body is refused."""
        if self.cycle.response_started:
            self._refusal = b""
        self._n_unanswered -= 1
        self.cycle.disconnected = True
        self.cycle.message_event.set()
        if self.pipeline and self.pipeline[0][0] is self.cycle:
            self.pipeline.popleft()

    def _end_if_answered(self) -> None:
        """Send the refusal and close, unless a request before it is not answered yet.

        Not at once: a connection that is closed while bytes are unread is reset, which overtakes the response.
        """
        if self._n_unanswered == 0 and self._refusal is not None and not self.transport.is_closing():
            self.transport.write(self._refusal)
            self.transport.write_eof()
            self.loop.call_later(LINGER_SECONDS, self.transport.close)


def _response(problem: Problem, request_id: str) -> bytes:
    response = respond(problem, request_id)
    response.headers.update({"X-Request-ID": request_id, "Connection": "close"})
    lines = b"".join(b"%s: %s\r\n" % each for each in response.raw_headers)
    return STATUS_LINE[problem.status] + lines + b"\r\n" + bytes(response.body)
