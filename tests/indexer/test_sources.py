import os
import tarfile
from pathlib import Path

import pytest

from indexer.documents import BadRecord, Document
from indexer.errors import SourceError
from indexer.sources import read_documents

_SHARED = Path("../shared/data")


def _documents(source: Path | str) -> dict[str, Document]:
    records = list(read_documents(str(source)))
    return {record.document_id: record for record in records if isinstance(record, Document)}


def test_a_folder_gives_its_text_files_by_relative_path_and_skips_the_rest(tmp_path: Path) -> None:
    (tmp_path / "b" / ".hidden").mkdir(parents=True)
    (tmp_path / "b" / "page.html").write_text("<title>Page</title><p>x")
    (tmp_path / "b" / ".hidden" / "a.txt").write_text("x")
    (tmp_path / "a.md").write_text("---\nlang: en\n---\n# A\n")
    (tmp_path / "notes.TXT").write_text("plain")
    (tmp_path / "image.png").write_bytes(b"\x89PNG")
    (tmp_path / "loop").symlink_to(tmp_path, target_is_directory=True)
    os.mkfifo(tmp_path / "pipe.txt")
    documents = _documents(tmp_path)
    assert [(key, document.title) for key, document in documents.items()] == [
        ("a.md", "A"),
        ("notes.TXT", "notes"),
        ("b/page.html", "Page"),
    ]
    assert documents["a.md"].metadata == {"lang": "en"}


def test_line_ends_and_offsets_are_those_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"Line one.\r\nLine two.\r\n\r\nThe vault code is 4471.\r\n")
    assert _documents(tmp_path / "a.txt")["a.txt"].text[42:46] == "4471"


@pytest.mark.parametrize(
    ("content", "text"),
    [("\ufefffog".encode(), "fog"), ("fog".encode("utf-16"), "fog"), (b"", "")],
)
def test_byte_order_marks_are_no_content(tmp_path: Path, content: bytes, text: str) -> None:
    (tmp_path / "a.txt").write_bytes(content)
    assert _documents(tmp_path)["a.txt"].text == text


def test_files_that_are_no_text_are_bad_records_with_their_line(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"one\ntwo\ncaf\xe9")
    (tmp_path / "b.txt").write_bytes(b"one\n\x00")
    (tmp_path / "c.txt").write_text("good")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/d\xff.txt")).write_text("x")
    records = list(read_documents(str(tmp_path)))
    bad = [record for record in records if isinstance(record, BadRecord)]
    assert [(Path(record.file).name, record.line) for record in bad] == [
        ("a.txt", 3),
        ("b.txt", 2),
        ("d\\xff.txt", None),
    ]
    assert len(records) == 4


def test_a_beir_folder_gives_its_corpus_only(tmp_path: Path) -> None:
    (tmp_path / "corpus.jsonl").write_text('{"_id": "1", "title": "T", "text": "x"}\n')
    (tmp_path / "queries.jsonl").write_text('{"_id": "q", "text": "x"}\n')
    (tmp_path / "README.md").write_text("about")
    assert _documents(tmp_path) == {"1": Document("1", "x", "T", metadata={})}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing", "neither a file, nor a folder, nor 'pydoc'"),
        ("a.pdf", "of no kind that is read"),
        ("", "holds no file"),
    ],
)
def test_a_source_that_gives_nothing_is_refused_with_what_is_known(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "a.pdf").write_bytes(b"%PDF")
    with pytest.raises(SourceError, match=message):
        list(read_documents(str(tmp_path / name)))


def test_pages_of_a_real_site_are_read_without_their_site_generators_marks(tmp_path: Path) -> None:
    archive = _SHARED / "docs" / "prometheus-docs.tar.gz"
    if not archive.is_file():
        pytest.skip(f"{archive} is not there")
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path, filter="data")
    documents = _documents(tmp_path)
    assert len(documents) >= 100
    assert all(document.title.strip() for document in documents.values())
    assert sum(bool(document.text.strip()) for document in documents.values()) > 100  # a few are front matter only
    assert not any(document.text.startswith("---\ntitle") for document in documents.values())
