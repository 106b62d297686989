"""What the command line says: progress, sizes, times, and sentences for faults."""

import errno
import json

import pytest
from rich.console import Console
from rich.progress import Progress

from models.errors import ModelFolderError
from service.commands.demo import index_name
from service.commands.faults import CommandError, explanation
from service.commands.output import (
    LONGEST_SENTENCE,
    counted,
    duration,
    print_json,
    printable,
    printable_lines,
    say,
    shortened,
    size,
)
from service.commands.progress import SECONDS_BETWEEN_LINES, ProgressBars, ProgressLines, RateColumn


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_lines_come_every_few_seconds_with_rate_and_time_left() -> None:
    clock, lines = Clock(), list[str]()
    progress = ProgressLines(lines.append, clock=clock)
    for done in range(5):
        progress.update("Embedding", done * 10, 100)
        clock.now += SECONDS_BETWEEN_LINES / 2
    progress.finish()
    assert lines == [
        "Embedding …",
        "Embedding: 20 of 100, 4.0/s, 20 s left",
        "Embedding: 40 of 100, 4.0/s, 15 s left",
        "Embedding: 40 in 12 s",
    ]


def test_each_phase_begins_and_ends_with_a_line_and_an_unknown_total_is_left_out() -> None:
    clock, lines = Clock(), list[str]()
    progress = ProgressLines(lines.append, clock=clock)
    progress.update("Reading", 0, None)
    clock.now += SECONDS_BETWEEN_LINES
    progress.update("Reading", 1500, None)
    progress.update("Cutting", 0, 10)
    progress.finish()
    progress.finish()
    assert lines == [
        "Reading …",
        "Reading: 1,500, 300.0/s",
        "Reading: 1,500 in 5.0 s",
        "Cutting …",
        "Cutting: 0 in 0.0 s",
    ]


def test_no_time_is_promised_while_nothing_is_done() -> None:
    clock, lines = Clock(), list[str]()
    progress = ProgressLines(lines.append, clock=clock)
    progress.update("Reading", 0, 10)
    clock.now += SECONDS_BETWEEN_LINES
    progress.update("Reading", 0, 10)
    assert lines == ["Reading …", "Reading: 0, 0.0/s"]


def test_a_terminal_shows_one_bar_a_phase_with_its_rate() -> None:
    console = Console(record=True, force_terminal=True, width=80)
    with Progress("{task.description}", RateColumn(), console=console) as bars:
        display = ProgressBars(bars)
        display.update("Cutting", 5, 10)
        display.update("Cutting", 10, 10)
        display.update("Embedding", 3, 10)
        assert [(task.description, task.completed, task.total) for task in bars.tasks] == [
            ("Cutting", 10, 10),
            ("Embedding", 3, 10),
        ]
        assert [task.finished for task in bars.tasks] == [True, False]
    assert "Embedding" in console.export_text()


@pytest.mark.parametrize(
    ("n_bytes", "shown"), [(0, "0 B"), (999, "999 B"), (1_000, "1.0 kB"), (34_500_000, "34.5 MB"), (10**13, "10.0 TB")]
)
def test_size_is_decimal(n_bytes: int, shown: str) -> None:
    assert size(n_bytes) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.04, "0.0 s"), (9.94, "9.9 s"), (59.4, "59 s"), (59.6, "1 min 0 s"), (185, "3 min 5 s"), (7440, "2 h 4 min")],
)
def test_duration_has_the_units_that_matter(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


def test_counted_uses_the_plural_but_for_one() -> None:
    assert [counted(n, "document") for n in (0, 1, 1234)] == ["0 documents", "1 document", "1,234 documents"]


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (CommandError("there is no such thing"), "There is no such thing."),
        (ModelFolderError("/models/x holds\na reader"), "/models/x holds a reader."),
        (OSError(errno.ENOSPC, "", "/data/x"), "/data/x: no space is left on the disk."),
        (PermissionError(errno.EACCES, "", "/data/x"), "/data/x: this user has no permission for it."),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "/x"), "/x: No such file or directory."),
        (OSError("Not a gzipped file"), "Not a gzipped file."),
        (MemoryError(), "There is not enough memory for this."),
        (
            FileNotFoundError(errno.ENOENT, "No such file or directory", "ids.txt"),
            "ids.txt: No such file or directory.",
        ),
        (CommandError("g3.jsonl, line 2: not JSON"), "g3.jsonl, line 2: not JSON."),
        (CommandError("manifest.json in archive a.tar is not JSON"), "manifest.json in archive a.tar is not JSON."),
        (CommandError("queries.d cannot be read"), "queries.d cannot be read."),
        (CommandError("naïve: no such file"), "naïve: no such file."),
    ],
)
def test_a_fault_is_one_sentence(error: Exception, sentence: str) -> None:
    assert explanation(error) == sentence


BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


def test_printable_text_keeps_its_length_and_cannot_steer_a_terminal() -> None:
    text = f"a\x1b[31mb\r\n\x9bc\ud800d🚀\u2028{BIDI}e\u200df"
    for shown, newline in ((printable(text), " "), (printable_lines(text), "\n")):
        assert shown == f"a [31mb {newline} c d🚀 {' ' * len(BIDI)}e\u200df"
        assert len(shown) == len(text)


def test_what_is_said_is_one_line_that_shows_what_would_steer(capsys: pytest.CaptureFixture[str]) -> None:
    say(f"query q\x1b[31m1\ntercet: forged\u202e{BIDI[0]}\ud800 🚀: {'a' * 100_000}")
    said = capsys.readouterr().err
    assert said.startswith("query q\\x1b[31m1\\ntercet: forged\\u202e\\u061c\\ud800 🚀: aaa")
    assert said.endswith("a…\n")
    assert len(said) < LONGEST_SENTENCE + 100


def test_json_steers_no_terminal_and_reads_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"text": f"a\x1b\x7f\x9b\u2028{BIDI}日🚀\n"}
    print_json(value)
    printed = capsys.readouterr().out
    assert json.loads(printed) == value
    assert printed == printable_lines(printed)
    assert "日🚀" in printed


def test_a_long_text_is_shortened_to_a_length() -> None:
    assert shortened("abcdef", 6) == "abcdef"
    assert shortened("abcdefg", 6) == "abcde…"


def test_an_index_is_named_after_its_source() -> None:
    assert index_name(["pydoc"]).startswith("pydoc-3.")
    assert index_name(["/somewhere/My Notes"]).startswith("my-notes-")
    assert index_name(["/a/notes"]) != index_name(["/b/notes"])
    assert index_name(["notes"]) == index_name(["./notes/"])
    assert index_name(["a", "b"]) != index_name(["a"])
    assert index_name(["/文書"]).startswith("documents-")
