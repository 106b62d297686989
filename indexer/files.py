"""The files below a folder, each once, in order, whatever links, permissions and other processes do to it."""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from indexer.documents import Skipped
from indexer.errors import SourceError


@dataclass(frozen=True, slots=True)
class Entry:
    """A regular file, or a link to one; name is its path from the folder, with slashes."""

    path: Path
    name: str


def files_below(folder: Path) -> Iterator[Entry | Skipped]:
    """Yield the files below a folder, sorted by name within each folder, and what is none or cannot be reached.

    Hidden files and folders are left out without a word. Links to folders are not followed, so that a loop of links
    ends, and nothing is read twice.

    Raises:
        SourceError: the folder itself cannot be read.
    """
    refused: list[OSError] = []
    for directory, folders, names in os.walk(folder, onerror=refused.append):
        yield from _told(refused)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in folders:
            if os.path.islink(os.path.join(directory, name)):
                yield Skipped(shown_path(directory, name), None, "link", "is a link to a folder, which is not followed")
        prefix = Path(directory).relative_to(folder).as_posix()
        for name in sorted(names):
            if not name.startswith("."):
                yield _entry(os.path.join(directory, name), name if prefix == "." else f"{prefix}/{name}")
    if refused and str(refused[0].filename) == str(folder):
        raise SourceError(f"{shown_path(folder)} cannot be read: {refused[0].strerror}")
    yield from _told(refused)


def _entry(path: str, name: str) -> Entry | Skipped:
    try:
        is_regular = stat.S_ISREG(os.stat(path).st_mode)
    except OSError as error:
        if os.path.islink(path):
            reason = "is a link that leads nowhere"
        elif isinstance(error, FileNotFoundError):
            reason = "vanished before it was read"
        else:
            reason = f"cannot be read: {error.strerror}"
        return Skipped(shown_path(path), None, "unreadable", reason)
    if not is_regular:
        return Skipped(shown_path(path), None, "other-kind", "is no regular file")
    return Entry(Path(path), name)


def _told(refused: list[OSError]) -> Iterator[Skipped]:
    """Yield the folders that could not be listed, each once."""
    while refused:
        error = refused.pop(0)
        yield Skipped(shown_path(error.filename), None, "unreadable", f"cannot be read: {error.strerror}")


def shown_path(*path: str | Path) -> str:
    """Return a path as it may be shown: what is no character, or would steer a terminal, is escaped."""
    text = os.fsencode(os.path.join(*path)).decode("utf-8", "backslashreplace")
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
