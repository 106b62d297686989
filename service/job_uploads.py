"""Take a file that is sent with a job: streamed to the disk as it comes, never held in memory."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from fastapi import Request
from starlette.requests import ClientDisconnect

from service.bodies import too_large
from service.job_store import space_needed
from service.problems import ClientLeft, DeadlineExceeded, UnsupportedMediaType

MEDIA_TYPE = "application/octet-stream"  # which a form of another site cannot send unasked

_PIECE_BYTES = 1 << 20  # what is in memory before it is written


@dataclass(frozen=True, slots=True)
class UploadLimits:
    """How long an upload may be, and how long its sender may be silent."""

    max_bytes: int
    silent_seconds: float


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
        DeadlineExceeded: nothing came for too long.
        ClientLeft: the connection was closed before the end.
        NoSpace: the disk is full.
    """
    n_bytes = 0
    with space_needed():
        path.parent.mkdir()
        with path.open("xb") as file:
            async for piece in _pieces(stream, limits.silent_seconds):
                n_bytes += len(piece)
                if n_bytes > limits.max_bytes:
                    raise too_large(limits.max_bytes)
                await asyncio.to_thread(file.write, piece)


async def _pieces(stream: AsyncIterator[bytes], silent_seconds: float) -> AsyncIterator[bytes]:
    """Yield what comes, a megabyte at a time."""
    held = bytearray()
    while (chunk := await _next(stream, silent_seconds)) is not None:
        held += chunk
        if len(held) >= _PIECE_BYTES:
            yield bytes(held)
            held.clear()
    yield bytes(held)


async def _next(stream: AsyncIterator[bytes], silent_seconds: float) -> bytes | None:
    try:
        async with asyncio.timeout(silent_seconds):
            return await anext(stream, None)
    except TimeoutError:
        raise DeadlineExceeded(f"Nothing came for {silent_seconds:g} seconds.") from None
    except ClientDisconnect:
        raise ClientLeft from None
