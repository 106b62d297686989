"""What `tercet index` tells of what gave no document: in sentences, in its JSON, in its report."""

import json
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import pytest

from indexer.documents import Assumed, SkipKind, Skipped
from indexer.errors import SourceError
from service.commands.faults import CommandError, UsageError
from service.commands.skip_report import SkipReport, check_report
from service.commands.skipped import KINDS, LISTED, skipped_records


def _bad(line: int) -> Skipped:
    return Skipped("a.jsonl", line, "bad-record", "not a JSON object")


def _fail_after(records: Sequence[Skipped | Assumed], report: Path) -> None:
    with skipped_records(report) as skipped:
        for record in records:
            skipped.add(record)
        raise SourceError("a.jsonl:30: not a JSON object")


def test_the_first_are_told_and_the_others_counted_by_kind(capsys: pytest.CaptureFixture[str]) -> None:
    with skipped_records(None) as skipped:
        for line in range(1, 1204):
            skipped.add(_bad(line))
        skipped.add(Skipped("b.pdf", None, "damaged", "is damaged"))
        for name in ("c.png", "d.PNG", "e"):
            skipped.add(Skipped(name, None, "other-kind", "is of no kind that is read"))
        skipped.add(Skipped("f", None, "link", "is a link to a folder, which is not followed"))
        skipped.add(Assumed("g.txt", "cp1252"))
    lines = capsys.readouterr().err.splitlines()
    assert lines[:LISTED] == [f"Skipped a.jsonl:{line}: not a JSON object" for line in range(1, LISTED + 1)]
    assert lines[LISTED:] == [
        "Skipped 1,184 more, which --report FILE lists.",
        "Skipped in all: 1,203 not a record, 1 damaged.",
        "Note: files of other kinds were left out: 1 without a suffix, 2 .png.",
        "Note: 1 link to folders were not followed.",
        "Note: g.txt: read as cp1252, a guess from its bytes.",
    ]
    told = skipped.as_json()
    assert (told["n_skipped"], told["n_assumed_encodings"]) == (1204, 1)
    assert told["skipped_by_kind"] == {"bad-record": 1203, "damaged": 1, "link": 1, "other-kind": 3}


def test_nothing_is_told_where_nothing_was_skipped(capsys: pytest.CaptureFixture[str]) -> None:
    with skipped_records(None):
        pass
    assert capsys.readouterr().err == ""


def test_the_report_holds_all_of_them_also_of_failed_work(tmp_path: Path) -> None:
    report = tmp_path / "report.jsonl"
    other, assumed = Skipped("c.png", None, "other-kind", "is of no kind that is read"), Assumed("g.txt", "cp1252")
    with pytest.raises(SourceError):
        _fail_after([*map(_bad, range(1, 31)), other, assumed], report)
    records = [json.loads(line) for line in report.read_text().splitlines()]
    assert len(records) == 32
    assert records[0] == {"file": "a.jsonl", "line": 1, "kind": "bad-record", "reason": "not a JSON object"}
    assert records[-1] == {"file": "g.txt", "line": None, "kind": "assumed-encoding", "reason": "read as cp1252"}


def test_every_kind_has_words_and_a_place_in_the_documentation() -> None:
    page = Path("docs/sources.md").read_text(encoding="utf-8")
    assert set(KINDS) == set(get_args(SkipKind))
    assert [kind for kind in KINDS if f"| `{kind}` |" not in page] == []


def read_by(path: Path) -> list[str]:
    return [json.loads(line)["file"] for line in path.read_text().splitlines()]


def test_what_lies_at_the_place_of_a_report_stays_until_all_is_read(tmp_path: Path) -> None:
    report, link = tmp_path / "report.jsonl", tmp_path / "link.jsonl"
    report.write_text("last night's\n")
    link.symlink_to(report)
    with skipped_records(link) as skipped:
        skipped.add(_bad(1))
        assert report.read_text() == "last night's\n"
        skipped.finish()
        assert read_by(report) == ["a.jsonl"]
    assert read_by(report) == ["a.jsonl"]
    assert link.is_symlink()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["link.jsonl", "report.jsonl"]


def test_the_remains_of_a_killed_run_are_no_obstacle_and_a_link_in_their_place_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / ".report.jsonl.partial").symlink_to(victim)
    with skipped_records(tmp_path / "report.jsonl") as skipped:
        skipped.add(_bad(1))
    assert read_by(tmp_path / "report.jsonl") == ["a.jsonl"]
    assert victim.read_text() == "precious"


def test_a_device_takes_a_report_and_stays_a_device(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    with skipped_records(pipe) as skipped:
        skipped.add(_bad(1))
        skipped.finish()
    reader.join()
    assert json.loads(read[0])["file"] == "a.jsonl"
    assert pipe.is_fifo()


@pytest.mark.parametrize("n", [1, 10_000])
def test_a_report_that_cannot_be_written_is_one_sentence_before_anything_is_published(n: int) -> None:
    def fill() -> None:
        with skipped_records(Path("/dev/full")) as skipped:
            for line in range(n):
                skipped.add(_bad(line))
            skipped.finish()

    with pytest.raises(CommandError, match="the report /dev/full cannot be written: No space left on device"):
        fill()


def test_a_report_that_cannot_be_begun_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"none/report\.jsonl cannot be written: No such file or directory"):
        SkipReport(tmp_path / "none" / "report.jsonl")


def test_a_report_is_nothing_that_is_read_by_whatever_name(tmp_path: Path) -> None:
    folder, source = tmp_path / "files", tmp_path / "own.jsonl"
    (folder / "deep").mkdir(parents=True)
    source.write_text("{}")
    (tmp_path / "again").symlink_to(folder)
    (tmp_path / "link.jsonl").symlink_to(source)
    (tmp_path / "hard.jsonl").hardlink_to(source)
    reads = [source, folder, Path("pydoc"), tmp_path / "gone"]
    for name in ("own.jsonl", "link.jsonl", "hard.jsonl", "files/../own.jsonl"):
        with pytest.raises(UsageError, match=r"would take the place of .*own\.jsonl, which this command reads"):
            check_report(tmp_path / name, reads)
    for name in ("files/report.jsonl", "files/deep/report.jsonl", "again/report.jsonl", "files/none/report.jsonl"):
        with pytest.raises(UsageError, match=r"would lie in .*files, which this command reads"):
            check_report(tmp_path / name, reads)
    with pytest.raises(UsageError, match="is a folder"):
        check_report(tmp_path, [])
    check_report(tmp_path / "report.jsonl", reads)
    check_report(folder / ".." / "report.jsonl", reads)
