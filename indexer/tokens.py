"""tokens.bin: every passage as the cross-encoder's tokenizer sees it, so that no passage is tokenized for a request.

Layout, little-endian: magic (8 bytes), the tokenizer's sha256 (32), bytes per id (uint32), zero (uint32), number of
passages (uint64), number of ids (uint64); then the ids; then zeros up to a multiple of 8; then, for each passage and
one more, the int64 position of its first id. Special tokens are not stored: they belong to the pair, not the passage.
"""

import struct
from array import array
from pathlib import Path
from types import TracebackType

import numpy as np

from indexer.errors import SnapshotError
from indexer.mapped import mapped_bytes
from indexer.ranking import Rows
from models.tokenization import TokenIds

_MAGIC = b"TERCTOK1"
_HEADER = struct.Struct("<8s32sIIQQ")


class TokenWriter:
    """Writes tokens.bin passage by passage, in row order; use as a context manager."""

    def __init__(self, path: Path, *, vocabulary_size: int, tokenizer_fingerprint: str) -> None:
        """Create the file; the fingerprint is a sha256 in hex."""
        self._id_type = np.dtype("<u2" if vocabulary_size <= 1 << 16 else "<u4")
        self._fingerprint = bytes.fromhex(tokenizer_fingerprint)
        self._starts = array("q", [0])
        self._file = path.open("wb")
        self._file.write(bytes(_HEADER.size))

    def add(self, ids: TokenIds) -> None:
        """Add the ids of the next passage."""
        self._file.write(ids.astype(self._id_type).tobytes())
        self._starts.append(self._starts[-1] + ids.size)

    def __enter__(self) -> "TokenWriter":
        """Return self."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Complete the file, unless an error is on its way, and close it."""
        with self._file:
            if kind is None:
                self._finish()

    def _finish(self) -> None:
        self._file.write(bytes(-self._file.tell() % 8))
        self._file.write(np.array(self._starts, "<i8").tobytes())
        self._file.seek(0)
        self._file.write(
            _HEADER.pack(_MAGIC, self._fingerprint, self._id_type.itemsize, 0, len(self._starts) - 1, self._starts[-1])
        )


class TokenFile:
    """A written tokens.bin, memory-mapped; thread-safe."""

    def __init__(self, path: Path) -> None:
        """Open it.

        Raises:
            SnapshotError: the file is too short or of another kind.
        """
        mapped = mapped_bytes(path) if path.stat().st_size >= _HEADER.size else np.zeros(64, np.uint8)
        magic, fingerprint, id_bytes, _, n_passages, n_ids = _HEADER.unpack(mapped[: _HEADER.size].tobytes())
        starts_at = _HEADER.size + n_ids * id_bytes + (-(_HEADER.size + n_ids * id_bytes)) % 8
        if magic != _MAGIC or mapped.size != starts_at + 8 * (n_passages + 1):
            raise SnapshotError(f"{path} is not a complete token file")
        self.tokenizer_fingerprint = fingerprint.hex()
        self.n_passages = int(n_passages)
        self.n_tokens = int(n_ids)
        id_type = np.uint16 if id_bytes == 2 else np.uint32
        self._ids = mapped[_HEADER.size : _HEADER.size + n_ids * id_bytes].view(id_type)
        self._starts = mapped[starts_at:].view(np.int64)

    def passage_tokens(self, rows: Rows) -> list[TokenIds]:
        """Return the token ids of given rows, each (n_tokens,) int64."""
        return [self._ids[self._starts[row] : self._starts[row + 1]].astype(np.int64) for row in rows]
