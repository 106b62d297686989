"""What an operator does with the snapshots of an index: list, verify, roll back, remove, export and import them.

An archive is a tar file (gzipped if its name says so) with one snapshot: manifest.json first, then the files that it
names, and nothing else.
"""

import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO

from indexer.errors import SnapshotError
from indexer.manifest import MANIFEST_FILE, Manifest, parse_manifest, read_manifest, verify_files
from indexer.publish import (
    building,
    current_snapshot,
    is_in_use,
    locked,
    make_current,
    publish,
    remove_old,
    snapshots_folder,
)

_MOST_MANIFEST_BYTES = 16 << 20
_COPIED_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class SnapshotSummary:
    """One line of a list; where the manifest cannot be read, fault says why and the rest is None."""

    snapshot_id: str
    is_current: bool
    is_in_use: bool
    created_at: datetime | None = None
    n_documents: int | None = None
    n_passages: int | None = None
    n_bytes: int | None = None
    fault: str | None = None


def list_snapshots(index_path: Path) -> list[SnapshotSummary]:
    """Return the snapshots of an index, the newest first, those that cannot be read last.

    Raises:
        SnapshotError: there is no such index.
    """
    current = current_snapshot(_existing(index_path))
    folders = sorted(_folders(index_path), key=lambda each: -each.stat().st_mtime_ns)  # decides within a second
    found = [_summary(folder, is_current=folder == current) for folder in folders]
    return sorted(found, key=lambda each: -each.created_at.timestamp() if each.created_at else 0.0)


def verify_snapshot(index_path: Path, snapshot_id: str | None = None) -> Manifest:
    """Read every byte of a snapshot, the current one for None, and return its manifest if all is as it says.

    Raises:
        SnapshotError: there is none, a file is missing or altered, or the format is another one.
    """
    folder = _folder(index_path, snapshot_id)
    manifest = read_manifest(folder)
    verify_files(folder, manifest, with_hashes=True)
    return manifest


def roll_back(index_path: Path, snapshot_id: str | None = None) -> Manifest:
    """Make another snapshot current, after it was verified; None for the newest that is older than the current one.

    Raises:
        SnapshotError: there is none, or it is not intact; the current one stays.
        BuildError: a build is running, or the disk refused.
    """
    with locked(_existing(index_path)):
        wanted = snapshot_id if snapshot_id is not None else _one_before(index_path)
        manifest = verify_snapshot(index_path, wanted)
        make_current(index_path, manifest.snapshot_id)
    return manifest


def remove_snapshots(index_path: Path, *, keep: int) -> list[str]:
    """Remove all but the keep newest snapshots and return their ids; raises as `roll_back`."""
    with locked(_existing(index_path)):
        return remove_old(index_path, keep=keep)


def export_snapshot(index_path: Path, archive: Path, snapshot_id: str | None = None) -> Manifest:
    """Write a verified snapshot, the current one for None, into an archive, which appears whole or not at all.

    Raises:
        SnapshotError: there is none, it is not intact, or the archive is there already or cannot be written.
    """
    folder = _folder(index_path, snapshot_id)
    manifest = verify_snapshot(index_path, folder.name)
    if archive.exists():
        raise SnapshotError(f"archive {archive} is there already; name another file")
    partial = archive.with_name(f"{archive.name}.partial")
    try:
        with tarfile.open(partial, "w:gz" if archive.suffix in (".gz", ".tgz") else "w") as tar:
            for name in (MANIFEST_FILE, *manifest.files):
                tar.add(folder / name, arcname=name, recursive=False, filter=_anonymous)
        partial.replace(archive)
    except OSError as error:
        raise SnapshotError(f"archive {archive} cannot be written: {error.strerror or error}") from error
    finally:
        partial.unlink(missing_ok=True)
    return manifest


