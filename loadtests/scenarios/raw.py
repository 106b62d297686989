"""Connections below HTTP: send bytes as they are, all at once or drop by drop, and read a status if one comes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

ANSWER_SECONDS = 60.0


class NoAnswerError(Exception):
    """Neither a response nor the end of the connection came in time."""


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Give a connection to 127.0.0.1, closed at the end whatever its state."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def status_of(reader: asyncio.StreamReader) -> int | None:
    """Return the status of the response that comes, None if the connection ends without one.

    Raises:
        NoAnswerError: nothing comes in ANSWER_SECONDS.
    """
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            line = await reader.readline()
            while line.startswith(b"HTTP/1.1 1"):  # a 100 or the like, which another one follows
                await reader.readuntil(b"\r\n\r\n")
                line = await reader.readline()
    except TimeoutError:
        raise NoAnswerError from None
    except (OSError, asyncio.IncompleteReadError):
        return None
    parts = line.split()
    return int(parts[1]) if len(parts) > 1 and parts[1].isdigit() else None


async def exchange(port: int, content: bytes, *, ends: bool) -> int | None:
    """Send bytes, end sending if that is so, and return as `status_of`."""
    async with connected(port) as (reader, writer):
        with suppress(OSError):  # who is refused early need not send the rest
            writer.write(content)
            await writer.drain()
            if ends:
                writer.write_eof()
        return await status_of(reader)


async def dribble(port: int, start: bytes, drop: bytes, *, seconds: float, every: float) -> int | None:
    """Send a start and then a drop every so often, for so long or until an answer or the end; return as `status_of`.

    Raises:
        NoAnswerError: the server took all of it for so long.
    """
    async with connected(port) as (reader, writer):
        answering = asyncio.ensure_future(status_of(reader))
        try:
            writer.write(start)
            for _ in range(int(seconds / every)):
                done, _ = await asyncio.wait({answering}, timeout=every)
                if done:
                    return answering.result()
                with suppress(OSError):
                    writer.write(drop)
                    await writer.drain()
            raise NoAnswerError
        finally:
            answering.cancel()
