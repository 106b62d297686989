"""Where commands write: results to stdout, as JSON or for people, and everything else to stderr."""

import sys
from collections.abc import Mapping

import orjson
from rich.console import Console

_UNBROKEN = 10_000  # columns


def say(sentence: str) -> None:
    """Tell the user something that is no result."""
    sys.stderr.write(f"{sentence}\n")
    sys.stderr.flush()


def print_json(value: Mapping[str, object]) -> None:
    """Print a result as one JSON document; dataclasses and numpy values inside it are fine."""
    options = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE
    sys.stdout.write(orjson.dumps(value, option=options).decode())
    sys.stdout.flush()


def console() -> Console:
    """Return the console that shows results to people; off a terminal it has no colours and breaks no line."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else _UNBROKEN)


def counted(n: int, noun: str) -> str:
    """Return a count with its noun: `1 document`, `1,234 documents`."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def size(n_bytes: int) -> str:
    """Return a number of bytes for people, in decimal units: `999 B`, `1.2 kB`, `34.5 MB`."""
    value = float(n_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def duration(seconds: float) -> str:
    """Return a time span for people: `0.4 s`, `12 s`, `3 min 5 s`, `2 h 4 min`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