def import_snapshot(archive: Path, index_path: Path) -> Manifest:
    """Make the snapshot in an archive the current one of an index, which is made if it is not there.

    Raises:
        SnapshotError: it is no archive of a snapshot, or what it holds is altered; nothing changes.
        BuildError: the index has that snapshot, a build is running, or the disk refused.
    """
    with building(index_path) as folder:
        with _members(archive) as members:
            manifest = _unpacked(archive, members, folder)
        verify_files(folder, manifest, with_hashes=True)
        if (snapshots_folder(index_path) / manifest.snapshot_id).exists():
            raise SnapshotError(f"index {index_path.name!r} has snapshot {manifest.snapshot_id} already")
        publish(folder, index_path, manifest.snapshot_id)
    return manifest


def _existing(index_path: Path) -> Path:
    if not snapshots_folder(index_path).is_dir():
        raise SnapshotError(f"there is no index {index_path.name!r} in {index_path.parent}")
    return index_path


def _folders(index_path: Path) -> list[Path]:
    return [each for each in snapshots_folder(index_path).iterdir() if each.is_dir() and not each.name.startswith(".")]


def _folder(index_path: Path, snapshot_id: str | None) -> Path:
    if snapshot_id is None:
        folder = current_snapshot(_existing(index_path))
        if folder is None:
            raise SnapshotError(f"index {index_path.name!r} has no current snapshot")
        return folder
    found = next((each for each in _folders(_existing(index_path)) if each.name == snapshot_id), None)
    if found is None:
        raise SnapshotError(f"index {index_path.name!r} has no snapshot {snapshot_id!r}")
    return found


def _summary(folder: Path, *, is_current: bool) -> SnapshotSummary:
    in_use = is_in_use(folder)
    try:
        manifest = read_manifest(folder)
    except SnapshotError as error:
        return SnapshotSummary(folder.name, is_current, in_use, fault=str(error))
    return SnapshotSummary(
        folder.name,
        is_current,
        in_use,
        manifest.created_at,
        manifest.n_documents,
        manifest.n_passages,
        sum(record.n_bytes for record in manifest.files.values()),
    )


def _one_before(index_path: Path) -> str:
    readable = [each for each in list_snapshots(index_path) if each.fault is None]
    place = next((i for i, each in enumerate(readable) if each.is_current), -1)
    if place + 1 >= len(readable):
        raise SnapshotError(f"index {index_path.name!r} has no snapshot older than the current one")
    return readable[place + 1].snapshot_id


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Return a member that says nothing of the user and machine that wrote it."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = 0o644
    return member


@contextmanager
def _members(archive: Path) -> Iterator[Iterator[tuple[str, IO[bytes]]]]:
    """Give the regular files of an archive in order, by name; whatever is wrong with it is one sentence."""
    try:
        with tarfile.open(archive, "r|*") as tar:
            yield _files_of(tar, archive)
    except (tarfile.TarError, EOFError, OSError) as error:
        if isinstance(error, OSError) and error.filename not in (None, str(archive)):
            raise  # the disk that the index lies on
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is no tar archive, or damaged"
        raise SnapshotError(f"archive {archive} cannot be read: {reason}") from error


def _files_of(tar: tarfile.TarFile, archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    for member in tar:
        content = tar.extractfile(member) if member.isreg() else None
        if content is None:
            raise SnapshotError(f"archive {archive} holds {member.name!r}, which is no regular file")
        yield member.name, content


def _unpacked(archive: Path, members: Iterator[tuple[str, IO[bytes]]], folder: Path) -> Manifest:
    """Write the files that the manifest, which comes first, names; none may be missing or unknown."""
    name, content = next(members, ("", None))
    if name != MANIFEST_FILE or content is None:
        raise SnapshotError(f"archive {archive} holds no snapshot: it does not begin with {MANIFEST_FILE}")
    raw = content.read(_MOST_MANIFEST_BYTES)
    manifest = parse_manifest(raw, f"{MANIFEST_FILE} in archive {archive}")
    (folder / MANIFEST_FILE).write_bytes(raw)
    for name, content in members:
        path = folder / name
        if name not in manifest.files or path.exists() or not path.resolve().is_relative_to(folder.resolve()):
            raise SnapshotError(f"archive {archive} holds {name!r}, which its manifest does not name")
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            shutil.copyfileobj(content, file, _COPIED_BYTES)
    return manifest
