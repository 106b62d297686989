"""Take a file that is sent with a job: streamed to the disk as it comes, never held in memory."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from fastapi import Request
from starlette.requests import ClientDisconnect

from service.bodies import too_large
from service.job_store import space_needed
from service.problems import ClientLeft, RequestTooSlow, UnsupportedMediaType

MEDIA_TYPE = "application/octet-stream"  # which a form of another site cannot send unasked

_PIECE_BYTES = 1 << 20  # what is in memory before it is written


@dataclass(frozen=True, slots=True)
class UploadLimits:
    """How long an upload may be, and how much of it must come in each so many seconds that are waited for it."""

    max_bytes: int
    seconds: float
    min_bytes_per_second: int


def require_upload(request: Request, limits: UploadLimits) -> None:
    """Return if the body is announced as a file that is not too long.

    Raises:
        UnsupportedMediaType: it is announced as something else, or as compressed.
        BodyTooLarge: it is announced as longer than the limit.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != MEDIA_TYPE:
        raise UnsupportedMediaType(f"The header Content-Type must be {MEDIA_TYPE}.")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise UnsupportedMediaType("A compressed body is not read; a file may be compressed if its name says so.")
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > limits.max_bytes:
        raise too_large(limits.max_bytes)


async def save_upload(stream: AsyncIterator[bytes], path: Path, limits: UploadLimits) -> None:
    """Write the stream to a new file in a new folder; what is there when this fails is the caller's to remove.

    Raises:
        BodyTooLarge: more came than the limit.
        RequestTooSlow: too little came for too long.
        ClientLeft: the connection was closed before the end.
        NoSpace: the disk is full.
    """
    n_bytes = 0
    with space_needed():
        path.parent.mkdir()
        with path.open("xb") as file:
            async for piece in _pieces(stream, limits):
                n_bytes += len(piece)
                if n_bytes > limits.max_bytes:
                    raise too_large(limits.max_bytes)
                await asyncio.to_thread(file.write, piece)


async def _pieces(stream: AsyncIterator[bytes], limits: UploadLimits) -> AsyncIterator[bytes]:
    """Yield what comes, a megabyte at a time."""
    held = bytearray()
    async for chunk in _in_time(stream, limits):
        held += chunk
        if len(held) >= _PIECE_BYTES:
            yield bytes(held)
            held.clear()
    yield bytes(held)


async def _in_time(stream: AsyncIterator[bytes], limits: UploadLimits) -> AsyncIterator[bytes]:
    """Yield what comes, as long as enough does. What the disk takes is not counted against the sender."""
    n_enough = max(1, round(limits.seconds * limits.min_bytes_per_second))
    clock = asyncio.get_running_loop().time
    n_bytes, seconds_left = 0, limits.seconds
    try:
        while True:
            began = clock()
            async with asyncio.timeout(seconds_left):
                chunk = await anext(stream, None)
            if chunk is None:
                return
            n_bytes, seconds_left = n_bytes + len(chunk), seconds_left - (clock() - began)
            if n_bytes >= n_enough:
                n_bytes, seconds_left = 0, limits.seconds
            yield chunk
    except TimeoutError:
        raise RequestTooSlow(f"Fewer than {n_enough} bytes of it came within {limits.seconds:g} seconds.") from None
    except ClientDisconnect:
        raise ClientLeft from None
