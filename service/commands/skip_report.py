"""The file of `tercet index --report`: written beside its place while sources are read, and put there at their end."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import BinaryIO

import orjson

from indexer.files import shown_path
from service.commands.faults import CommandError, UsageError


def check_report(path: Path, reads: Iterable[Path]) -> None:
    """Return when a report would neither take the place of anything that a command reads nor be read by it.

    Raises:
        UsageError: it is one of the files, lies in one of the folders, or is a folder; names both.
    """
    if path.is_dir():
        raise UsageError(f"the report {shown_path(path)} is a folder; name a file")
    whole = path.resolve()
    for each in filter(Path.exists, reads):
        if each.is_dir() and any(parent.samefile(each) for parent in whole.parents if parent.exists()):
            raise UsageError(
                f"the report {shown_path(path)} would lie in {shown_path(each)}, which this command reads; "
                "name a file elsewhere"
            )
        if whole.exists() and whole.samefile(each):
            raise UsageError(
                f"the report {shown_path(path)} would take the place of {shown_path(each)}, which this command reads; "
                "name another file"
            )


class SkipReport:
    """A JSON Lines file under way. Every fault of the disk is a CommandError that names the report."""

    def __init__(self, path: Path) -> None:
        """Begin it; what lies at path stays there until `finish`, unless it is a device or a pipe."""
        self._path, self._place = path, path.resolve()
        is_special = path.exists() and not path.is_file()
        self._partial = None if is_special else self._place.with_name(f".{self._place.name}.partial")
        self._file: BinaryIO | None = None
        try:
            if self._partial is None:
                self._file = path.open("wb")
            else:
                self._partial.unlink(missing_ok=True)  # of a run that was killed
                self._file = self._partial.open("xb")
        except OSError as error:
            raise self._refused(error) from error

    def write(self, record: Mapping[str, object]) -> None:
        """Add a line."""
        assert self._file is not None, "the report is finished"
        try:
            self._file.write(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))
        except OSError as error:
            raise self._refused(error) from error

    def finish(self) -> None:
        """Put the file in its place, on disk to its last line; once more does nothing."""
        file, self._file = self._file, None
        if file is None:
            return
        try:
            with file:
                file.flush()
                if self._partial is not None:
                    os.fsync(file.fileno())
            if self._partial is not None:
                self._partial.replace(self._place)
        except OSError as error:
            if self._partial is not None:
                self._partial.unlink(missing_ok=True)
            raise self._refused(error) from error

    def _refused(self, error: OSError) -> CommandError:
        return CommandError(f"the report {shown_path(self._path)} cannot be written: {error.strerror or error}")
