import gzip
import os
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from indexer.documents import Assumed, Document, Skipped, SourceRecord
from indexer.errors import SourceError
from indexer.sources import MAX_FILE_BYTES, SUFFIXES, read_documents
from tests.indexer.small_files import pdf, sheets, slides, word

_SHARED = Path("../shared/data")


def _documents(source: Path | str) -> dict[str, Document]:
    records = list(read_documents(str(source)))
    return {record.document_id: record for record in records if isinstance(record, Document)}


def _read(records: Iterator[SourceRecord]) -> Iterator[Document | Skipped]:
    return (record for record in records if not isinstance(record, Assumed))


def _skipped(source: Path) -> list[tuple[str, int | None, str, str]]:
    found = (record for record in read_documents(str(source)) if isinstance(record, Skipped))
    return [(Path(record.file).name, record.line, record.kind, record.reason) for record in found]


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


def test_what_is_no_text_is_skipped_with_its_line_and_the_rest_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("é è ê\n".encode() + b"two\ncaf\xe9")
    (tmp_path / "b.txt").write_bytes(b"one\n\x00")
    (tmp_path / "c.txt").write_text("good")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/d\xff.txt")).write_text("x")
    (tmp_path / "e.md").write_text('---\nlang: "\\ud800"\n---\ntext')
    assert _skipped(tmp_path) == [
        ("a.txt", 3, "not-text", "byte 17 of the file is not utf-8"),
        ("b.txt", 2, "not-text", "holds a NUL character, so it is not text"),
        ("d\\xff.txt", None, "unreadable", "its name is not UTF-8"),
        ("e.md", None, "not-text", "holds a lone surrogate, which UTF-8 cannot carry"),
    ]
    assert list(_documents(tmp_path)) == ["c.txt"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", b""),
        ("a.md", b"\xef\xbb\xbf \r\n\t"),
        ("a.html", b"<nav>Home</nav>"),
        ("a.rst", b".. a comment"),
        ("a.jsonl", b"\n\n"),
        ("a.csv", b"id,text\n"),
        ("a.pdf", b""),
        ("a.pdf", pdf(["", ""], title="Scanned")),
    ],
)
def test_a_file_without_text_is_skipped_and_is_no_fault(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    (record,) = read_documents(str(tmp_path / name))
    assert isinstance(record, Skipped)
    assert (record.kind, record.is_fault) == ("empty", False)


def test_a_file_that_has_only_a_title_of_its_own_is_a_document(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("---\ntitle: Tide\n---\n")
    assert _documents(tmp_path) == {"a.md": Document("a.md", "", "Tide", metadata={})}


def test_unicode_separators_and_control_characters_stay_in_a_text(tmp_path: Path) -> None:
    text = "one\u2028two\u0085three\x0b\x0c\x1c four\r\n"
    (tmp_path / "a.txt").write_bytes(text.encode())
    assert _documents(tmp_path)["a.txt"].text == text


def test_a_guessed_encoding_is_told_and_a_declared_one_is_not(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_bytes('<meta charset="iso-8859-1"><p>café'.encode("latin-1"))
    (tmp_path / "b.txt").write_bytes("café".encode("cp1252"))
    assert [document.text for document in _documents(tmp_path).values()] == ["café", "café"]
    assumed = [record for record in read_documents(str(tmp_path)) if isinstance(record, Assumed)]
    assert assumed == [Assumed(str(tmp_path / "b.txt"), "cp1252")]


def test_each_page_is_a_document_that_names_its_page(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(pdf(["one", "", "three"]))
    (tmp_path / "b.pptx").write_bytes(slides())
    (tmp_path / "c.xlsx").write_bytes(sheets())
    (tmp_path / "d.docx").write_bytes(word())
    documents = _documents(tmp_path)
    assert {key: (document.title, dict(document.metadata)) for key, document in documents.items()} == {
        "a.pdf#page=1": ("a", {"author": "Ana", "page": 1, "pages": 3}),
        "a.pdf#page=3": ("a", {"author": "Ana", "page": 3, "pages": 3}),
        "b.pptx#slide=1": ("Tide talk", {"author": "Ben", "slide": 1, "slides": 3}),
        "b.pptx#slide=3": ("Tide talk", {"author": "Ben", "slide": 3, "slides": 3}),
        "c.xlsx#sheet=1": ("Fees", {"author": "Cem", "sheet_name": "Prices", "sheet": 1, "sheets": 2}),
        "d.docx": ("Harbour rules", {"author": "Ana"}),
    }
    assert [(name, reason) for name, _, _, reason in _skipped(tmp_path)] == [
        ("a.pdf", "holds no text on page 2 of 3"),
        ("b.pptx", "holds no text on slide 2 of 3"),
        ("c.xlsx", "holds no text on sheet 2 of 2"),
    ]


def test_a_file_whose_extra_is_missing_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    contents = {"a.pdf": pdf(["x"]), "b.pptx": slides(), "c.xlsx": sheets(), "d.docx": word(), "e.parquet": b"PAR1"}
    (tmp_path / ".libraries").mkdir()
    for name, module in zip(contents, ("pypdf", "pptx", "openpyxl", "docx", "pyarrow"), strict=True):
        (tmp_path / name).write_bytes(contents[name])
        (tmp_path / ".libraries" / f"{module}.py").write_text("raise ImportError")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([f"{tmp_path}/.libraries", *sys.path]))
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)  # Parquet is read in this process
    assert _skipped(tmp_path) == [
        *(
            (
                name,
                None,
                "missing-extra",
                "needs the extra `files`: run pip install --editable '.[files]' in Tercet's folder",
            )
            for name in list(contents)[:4]
        ),
        (
            "e.parquet",
            None,
            "missing-extra",
            "needs the extra `parquet`: run pip install --editable '.[parquet]' in Tercet's folder",
        ),
    ]


def test_records_in_a_folder_are_read_and_a_table_without_columns_is_one_fault(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": "1", "text": "x"}\n')
    (tmp_path / "b.csv").write_text("id,text\n2,y\n")
    (tmp_path / "c.csv").write_text("sepal,petal\n" + "1,2\n" * 50)
    assert list(_documents(tmp_path)) == ["1", "2"]
    ((name, line, kind, reason),) = _skipped(tmp_path)
    assert (name, line, kind) == ("c.csv", 1, "missing-column")
    assert reason.startswith("has no column for the id; it may be named id, _id,")


def test_a_file_that_vanishes_or_refuses_meanwhile_is_told_and_the_next_is_read(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt", "d.txt"):
        (tmp_path / name).write_text("x")
    (tmp_path / "c.txt").symlink_to("/proc/self/mem")  # opens, and refuses to be read, also for root
    records = read_documents(str(tmp_path))
    assert isinstance(next(records), Document)
    (tmp_path / "b.txt").unlink()
    rest = [record.reason if isinstance(record, Skipped) else record.document_id for record in _read(records)]
    assert rest == ["vanished before it was read", "cannot be read: Input/output error", "d.txt"]


def test_a_named_file_that_cannot_be_read_to_its_end_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b"\n" * 50_000)[:-9])
    with pytest.raises(SourceError, match=r"a\.jsonl\.gz: cannot be read after line \d+: Compressed file ended"):
        list(read_documents(str(tmp_path / "a.jsonl.gz")))
    (kind,) = [kind for _, _, kind, _ in _skipped(tmp_path)]
    assert kind == "unreadable"


def test_a_file_that_is_too_long_is_skipped_without_reading_it_all(tmp_path: Path) -> None:
    with (tmp_path / "a.txt").open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)  # sparse
    assert _skipped(tmp_path) == [("a.txt", None, "too-long", f"is longer than {MAX_FILE_BYTES} bytes")]


@pytest.mark.parametrize("name", ["a.txt", "a.html"])
def test_a_text_of_more_than_16_mi_characters_is_skipped(tmp_path: Path, name: str) -> None:
    content = "é" * (16 << 20)
    (tmp_path / name).write_text(content)
    assert len(_documents(tmp_path)[name].text) == 16 << 20
    (tmp_path / name).write_text(content + "é")
    assert _skipped(tmp_path) == [(name, None, "too-long", "has more than 16777216 characters of text")]


@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.rst", "a.html"])
def test_a_line_of_ten_megabytes_is_read(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"fog over the harbour " * 500_000)
    assert len(_documents(tmp_path)[name].text) > 10_000_000


def test_names_that_are_no_text_or_would_steer_a_terminal_are_shown_escaped(tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    folder.mkdir()
    (folder / "a\x1b]0;b\n.jsonl").write_text("not json\n")
    (record,) = read_documents(str(folder))
    assert str(record) == f"{tmp_path}/\\xff/a\\x1b]0;b\\n.jsonl:1: not JSON, at character 1"


def test_a_hundred_thousand_empty_files_are_counted_one_by_one(tmp_path: Path) -> None:
    for i in range(100):
        (tmp_path / str(i)).mkdir()
        for j in range(1000):
            os.close(os.open(f"{tmp_path}/{i}/{j}.txt", os.O_CREAT | os.O_WRONLY))
    kinds = Counter(record.kind for record in read_documents(str(tmp_path)) if isinstance(record, Skipped))
    assert kinds == {"empty": 100_000}


def test_a_beir_folder_gives_its_corpus_only(tmp_path: Path) -> None:
    (tmp_path / "corpus.jsonl").write_text('{"_id": "1", "title": "T", "text": "x"}\n')
    (tmp_path / "queries.jsonl").write_text('{"_id": "q", "text": "x"}\n')
    (tmp_path / "README.md").write_text("about")
    assert _documents(tmp_path) == {"1": Document("1", "x", "T", metadata={})}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing", "neither a file, nor a folder, nor 'pydoc'"),
        ("a.xyz", "of no kind that is read"),
        ("", "holds no file"),
    ],
)
def test_a_source_that_gives_nothing_is_refused_with_what_is_known(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "a.xyz").write_bytes(b"x")
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


def test_the_documentation_names_every_ending_that_is_read() -> None:
    page = Path("docs/sources.md").read_text(encoding="utf-8")
    assert [suffix for suffix in SUFFIXES if f"`{suffix}`" not in page] == []
