"""Read data files record by record: what is wrong with one is told with file, line and reason.

Functions that look into a record raise ValueError with the reason; `of_line` turns it into a DataError.
"""

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models.errors import DataError

_KINDS: Mapping[type, str] = {bool: "a truth value", str: "text", list: "a list", dict: "an object", int: "a number"}


@dataclass(frozen=True, slots=True)
class Source:
    """A file or folder, the split of a BEIR folder, and the most to take from it, None for all."""

    path: Path
    split: str
    limit: int | None


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line number, line) of a plain or gzip-compressed UTF-8 file, split on newline only, no blank lines.

    Raises:
        DataError: the file is not there, not UTF-8, or not gzip though it is named so; the message gives the line.
    """
    return ((number, line) for number, line in _all_lines(path) if line.strip())


def read_text(path: Path) -> str:
    """Return a file's content with `\\n` at the end of each line; raises as `read_lines`."""
    return "\n".join(line.rstrip("\r\n") for _, line in _all_lines(path))


def _all_lines(path: Path) -> Iterator[tuple[int, str]]:
    opener = gzip.open if path.suffix == ".gz" else open
    number = 0
    try:
        with opener(path, "rb") as lines:
            for number, line in enumerate(lines, start=1):
                yield number, line.decode()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        where = f"{path}, line {number}:" if number else str(path)
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise DataError(f"file {where} cannot be read: {reason}") from error


@contextmanager
def of_line(path: Path, number: int, wanted: str) -> Iterator[None]:
    """Turn a ValueError about a record into a DataError: `file, line 2: not a triple: its positive is null, not text`.

    Args:
        path: of the file.
        number: of the line, from 1.
        wanted: what the line should hold.
    """
    try:
        yield
    except ValueError as error:
        raise DataError(f"{path}, line {number}: not {wanted}: {error}") from error


def parse(text: str) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: it is no JSON, a json.JSONDecodeError where that has a place, or is nested too deeply.
    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def as_object(value: object) -> Mapping[str, object]:
    """Return a value that is an object; raises ValueError."""
    if not isinstance(value, dict):
        raise ValueError(f"it is {_kind(value)}, not an object")
    return value


def field(record: Mapping[str, object], name: str) -> object:
    """Return what a record must have; raises ValueError."""
    if name not in record:
        raise ValueError(f"it has no {name!r}")
    return record[name]


def as_text(value: object, name: str, *, may_be_blank: bool = True) -> str:
    """Return a value that is text; raises ValueError, also for lone surrogates, which are no characters."""
    if not isinstance(value, str):
        raise ValueError(f"its {name!r} is {_kind(value)}, not text")
    if not may_be_blank and not value.strip():
        raise ValueError(f"its {name!r} is blank")
    if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
        raise ValueError(f"its {name!r} holds a lone surrogate, which UTF-8 cannot carry")
    return value


def text_field(record: Mapping[str, object], name: str, *, may_be_blank: bool = True) -> str:
    """Return the text that a record must have under a name; raises ValueError."""
    return as_text(field(record, name), name, may_be_blank=may_be_blank)


def optional_text(record: Mapping[str, object], name: str) -> str:
    """Return the text that a record has under a name, empty where it has none or null; raises ValueError."""
    value = record.get(name)
    return "" if value is None else as_text(value, name)


def id_field(record: Mapping[str, object], name: str) -> str:
    """Return the id, text or a whole number, that a record must have under a name; raises ValueError."""
    value = field(record, name)
    return str(value) if type(value) is int else as_text(value, name, may_be_blank=False)


def whole_number(record: Mapping[str, object], name: str) -> int:
    """Return the whole number that a record must have under a name; raises ValueError."""
    value = field(record, name)
    if type(value) is not int:
        raise ValueError(f"its {name!r} is {_kind(value)}, not a whole number")
    return value


def list_field(record: Mapping[str, object], name: str) -> list[object]:
    """Return the list that a record must have under a name; raises ValueError."""
    value = field(record, name)
    if not isinstance(value, list):
        raise ValueError(f"its {name!r} is {_kind(value)}, not a list")
    return value


def _kind(value: object) -> str:
    if isinstance(value, float):
        return str(value)
    return "null" if value is None else _KINDS[type(value)]
