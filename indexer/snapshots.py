"""What an operator does with the snapshots of an index: list, verify, roll back, remove, export and import them.

None is made current before it was opened, and by an encoder that will encode its queries.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from indexer.archives import read_archive, write_archive
from indexer.errors import SnapshotError
from indexer.manifest import Manifest, read_manifest
from indexer.publish import (
    KEPT_SNAPSHOTS,
    became_current,
    building,
    current_snapshot,
    is_in_use,
    locked,
    make_current,
    no_index,
    publish,
    remove_old,
    snapshot_folders,
    snapshots_folder,
)
from indexer.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class SnapshotSummary:
    """One line of a list; where the manifest cannot be read, fault says why and the rest is None.

    is_before says that it was current before the current one: `roll_back` makes it current again.
    """

    snapshot_id: str
    is_current: bool
    is_before: bool
    is_in_use: bool
    created_at: datetime | None = None
    n_documents: int | None = None
    n_passages: int | None = None
    n_bytes: int | None = None
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class IndexSummary:
    """One index of a folder of indexes, by its current snapshot; without one that can be read, fault says why."""

    name: str
    n_snapshots: int
    current: Manifest | None = None
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class MadeCurrent:
    """A snapshot that is current now, and the id of the one that was, None if there was none."""

    manifest: Manifest
    before: str | None


def list_indexes(data_path: Path) -> list[IndexSummary]:
    """Return the indexes in a folder by name, none if there is no such folder."""
    found = sorted(each.parent for each in data_path.glob("*/snapshots") if each.is_dir())
    return [_index_summary(index_path) for index_path in found]


def _index_summary(index_path: Path) -> IndexSummary:
    listed = IndexSummary(index_path.name, len(snapshot_folders(index_path)))
    try:
        return replace(listed, current=read_manifest(_folder(index_path, None)))
    except SnapshotError as error:
        return replace(listed, fault=str(error))


def list_snapshots(index_path: Path) -> list[SnapshotSummary]:
    """Return the snapshots of an index, the newest first, those that cannot be read last.

    Raises:
        SnapshotError: there is no such index.
    """
    names = became_current(_existing(index_path))
    folders = sorted(snapshot_folders(index_path), key=lambda each: -each.stat().st_mtime_ns)  # within a second
    found = [_summary(folder, names) for folder in folders]
    return sorted(found, key=lambda each: -each.created_at.timestamp() if each.created_at else 0.0)


def verify_snapshot(index_path: Path, snapshot_id: str | None = None) -> Manifest:
    """Read every byte of a snapshot, the current one for None, open it, and return its manifest if all is as it says.

    Raises:
        SnapshotError: there is none, a file is missing or altered, or the format or analyzer is another one.
    """
    return _verified(_folder(index_path, snapshot_id), index_path.name)


def roll_back(index_path: Path, snapshot_id: str | None = None, *, encoder_fingerprint: str) -> MadeCurrent:
    """Make another snapshot current, after it was verified; None for the one that was current before.

    Called again it goes further back: what it went back from is nothing to go back to.

    Raises:
        SnapshotError: there is none, it is not intact, or was made for another encoder; the current one stays.
        BuildError: a build is running, or the disk refused.
    """
    with locked(_existing(index_path)):
        folder = _folder(index_path, snapshot_id if snapshot_id is not None else _one_before(index_path))
        manifest = _verified(folder, index_path.name, encoder_fingerprint)
        before = _current_id(index_path)
        make_current(index_path, folder.name)
    return MadeCurrent(manifest, before)


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
    manifest = _verified(folder, index_path.name)
    write_archive(archive, folder, manifest)
    return manifest


def import_snapshot(
    archive: Path, index_path: Path, *, encoder_fingerprint: str, keep: int = KEPT_SNAPSHOTS
) -> MadeCurrent:
    """Make the snapshot in an archive the current one of an index, which is made if it is not there.

    Args:
        archive: what `export_snapshot` wrote.
        index_path: the index's folder.
        encoder_fingerprint: of the dual encoder that will encode queries.
        keep: how many snapshots stay, this one counted.

    Raises:
        SnapshotError: it is no archive of a snapshot, what it holds is altered or does not fit together, or it was made
            for another encoder; nothing changes.
        BuildError: a build is running, or the disk refused.
    """
    with building(index_path) as folder:
        manifest = read_archive(archive, folder, index_path)
        if (snapshots_folder(index_path) / manifest.snapshot_id).exists():
            raise SnapshotError(f"index {index_path.name!r} has snapshot {manifest.snapshot_id} already")
        _opened(folder, manifest, index_path.name, encoder_fingerprint)
        before = _current_id(index_path)
        publish(folder, index_path, manifest.snapshot_id, keep=keep)
    return MadeCurrent(manifest, before)


def _existing(index_path: Path) -> Path:
    if not snapshots_folder(index_path).is_dir():
        raise no_index(index_path)
    return index_path


def _current_id(index_path: Path) -> str | None:
    current = current_snapshot(index_path)
    return None if current is None else current.name


def _folder(index_path: Path, snapshot_id: str | None) -> Path:
    if snapshot_id is None:
        folder = current_snapshot(_existing(index_path))
        if folder is None:
            raise SnapshotError(f"index {index_path.name!r} has no current snapshot")
        return folder
    found = next((each for each in snapshot_folders(_existing(index_path)) if each.name == snapshot_id), None)
    if found is None:
        raise SnapshotError(f"index {index_path.name!r} has no snapshot {snapshot_id!r}")
    return found


def _summary(folder: Path, names: Sequence[str]) -> SnapshotSummary:
    """Return what is to be said of a snapshot; names are those of `became_current`."""
    listed = SnapshotSummary(
        folder.name,
        is_current=folder.name in names[-1:],
        is_before=folder.name in names[-2:-1],
        is_in_use=is_in_use(folder),
    )
    try:
        manifest = read_manifest(folder)
    except SnapshotError as error:
        return replace(listed, fault=str(error))
    return replace(
        listed,
        created_at=manifest.created_at,
        n_documents=manifest.n_documents,
        n_passages=manifest.n_passages,
        n_bytes=manifest.n_bytes,
    )


def _verified(folder: Path, index_name: str, encoder_fingerprint: str | None = None) -> Manifest:
    manifest = read_manifest(folder)
    if manifest.snapshot_id != folder.name:
        raise SnapshotError(f"{folder} holds the snapshot {manifest.snapshot_id!r}; a snapshot's folder has its name")
    _opened(folder, manifest, index_name, encoder_fingerprint)
    return manifest


def _opened(folder: Path, manifest: Manifest, index_name: str, encoder_fingerprint: str | None) -> None:
    """Return when a snapshot can be opened for queries of an encoder, None for the one that built it."""
    fingerprint = manifest.encoder.fingerprint if encoder_fingerprint is None else encoder_fingerprint
    Snapshot.open_folder(folder, index_name, encoder_fingerprint=fingerprint).close()


def _one_before(index_path: Path) -> str:
    names = became_current(index_path)
    if len(names) > 1:
        return names[-2]
    others = sorted(folder.name for folder in snapshot_folders(index_path) if folder.name not in names)
    now = f"of those that are there none was current before {names[0]}" if names else "none is current"
    named = f"; name one of {', '.join(others)}" if others else ""
    raise SnapshotError(f"index {index_path.name!r} has no snapshot to go back to: {now}{named}")
