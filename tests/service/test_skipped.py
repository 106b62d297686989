"""What `tercet index` tells of what gave no document: in sentences, in its JSON, in its report."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import pytest

from indexer.documents import Assumed, SkipKind, Skipped
from indexer.errors import SourceError
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
