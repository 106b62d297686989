"""A small HTTP server that answers as a test tells it, and keeps what it was sent: for what a real one seldom does."""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Answer:
    """A response; status None closes the connection without one. drip_seconds is between single bytes of the body."""

    status: int | None
    content: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    pause_seconds: float = 0.0
    drip_seconds: float = 0.0


@dataclass(frozen=True)
class Received:
    method: str
    path: str
    headers: Message
    content: bytes
    at: float


@dataclass
class Script:
    """The answers, of which the last is given again and again, and the requests so far."""

    answers: list[Answer]
    requests: list[Received] = field(default_factory=list)
    url: str = ""
    is_over: threading.Event = field(default_factory=threading.Event)

    def next(self, request: Received) -> Answer:
        self.requests.append(request)
        return self.answers[min(len(self.requests), len(self.answers)) - 1]


def _handler(script: Script) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            content = self._content()
            answer = script.next(Received(self.command, self.path, self.headers, content, time.monotonic()))
            script.is_over.wait(answer.pause_seconds)
            if answer.status is None:
                self.close_connection = True
                return
            self.send_response(answer.status)
            for name, value in {"Content-Length": str(len(answer.content)), **answer.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if not answer.drip_seconds:
                self.wfile.write(answer.content)
            for i in range(len(answer.content) if answer.drip_seconds else 0):
                self.wfile.write(answer.content[i : i + 1])
                script.is_over.wait(answer.drip_seconds)
            self.close_connection = "Content-Length" in answer.headers

        do_GET = do_POST = do_DELETE = _serve  # noqa: N815 - the library's names

        def _content(self) -> bytes:
            if self.headers.get("transfer-encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("content-length", 0)))
            content = b""
            while size := int(self.rfile.readline(), 16):
                content += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return content

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

        def handle(self) -> None:
            with suppress(OSError):  # the client has left
                super().handle()

    return Handler


@contextmanager
def scripted(*answers: Answer) -> Iterator[Script]:
    script = Script(list(answers))
    with ThreadingHTTPServer(("127.0.0.1", 0), _handler(script)) as server:
        server.daemon_threads = True
        script.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield script
        finally:
            script.is_over.set()
            server.shutdown()
            thread.join()
