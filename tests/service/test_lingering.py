"""A refusal waits for the rest of what it refuses, but not for ever, and nothing else waits."""

import asyncio
from collections.abc import Mapping, MutableMapping
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from service import lingering
from service.lingering import Lingering

PIECE = {"type": "http.request", "body": b"a", "more_body": True}
LAST = {"type": "http.request", "body": b"a", "more_body": False}
GONE = {"type": "http.disconnect"}


def n_read(messages: list[dict[str, Any]], headers: Mapping[str, str], *, status: int = 413, n_wanted: int = 0) -> int:
    """How many messages were read by the time that the response begins; after the last of them nothing comes."""
    n_read = 0
    started_at: list[int] = []

    async def receive() -> MutableMapping[str, Any]:
        nonlocal n_read
        if n_read == len(messages):
            await asyncio.Event().wait()
        n_read += 1
        return messages[n_read - 1]

    async def send(message: MutableMapping[str, Any]) -> None:
        started_at.append(n_read)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        for _ in range(n_wanted):
            await receive()
        await send({"type": "http.response.start", "status": status, "headers": []})

    encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
    asyncio.run(Lingering(app)({"type": "http", "headers": encoded}, receive, send))
    [n_at_start] = started_at
    return n_at_start


@pytest.mark.parametrize("status", [401, 413, 429, 500])
@pytest.mark.parametrize("headers", [{"content-length": "3"}, {"transfer-encoding": "chunked"}])
def test_a_refusal_waits_until_the_request_has_come(status: int, headers: dict[str, str]) -> None:
    for n_wanted in (0, 1, 3):
        assert n_read([PIECE, PIECE, LAST], headers, status=status, n_wanted=n_wanted) == 3
    assert n_read([PIECE, GONE], headers, status=status) == 2


def test_a_sender_that_falls_silent_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lingering, "LINGER_SECONDS", 0.05)
    assert n_read([PIECE, PIECE], {"content-length": "3"}) == 2


def test_what_does_not_come_is_not_waited_for() -> None:
    assert n_read([], {}) == 0
    assert n_read([], {"content-length": "0"}) == 0
    assert n_read([PIECE, LAST], {"content-length": "2"}, status=200) == 0
    continued = {"content-length": "2", "expect": "100-continue"}
    assert n_read([], continued) == 0
    assert n_read([PIECE, LAST], continued, n_wanted=1) == 2
