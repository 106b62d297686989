"""What names data on the command line, `PATH#N` and `DIR:SPLIT#N`, and what data are called in results."""

import os
from collections.abc import Sequence
from pathlib import Path

from indexer.files import shown_path
from models.training.records import Source
from service.commands.faults import CommandError


def parse_source(text: str) -> Source:
    """Return the source that `PATH` or `PATH#N` means; a path that is there is taken as it stands.

    Raises:
        CommandError: there is no such file or folder, or N is no number of at least 1.
    """
    path, mark, limit = text.rpartition("#")
    if os.path.exists(text) or not mark:
        return Source(_existing(text), "", None)
    return Source(_existing(path), "", _number(limit, text))


def parse_dataset(text: str, default_split: str) -> Source:
    """Return the source that `DIR`, `DIR:SPLIT` or either with `#N` means; raises as `parse_source`, and for a file."""
    if os.path.exists(text):
        return Source(_folder(text), default_split, None)
    path, mark, limit = text.rpartition("#")
    if not mark or ":" in limit:  # a folder's own #
        path, mark, limit = text, "", ""
    folder, colon, split = path.rpartition(":")
    if os.path.exists(path) or not colon:
        folder, split = path, default_split
    return Source(_folder(folder), split, _number(limit, text) if mark else None)


def distinct_names(paths: Sequence[Path]) -> list[str]:
    """Return what to call each path, safe to show: its last name, or as many of its last parts as tell it apart."""
    parts = [path.resolve().parts for path in paths]
    return [shown_path(Path(*own[-_n_telling(own, parts) :])) for own in parts]


def _n_telling(own: tuple[str, ...], all_parts: Sequence[tuple[str, ...]]) -> int:
    others = [each for each in all_parts if each != own]
    return next((n for n in range(1, len(own)) if all(each[-n:] != own[-n:] for each in others)), len(own))


def _existing(path: str) -> Path:
    if not os.path.exists(path):
        raise CommandError(f"the path {path} is not there")
    return Path(path)


def _folder(path: str) -> Path:
    if not _existing(path).is_dir():
        raise CommandError(f"the path {path} is no folder")
    return Path(path)


def _number(limit: str, text: str) -> int:
    if not (limit.isascii() and limit.isdigit() and len(limit) < 10 and int(limit) >= 1):
        raise CommandError(f"{text}: what follows # is {limit!r}, not a number of at least 1")
    return int(limit)
