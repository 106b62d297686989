"""Whether the files of a snapshot that is open are still those that were verified; only what changed is read again."""

from pathlib import Path
from typing import TypeAlias

from indexer.errors import SnapshotError
from indexer.manifest import MANIFEST_FILE, Manifest, read_manifest, verify_file

_Stamp: TypeAlias = tuple[int, ...]  # what changes whenever a file is written, replaced or removed


class OpenFiles:
    """The files of one open snapshot; for one thread at a time.

    A change that leaves size and times as they are, as a failing disk may, is found by `tercet snapshots verify`.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        """Take the files as they are now for intact."""
        self._folder, self._manifest = folder, manifest
        self._looked_at: dict[str, tuple[_Stamp, str | None]] = {
            name: (_stamp(folder / name), None) for name in (MANIFEST_FILE, *manifest.files)
        }

    def fault(self) -> str | None:
        """Return what is wrong with the first file that is not as it was, None if all are."""
        return next(filter(None, map(self._fault_of, self._looked_at)), None)

    def _fault_of(self, name: str) -> str | None:
        stamp = _stamp(self._folder / name)
        before, fault = self._looked_at[name]
        if stamp != before:
            fault = self._verified(name)
            self._looked_at[name] = stamp, fault
        return fault

    def _verified(self, name: str) -> str | None:
        try:
            if name != MANIFEST_FILE:
                verify_file(self._folder / name, self._manifest.files[name], with_hash=True)
            elif read_manifest(self._folder) != self._manifest:
                return f"{self._folder / name} was altered"
        except SnapshotError as error:
            return str(error)
        except OSError as error:
            return f"{self._folder / name} cannot be read: {error.strerror}"
        return None


def _stamp(path: Path) -> _Stamp:
    try:
        status = path.stat()
    except OSError as error:
        return (error.errno or 0,)
    return status.st_ino, status.st_size, status.st_mtime_ns
