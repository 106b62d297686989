"""Where an index's snapshots lie, and how one becomes current: by one atomic rename, under a lock.

<index>/lock                    held (flock) while a build runs; the kernel frees it when the process ends
<index>/snapshots/.building-*   a build under way, or the remains of one that was killed
<index>/snapshots/<id>/         a snapshot
<index>/current                 -> snapshots/<id>
"""

import errno
import fcntl
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from indexer.errors import BuildError
from indexer.manifest import MANIFEST_FILE

KEPT_SNAPSHOTS = 2  # the current one, and the one before it to go back to

_BUILDING = ".building-"
_NEXT_CURRENT = ".current-next"
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NO_PERMISSION = {errno.EACCES, errno.EPERM, errno.EROFS}


def current_snapshot(index_path: Path) -> Path | None:
    """Return the folder of the published snapshot, None if there is none."""
    link = index_path / "current"
    return index_path / link.readlink() if link.is_symlink() else None


@contextmanager
def building(index_path: Path) -> Iterator[Path]:
    """Give a new folder to build a snapshot in, alone; it is removed at the end unless it was published.

    Raises:
        BuildError: another build of this index is running, or the disk refused; says which.
    """
    with locked(index_path):
        folder = snapshots_folder(index_path) / f"{_BUILDING}{os.getpid()}"
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def locked(index_path: Path) -> Iterator[None]:
    """Hold the right to change an index, whose folders are made if they are not there; leftovers are removed.

    Raises:
        BuildError: as `building`.
    """
    with _one_sentence(index_path):
        snapshots_folder(index_path).mkdir(parents=True, exist_ok=True)
        with _exclusive(index_path):
            _remove_leftovers(index_path)
            yield


def require_room(index_path: Path, n_bytes: int, what: str) -> None:
    """Return when the disk of an index has so many bytes free; raises BuildError if not, which says for what."""
    free = shutil.disk_usage(index_path).free
    if free < n_bytes:
        raise BuildError(
            f"index {index_path.name!r} needs {n_bytes:,} bytes for {what}; the disk of {index_path} has {free:,} free"
        )


def snapshots_folder(index_path: Path) -> Path:
    """Return the folder whose folders are snapshots, but for those whose names begin with a dot."""
    return index_path / "snapshots"


def publish(folder: Path, index_path: Path, snapshot_id: str, *, keep: int = KEPT_SNAPSHOTS) -> Path:
    """Name a complete snapshot and make it current; returns its folder. The index must be `locked`.

    Everything is on disk before the name is, so a reader, or a machine that lost its power, has either the old
    snapshot or the whole new one. Of the older ones `remove_old` leaves keep - 1, first the one that was current.
    """
    _sync(folder)
    target = snapshots_folder(index_path) / snapshot_id
    previous = current_snapshot(index_path)
    folder.rename(target)
    _sync_folder(snapshots_folder(index_path))
    make_current(index_path, snapshot_id)
    remove_old(index_path, keep=keep, previous=previous)
    return target


def make_current(index_path: Path, snapshot_id: str) -> None:
    """Let the current snapshot be another one, in one rename. The index must be `locked`."""
    link = index_path / _NEXT_CURRENT
    link.symlink_to(Path("snapshots", snapshot_id), target_is_directory=True)
    link.replace(index_path / "current")
    _sync_folder(index_path)


def remove_old(index_path: Path, *, keep: int, previous: Path | None = None) -> list[str]:
    """Remove all but the keep newest snapshots, and return their ids. The index must be `locked`.

    The current one always stays, and any that a process has open.

    Args:
        index_path: the index's folder.
        keep: at least 1; the current one counts.
        previous: the snapshot to keep next to the current one, whatever is newer.
    """
    current = current_snapshot(index_path)
    folders = sorted(
        (each for each in snapshots_folder(index_path).iterdir() if not each.name.startswith(".")),
        key=lambda each: (each != current, each != previous, -each.stat().st_mtime_ns, each.name),
    )
    removed = [folder for folder in folders[keep:] if not is_in_use(folder)]
    for folder in removed:
        shutil.rmtree(folder, ignore_errors=True)
    return [folder.name for folder in removed]


def hold(folder: Path) -> int:
    """Mark a snapshot as in use until the returned file descriptor is closed."""
    descriptor = os.open(folder / MANIFEST_FILE, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


@contextmanager
def _exclusive(index_path: Path) -> Iterator[None]:
    with (index_path / "lock").open("wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BuildError(f"another build of index {index_path.name!r} is running in {index_path}") from error
        yield


def _remove_leftovers(index_path: Path) -> None:
    for path in (index_path / "snapshots").glob(f"{_BUILDING}*"):
        shutil.rmtree(path)
    (index_path / _NEXT_CURRENT).unlink(missing_ok=True)


def is_in_use(folder: Path) -> bool:
    """Return whether a process has the snapshot open."""
    try:
        with (folder / MANIFEST_FILE).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def _sync(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        else:
            _sync_folder(path)
    _sync_folder(folder)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _one_sentence(index_path: Path) -> Iterator[None]:
    """Turn what the disk refuses into one sentence."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise BuildError(f"index {index_path.name!r} cannot be written to {index_path}: {error}") from error
    except OSError as error:
        raise BuildError(f"index {index_path.name!r} cannot be written to {index_path}: {_reason(error)}") from error


def _reason(error: OSError) -> str:
    if error.errno in _NO_SPACE:
        return "no space is left, or a quota is used up"
    if error.errno in _NO_PERMISSION:
        return "no permission to write"
    return error.strerror or str(error)
