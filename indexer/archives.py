"""One snapshot as a tar file (gzipped if its name says so): manifest.json first, then the files that it names.

An archive comes from anywhere, so nothing is believed before it is checked: names are those of a snapshot, and no
member takes more memory or disk than the manifest, which is short, says.
"""

import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TypeAlias

from indexer.errors import SnapshotError
from indexer.manifest import MANIFEST_FILE, Manifest, parse_manifest
from indexer.publish import require_room

_MOST_MANIFEST_BYTES = 16 << 20
_MOST_HEADER_BYTES = 1 << 20  # tarfile holds what stands before a member, such as a long name, in memory
_COPIED_BYTES = 1 << 20

_Members: TypeAlias = Iterator[tuple[tarfile.TarInfo, IO[bytes]]]


def write_archive(archive: Path, folder: Path, manifest: Manifest) -> None:
    """Write the snapshot in a folder into an archive, which appears whole or not at all.

    Raises:
        SnapshotError: the archive is there already or cannot be written.
    """
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


def read_archive(archive: Path, folder: Path, index_path: Path) -> Manifest:
    """Write what an archive holds into the empty folder of a snapshot of an index; what is in the files is not checked.

    Raises:
        SnapshotError: it is no archive of a snapshot, or holds anything but what its manifest says.
        BuildError: the index's disk has no room for it.
    """
    with _members(archive) as members:
        member, content = next(members, (None, None))
        if member is None or content is None or member.name != MANIFEST_FILE:
            raise SnapshotError(f"archive {archive} holds no snapshot: it does not begin with {MANIFEST_FILE}")
        if member.size > _MOST_MANIFEST_BYTES:
            raise SnapshotError(
                f"archive {archive} holds a manifest of {member.size:,} bytes; it may have {_MOST_MANIFEST_BYTES:,}"
            )
        raw = content.read()
        manifest = parse_manifest(raw, f"{MANIFEST_FILE} in archive {archive}")
        require_room(index_path, manifest.n_bytes, f"the snapshot in archive {archive}")
        (folder / MANIFEST_FILE).write_bytes(raw)
        for member, content in members:
            _write(archive, member, content, into=folder, manifest=manifest)
    return manifest


def _write(archive: Path, member: tarfile.TarInfo, content: IO[bytes], *, into: Path, manifest: Manifest) -> None:
    record, path = manifest.files.get(member.name), into / member.name
    if record is None:
        raise SnapshotError(f"archive {archive} holds {member.name!r}, which its manifest does not name")
    if path.exists():
        raise SnapshotError(f"archive {archive} holds {member.name!r} twice")
    if member.size != record.n_bytes:
        raise SnapshotError(
            f"archive {archive} holds {member.name!r} of {member.size:,} bytes; its manifest says {record.n_bytes:,}"
        )
    path.parent.mkdir(exist_ok=True)
    with path.open("wb") as file:
        shutil.copyfileobj(content, file, _COPIED_BYTES)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Return a member that says nothing of the user and machine that wrote it."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = 0o644
    return member


class _HeaderTooLong(tarfile.TarError):
    """A header would fill the memory."""


class _ShortHeaded(tarfile.TarInfo):
    """A member whose header is not so long that it would fill the memory."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> "_ShortHeaded":
        """Return the member, or the part of its header, that begins with a block."""
        member = super().frombuf(buf, encoding, errors)
        if member.type not in tarfile.REGULAR_TYPES and not 0 <= member.size <= _MOST_HEADER_BYTES:
            raise _HeaderTooLong(f"a header says {member.size:,} bytes; it may have {_MOST_HEADER_BYTES:,}")
        return member


@contextmanager
def _members(archive: Path) -> Iterator[_Members]:
    """Give the regular files of an archive in order; whatever is wrong with it is one sentence."""
    try:
        with tarfile.open(archive, "r|*", tarinfo=_ShortHeaded) as tar:
            yield _files_of(tar, archive)
    except _HeaderTooLong as error:
        raise SnapshotError(f"archive {archive} cannot be read: {error}") from error
    except (tarfile.TarError, EOFError, OSError) as error:
        if isinstance(error, OSError) and error.filename not in (None, str(archive)):
            raise  # the disk that the index lies on
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is no tar archive, or damaged"
        raise SnapshotError(f"archive {archive} cannot be read: {reason}") from error


def _files_of(tar: tarfile.TarFile, archive: Path) -> _Members:
    while (member := _next(tar)) is not None:
        content = tar.extractfile(member) if member.isreg() and not member.issparse() else None
        if content is None:
            raise SnapshotError(f"archive {archive} holds {member.name!r}, which is no regular file")
        yield member, content


def _next(tar: tarfile.TarFile) -> tarfile.TarInfo | None:
    try:
        return tar.next()
    except (ValueError, IndexError, OverflowError) as error:  # of a malformed header, which tarfile lets through
        raise tarfile.ReadError("a header is malformed") from error
