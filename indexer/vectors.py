"""Vectors that need not be made again: by what the encoder saw of a passage, whichever row it had or will have.

A key is a 128-bit BLAKE2b hash of the text that the dual encoder sees. Vectors are known from the snapshot before, and
from a build that was killed: that one's file grows as passages are embedded, vectors first, so that whatever a kill
leaves is a whole number of pairs and a remainder that is cut off. No manifest vouches for them, so each pair has a
checksum: a machine that lost its power may leave zeros where vectors were.
"""

import hashlib
import os
import shutil
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from indexer.ann import Vectors

KEY = np.dtype([("high", "<u8"), ("low", "<u8"), ("is_cut", "u1")])
Keys: TypeAlias = NDArray[np.void]

_ENTRY = np.dtype([("key", KEY), ("check", "<u4")])  # of a pending vector: its key, and a checksum of both
_SYNCED_PASSAGES = 4096  # a loss of power costs at most so many


def passage_keys(texts: Sequence[str]) -> Keys:
    """Return the keys (n,) of texts, is_cut 0: whether the encoder read all of a text is not known yet."""
    digests = b"".join(hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).digest() for text in texts)
    keys = np.zeros(len(texts), KEY)
    keys["high"], keys["low"] = np.frombuffer(digests, "<u8").reshape(-1, 2).T
    return keys


@dataclass(frozen=True, slots=True, eq=False)
class VectorSource:
    """Keys (n,) and their vectors (n, dimension), which may be mapped from disk."""

    keys: Keys
    vectors: Vectors


class KnownVectors:
    """Finds vectors by key in several sources; equal texts have equal vectors, so any place of a key will do."""

    def __init__(self, sources: Sequence[VectorSource]) -> None:
        """Sort the keys, 16 bytes of memory each."""
        self._sources = sources
        self._orders = [np.argsort(source.keys["high"], kind="stable") for source in sources]
        self._sorted = [source.keys["high"][order] for source, order in zip(sources, self._orders, strict=True)]

    def find(self, keys: Keys, vectors: Vectors) -> NDArray[np.bool_]:
        """Write the known vectors into their rows of vectors, their is_cut into keys, and return where that was done.

        Args:
            keys: (n,).
            vectors: (n, dimension), changed where a key is known.
        """
        is_known = np.zeros(keys.size, np.bool_)
        for source, order, highs in zip(self._sources, self._orders, self._sorted, strict=True):
            if not highs.size:
                continue
            places = np.minimum(np.searchsorted(highs, keys["high"]), highs.size - 1)
            rows = order[places]
            hits = ~is_known & (source.keys["high"][rows] == keys["high"]) & (source.keys["low"][rows] == keys["low"])
            vectors[hits] = source.vectors[rows[hits]]
            keys["is_cut"][hits] = source.keys["is_cut"][rows[hits]]
            is_known |= hits
        return is_known


class PendingVectors:
    """The vectors of a build under way, on disk as soon as they are made; use as a context manager."""

    def __init__(self, folder: Path, *, encoder_fingerprint: str, dimension: int) -> None:
        """Open what a killed build of the same encoder left, or begin; files of other encoders are removed."""
        folder.mkdir(parents=True, exist_ok=True)
        names = [f"{encoder_fingerprint}.{end}" for end in ("entries", "vectors")]
        for path in folder.iterdir():
            if path.name not in names:
                path.unlink()
        self._folder = folder
        self._paths = [folder / name for name in names]
        self.n_damaged = 0
        self._dimension = dimension
        self._since_sync = 0
        self._files = [path.open("ab") for path in self._paths]
        row_bytes = [_ENTRY.itemsize, 4 * dimension]
        n_whole = min(file.tell() // n_bytes for file, n_bytes in zip(self._files, row_bytes, strict=True))
        for file, n_bytes in zip(self._files, row_bytes, strict=True):
            file.truncate(n_whole * n_bytes)

    def source(self) -> VectorSource:
        """Return what is there now, in memory, without the n_damaged pairs that are not as they were written."""
        entries = np.fromfile(self._paths[0], _ENTRY)
        vectors = np.fromfile(self._paths[1], "<f4").reshape(-1, self._dimension)
        keys = np.ascontiguousarray(entries["key"])
        is_whole = entries["check"] == _checks(keys, vectors)
        self.n_damaged = int(np.count_nonzero(~is_whole))
        return VectorSource(keys[is_whole], vectors[is_whole]) if self.n_damaged else VectorSource(keys, vectors)

    def append(self, keys: Keys, vectors: Vectors) -> None:
        """Add the vectors (n, dimension) of keys (n,)."""
        entries_file, vectors_file = self._files
        rows = np.ascontiguousarray(vectors, "<f4")
        entries = np.zeros(keys.size, _ENTRY)
        entries["key"], entries["check"] = keys, _checks(keys, rows)
        vectors_file.write(rows.tobytes())
        vectors_file.flush()
        self._since_sync += keys.size
        if self._since_sync >= _SYNCED_PASSAGES:
            os.fsync(vectors_file.fileno())
            self._since_sync = 0
        entries_file.write(entries.tobytes())
        entries_file.flush()

    def remove(self) -> None:
        """Remove the files, where that can be: the vectors are part of a published snapshot now."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> "PendingVectors":
        """Return self."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the files, and leave them for the next build."""
        for file in self._files:
            file.close()


def _checks(keys: Keys, vectors: Vectors) -> NDArray[np.uint32]:
    """Return the CRC-32 (n,) of each key (n,) and its vector (n, dimension); that of zeros is not zero."""
    checks = (zlib.crc32(vector, zlib.crc32(key)) for key, vector in zip(keys, vectors, strict=True))
    return np.fromiter(checks, np.uint32, keys.size)
