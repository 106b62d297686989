"""A file on its way to the service: read a piece at a time, from the start again if it has to be sent again."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TypeAlias

File: TypeAlias = str | os.PathLike[str] | BinaryIO

_PIECE_BYTES = 1 << 18


class Upload:
    """An open file, sent from where it stands to its end."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.can_repeat = file.seekable()
        self._start = file.tell() if self.can_repeat else 0
        self.n_bytes = self._measure() if self.can_repeat else None

    def _measure(self) -> int:
        end = self._file.seek(0, os.SEEK_END)
        self._file.seek(self._start)
        return end - self._start

    def _rewind(self) -> None:
        if self.can_repeat:
            self._file.seek(self._start)

    def _read(self) -> bytes:
        piece = self._file.read(_PIECE_BYTES)
        if not isinstance(piece, bytes):
            raise TypeError("The file must be opened in binary mode.")
        return piece

    def pieces(self) -> Iterator[bytes]:
        """Yield all of it."""
        self._rewind()
        while piece := self._read():
            yield piece

    async def pieces_async(self) -> AsyncIterator[bytes]:
        """Yield all of it; it is read in threads."""
        self._rewind()
        while piece := await asyncio.to_thread(self._read):
            yield piece


@contextmanager
def opened(file: File) -> Iterator[Upload]:
    """Give a file to send; a path is opened and closed, an open file stays open."""
    if isinstance(file, (str, os.PathLike)):
        with open(file, "rb") as own:
            yield Upload(own)
    else:
        yield Upload(file)


def name_of(file: File) -> str:
    """Return the file's name without its folder.

    Raises:
        ValueError: it has none.
    """
    name = file if isinstance(file, (str, os.PathLike)) else getattr(file, "name", None)
    if not isinstance(name, (str, os.PathLike)):
        raise ValueError("This file has no name, so give `file_name`; its ending says what kind of file it is.")
    return Path(name).name
