"""Where a report goes: checked before any work starts, and written whole or not at all."""

import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from indexer.errors import installing
from service.commands.faults import CommandError

LIBRARIES = ("jinja2", "matplotlib")


def check_destination(path: Path, *, libraries: Sequence[str] = LIBRARIES) -> None:
    """Return when a report can be made, and be written to path.

    Raises:
        CommandError: a library is missing, the folder is, or something that is no file lies there.
        OSError: the folder takes no file of that name.
    """
    missing = [name for name in libraries if find_spec(name) is None]
    if missing:
        raise CommandError(f"a report needs {' and '.join(missing)}: {installing('train')}")
    if not path.parent.is_dir():
        raise CommandError(f"the report cannot be written: there is no folder {path.parent}")
    if path.exists() and not path.is_file():
        raise CommandError(
            f"the report cannot be written: {path} is {'a folder' if path.is_dir() else 'no plain file'}"
        )
    partial = _partial(path)
    partial.touch()
    partial.unlink()


def write_atomically(path: Path, text: str) -> None:
    """Write a file whole, or leave what was there as it was."""
    partial = _partial(path)
    try:
        with partial.open("w", encoding="utf-8", newline="\n", errors="replace") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path.resolve())
    finally:
        partial.unlink(missing_ok=True)


def _partial(path: Path) -> Path:
    whole = path.resolve()
    return whole.with_name(f".{whole.name}.{os.getpid()}.partial")
