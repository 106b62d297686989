"""Where an index's snapshots lie, and how one becomes current: by one atomic rename, under a lock.

<index>/lock                    held (flock) while a build runs; the kernel frees it when the process ends
<index>/snapshots/.building-*   a build under way, or the remains of one that was killed, or of a removed snapshot
<index>/snapshots/<id>/         a snapshot
<index>/current                 -> snapshots/<id>
<index>/history                 the ids of the snapshots that were current, one a line, the current one last
"""

import errno
import fcntl
import logging
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from indexer.errors import BuildError, SnapshotError
from indexer.manifest import MANIFEST_FILE

_LOGGER = logging.getLogger(__name__)

KEPT_SNAPSHOTS = 2  # the current one, and the one before it to go back to

_BUILDING = ".building-"
_NEXT_CURRENT, _NEXT_HISTORY = ".current-next", ".history-next"
_HISTORY = "history"
_MOST_NAMED = 10  # of the indexes that there are, in an error
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NO_PERMISSION = {errno.EACCES, errno.EPERM, errno.EROFS}


def current_snapshot(index_path: Path) -> Path | None:
    """Return the folder of the published snapshot, None if there is none."""
    link = index_path / "current"
    return index_path / link.readlink() if link.is_symlink() else None


def no_index(index_path: Path) -> SnapshotError:
    """Return the error that says that there is none, and which others lie beside it."""
    beside = sorted(link.parent.name for link in index_path.parent.glob("*/current"))
    shown = ", ".join(beside[:_MOST_NAMED]) + (", …" if len(beside) > _MOST_NAMED else "")
    others = f"; there are: {shown}" if beside else ""
    return SnapshotError(f"there is no index {index_path.name!r} in {index_path.parent}{others}")


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


def snapshot_folders(index_path: Path) -> list[Path]:
    """Return the folders of an index's snapshots, in no order that matters; links and files are none."""
    found = snapshots_folder(index_path).iterdir()
    return [each for each in found if not each.name.startswith(".") and each.is_dir() and not each.is_symlink()]


def became_current(index_path: Path) -> list[str]:
    """Return the snapshots that are there and were current, in the order in which they became it, the current one last.

    Going back takes what came after out of that order: it is nothing to go back to.
    """
    current = current_snapshot(index_path)
    if current is None:
        return []
    folders = {folder.name: folder for folder in snapshot_folders(index_path)}
    try:
        names = (index_path / _HISTORY).read_text(encoding="utf-8", errors="replace").split()
    except FileNotFoundError:  # of an index that was built before there was one
        names = sorted(folders, key=lambda name: folders[name].stat().st_mtime_ns)
    before = names[: names.index(current.name)] if current.name in names else names
    return [*(name for name in before if name in folders), current.name]


def publish(folder: Path, index_path: Path, snapshot_id: str, *, keep: int = KEPT_SNAPSHOTS) -> Path:
    """Name a complete snapshot and make it current; returns its folder. The index must be `locked`.

    Everything is on disk before the name is, so a reader, or a machine that lost its power, has either the old
    snapshot or the whole new one. Of the older ones `remove_old` leaves keep - 1; if it cannot, that is only logged.
    """
    _sync(folder)
    target = snapshots_folder(index_path) / snapshot_id
    folder.rename(target)
    _sync_folder(snapshots_folder(index_path))
    make_current(index_path, snapshot_id)
    try:
        remove_old(index_path, keep=keep)
    except OSError as error:
        _LOGGER.warning("Old snapshots cannot be removed", extra={"reason": error.strerror})
    return target


def make_current(index_path: Path, snapshot_id: str) -> None:
    """Let the current snapshot be another one, in one rename. The index must be `locked`."""
    names = became_current(index_path)
    before = names[: names.index(snapshot_id)] if snapshot_id in names else names
    with (index_path / _NEXT_HISTORY).open("w", encoding="utf-8") as file:
        file.write("".join(f"{name}\n" for name in [*before, snapshot_id]))
        file.flush()
        os.fsync(file.fileno())
    (index_path / _NEXT_HISTORY).replace(index_path / _HISTORY)  # what is beyond the current one counts for nothing
    link = index_path / _NEXT_CURRENT
    link.symlink_to(Path("snapshots", snapshot_id), target_is_directory=True)
    link.replace(index_path / "current")
    _sync_folder(index_path)


def remove_old(index_path: Path, *, keep: int) -> list[str]:
    """Remove all but keep snapshots, and return the ids of the removed. The index must be `locked`.

    The current one stays, then those that were current before it, the last one first, then the newest; and any that a
    process has open. What has no manifest is none of ours.

    Args:
        index_path: the index's folder.
        keep: at least 1; the current one counts.
    """
    order = {name: place for place, name in enumerate(reversed(became_current(index_path)))}
    folders = sorted(
        (each for each in snapshot_folders(index_path) if os.path.isfile(each / MANIFEST_FILE)),
        key=lambda each: (order.get(each.name, len(order)), -each.stat().st_mtime_ns, each.name),
    )
    return [folder.name for folder in folders[keep:] if not is_in_use(folder) and _remove(folder)]


def _remove(folder: Path) -> bool:
    """Return whether a snapshot could be removed; half of one is never seen."""
    removed = folder.with_name(f"{_BUILDING}{folder.name}")
    try:
        folder.rename(removed)
    except OSError:
        return False
    shutil.rmtree(removed, ignore_errors=True)
    return True


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


def is_locked(index_path: Path) -> bool:
    """Return whether a process is changing an index."""
    try:
        with (index_path / "lock").open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _remove_leftovers(index_path: Path) -> None:
    for path in snapshots_folder(index_path).glob(f"{_BUILDING}*"):
        shutil.rmtree(path, ignore_errors=True)
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
