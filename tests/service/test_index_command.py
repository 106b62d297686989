"""`tercet index` over folders of mixed files, in processes of its own: policy, report, exit codes."""

import json
import os
import sys
from pathlib import Path

import pytest

from tests.indexer.small_files import pdf
from tests.service.commands import Tercet, tercet_with
from tests.service.conftest import TinyModels


@pytest.fixture
def tercet(tiny_models: TinyModels, tmp_path: Path) -> Tercet:
    return tercet_with(tiny_models, tmp_path / "data")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with four documents, and some files that give none without being faulty."""
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "tide.pdf").write_bytes(pdf(["the lighthouse keeper", "the harbour tide"], title="Tide"))
    (folder / "fog.csv").write_text('id,text,year\nfog,"fog over\nthe harbour",1871\n')
    (folder / "storm.txt").write_bytes("storm at the caf\xe9".encode("cp1252"))
    (folder / "empty.txt").touch()
    (folder / "picture.png").touch()
    return folder


def test_what_is_no_fault_is_skipped_under_either_policy_and_a_passage_names_its_page(
    tercet: Tercet, folder: Path, tmp_path: Path
) -> None:
    report = tmp_path / "report.jsonl"
    done = tercet("index", folder, "--on-error", "fail", "--report", report, "--json")
    assert (done.code, done.result["n_documents"], done.result["n_skipped"]) == (0, 4, 1)
    assert done.result["skipped_by_kind"] == {"empty": 1, "other-kind": 1}
    assert [json.loads(line)["kind"] for line in report.read_text().splitlines()] == [
        *("empty", "other-kind", "assumed-encoding")
    ]
    assert f"Skipped {folder}/empty.txt: is empty" in done.stderr
    assert f"Note: {folder}/storm.txt: read as cp1252" in done.stderr
    (found,) = tercet("search", "keeper", "--mode", "bm25", "--no-rerank", "--top-k", "1", "--json").result["results"]
    assert (found["document_id"], found["title"]) == ("tide.pdf#page=1", "Tide")
    assert found["metadata"] == {"author": "Ana", "page": 1, "pages": 2}


def test_a_fault_fails_or_is_told_and_nothing_read_leaves_the_index_as_it_was(tercet: Tercet, folder: Path) -> None:
    assert tercet("index", folder / "storm.txt").code == 0
    (folder / "broken.pdf").write_bytes(b"%PDF-1.7")
    (folder / "table.csv").write_text("sepal,petal\n1,2\n")
    report = folder.parent / "report.jsonl"
    failed = tercet("index", folder, "--on-error", "fail", "--report", report)
    assert failed.code == 1
    assert failed.sentence.startswith(f"{folder}/broken.pdf: is damaged, or no PDF")
    assert [json.loads(line)["kind"] for line in report.read_text().splitlines()] == ["damaged"]
    nothing = tercet("index", folder / "table.csv")
    assert (nothing.code, nothing.sentence.split(" it may")[0]) == (
        1,
        f"No document was read, 1 skipped: {folder}/table.csv:1: has no column for the id;",
    )
    assert tercet("inspect", "--json").result["n_documents"] == 1


def test_a_report_never_destroys_a_source_and_is_never_read_itself(
    tercet: Tercet, folder: Path, tmp_path: Path
) -> None:
    own = folder / "fog.csv"
    before = own.read_bytes()
    gate = tmp_path / "gate.jsonl"
    gate.write_text('{"query": "fog"}\n')
    for report in (own, folder / "report.jsonl", tmp_path / "data" / "default" / "report.jsonl", gate):
        (tmp_path / "data" / "default").mkdir(parents=True, exist_ok=True)
        done = tercet("index", folder, own, "--report", report, "--gate", gate)
        assert done.code == 2
        assert done.sentence.startswith(f"The report {report} would ")
    assert own.read_bytes() == before
    assert gate.read_text() == '{"query": "fog"}\n'
    assert sorted(each.name for each in folder.iterdir()) == [
        *("empty.txt", "fog.csv", "picture.png", "storm.txt", "tide.pdf")
    ]


def test_a_report_that_cannot_be_written_leaves_the_index_as_it_was(tercet: Tercet, folder: Path) -> None:
    done = tercet("index", folder, "--report", "/dev/full")
    assert (done.code, done.sentence) == (1, "The report /dev/full cannot be written: No space left on device.")
    assert tercet("inspect").code == 1


def test_a_file_that_takes_more_than_the_settings_allow_is_skipped(
    tercet: Tercet, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "pypdf.py").write_text("all = []\nwhile True: all.append(bytes(1 << 20))")
    limited = Tercet({**tercet.environment, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])})
    done = limited("index", folder, "--json", FILE_MEMORY_BYTES="500000000", FILE_CPU_SECONDS="60")
    assert (done.code, done.result["n_documents"], done.result["skipped_by_kind"]["too-long"]) == (0, 2, 1)
    assert f"Skipped {folder}/tide.pdf: takes over 500000000 bytes of memory to read" in done.stderr
