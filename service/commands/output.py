"""Where commands write: results to stdout, as JSON or for people, and everything else to stderr.

Names, ids and texts come from documents, archives and files of queries, so nothing of them may steer a terminal:
neither control characters nor those that turn the direction of what follows.
"""

import io
import os
import re
import sys
from collections.abc import Mapping
from contextlib import suppress

import orjson
from rich.console import Console

LONGEST_SENTENCE = 4_000  # characters

_UNBROKEN = 10_000  # columns
# C0 and C1 controls, Unicode's Bidi_Control, separators of lines, lone surrogates
_STEERING = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_STEERING_IN_LINES = re.compile(f"(?!\n){_STEERING.pattern}")


def say(sentence: str) -> None:
    """Tell the user something that is no result, on one line; where nobody can be told, the work goes on."""
    short = shortened(sentence, LONGEST_SENTENCE)
    with suppress(OSError):
        sys.stderr.write(_STEERING.sub(lambda match: match[0].encode("unicode_escape").decode(), short) + "\n")
        sys.stderr.flush()


def print_json(value: Mapping[str, object]) -> None:
    """Print a result as one JSON document in UTF-8; dataclasses and numpy values inside it are fine."""
    options = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE
    text = orjson.dumps(value, option=options).decode()
    sys.stdout.flush()
    sys.stdout.buffer.write(_STEERING_IN_LINES.sub(lambda match: f"\\u{ord(match[0]):04x}", text).encode())
    sys.stdout.buffer.flush()


def print_done(value: Mapping[str, object]) -> None:
    """Print what was done as `print_json`; where it cannot be printed only that is said: done it is."""
    try:
        print_json(value)
    except OSError as error:
        say(f"Warning: this was done, but what was done cannot be printed: {error.strerror}.")


def console() -> Console:
    """Return the console that shows results to people; off a terminal it has no colours and breaks no line."""
    return Console(highlight=False, markup=False, emoji=False, width=None if sys.stdout.isatty() else _UNBROKEN)


def let_streams_take_all() -> None:
    """Let stdout and stderr escape what their encoding lacks, and lose what they are closed for."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - until the process ends
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def forget_unwritten() -> None:
    """Drop what stdout and stderr could not take; Python would try again at the end, and change the exit code."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def printable(text: str) -> str:
    """Return one line that cannot steer a terminal, of the same length: a space for each character that would."""
    return _STEERING.sub(" ", text)


def printable_lines(text: str) -> str:
    """Return the same as `printable`, but that lines end where they end."""
    return _STEERING_IN_LINES.sub(" ", text)


def shortened(text: str, most: int) -> str:
    """Return a text of at most so many characters, the last a … where some are left out."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


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
