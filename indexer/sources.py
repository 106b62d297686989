"""Sources of documents: a file of a kind that is read, a folder of such files, a BEIR folder, or `pydoc`.

What gives no document is yielded as a `Skipped` in its place, so that the caller decides whether to go on or to fail;
a file whose encoding was guessed is followed by an `Assumed`. docs/sources.md says what is read of each kind.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path

from indexer.documents import Assumed, Document, Skipped, SourceRecord
from indexer.encodings import decode
from indexer.errors import NoDocumentError, SourceError
from indexer.extractor import EXTRACTED, HTML, Extractor
from indexer.files import files_below, shown_path
from indexer.html import declared_charset
from indexer.markup import Extracted, read_markdown, read_restructured_text
from indexer.paged import PagedFile, Room, page_documents
from indexer.parquet import read_parquet
from indexer.python_documentation import python_documentation
from indexer.records import read_json_lines
from indexer.sections import first_heading
from indexer.tables import read_table

PYTHON_DOCUMENTATION = "pydoc"
MAX_FILE_BYTES = 64 << 20

_FIRST_BYTES = 1 << 16


def _read_text(source: str) -> Extracted:
    return Extracted(source, first_heading(source))


_RECORD_READERS: Mapping[str, Callable[[Path], Iterator[SourceRecord]]] = {
    **dict.fromkeys((".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz"), read_json_lines),
    **dict.fromkeys((".csv", ".csv.gz", ".tsv", ".tsv.gz", ".tab"), read_table),
    ".parquet": read_parquet,
}
_TEXT_READERS: Mapping[str, Callable[[str], Extracted]] = {
    **dict.fromkeys((".txt", ".text"), _read_text),
    **dict.fromkeys((".md", ".markdown"), read_markdown),
    ".rst": read_restructured_text,
}
SUFFIXES = tuple(sorted({*_RECORD_READERS, *_TEXT_READERS, *EXTRACTED}))


def read_documents(source: str, *, extractor: Extractor | None = None) -> Iterator[SourceRecord]:
    """Yield the documents of a source, in an order that depends on its content only.

    Args:
        source: `pydoc` (the Python documentation of this interpreter), or a path: a file that ends in one of SUFFIXES;
            a folder with a `corpus.jsonl` or `corpus.jsonl.gz` (BEIR), of which only that is read; any other folder,
            whose files are read at every depth, hidden ones and links to folders left out. The id of a file that is
            one document is its path from the folder, or its name.
        extractor: reads HTML, PDF and Office files, and can be used for the next source; without it there is one for
            this source.

    Raises:
        SourceError: nothing is there, nothing in it is of a kind that is read, or it cannot be read.
    """
    with nullcontext(extractor) if extractor is not None else closing(Extractor()) as reading:
        yield from _read_source(source, reading)


def _read_source(source: str, extractor: Extractor) -> Iterator[SourceRecord]:
    path = Path(source)
    if source == PYTHON_DOCUMENTATION:
        yield from python_documentation()
    elif path.is_dir():
        yield from _read_folder(path, extractor)
    elif not path.exists():
        raise SourceError(f"{source!r} is neither a file, nor a folder, nor {PYTHON_DOCUMENTATION!r}")
    elif not path.is_file() or _suffix(path) not in SUFFIXES:
        raise SourceError(f"{shown_path(path)} is of no kind that is read; known are {', '.join(SUFFIXES)}")
    else:
        yield from _read_named(path, extractor)


def _read_named(path: Path, extractor: Extractor) -> Iterator[SourceRecord]:
    """Yield what a file that the user named gives; that it cannot be read to its end is an error."""
    for record in _read_file(path, path.name, extractor):
        if isinstance(record, Skipped) and record.kind == "unreadable" and record.line is None:
            raise SourceError(str(record))
        yield record


def _read_folder(folder: Path, extractor: Extractor) -> Iterator[SourceRecord]:
    for name in ("corpus.jsonl", "corpus.jsonl.gz"):
        if (folder / name).is_file():
            yield from _read_named(folder / name, extractor)
            return
    n_read = 0
    for entry in files_below(folder):
        if isinstance(entry, Skipped):
            yield entry
        elif _suffix(entry.path) in SUFFIXES:
            n_read += 1
            yield from _read_file(entry.path, entry.name, extractor)
        else:
            yield Skipped(shown_path(entry.path), None, "other-kind", "is of no kind that is read")
    if not n_read:
        raise SourceError(f"{shown_path(folder)} holds no file that ends in {', '.join(SUFFIXES)}")


def _suffix(path: Path) -> str:
    """Return the ending that says what a file is, such as `.csv` or `.csv.gz`."""
    root, suffix = os.path.splitext(path.name.lower())
    return os.path.splitext(root)[1] + suffix if suffix == ".gz" else suffix


def _read_file(path: Path, name: str, extractor: Extractor) -> Iterator[SourceRecord]:
    """Yield what a file gives, and at least one record, whatever happens to it meanwhile."""
    shown, n_records = shown_path(path), 0
    try:
        if not _is_utf8(name):
            raise NoDocumentError("unreadable", "its name is not UTF-8")
        for record in _records(path, name, extractor):
            n_records += 1
            yield _storable(record, shown) if isinstance(record, Document) else replace(record, file=shown)
        if not n_records:
            yield Skipped(shown, None, "empty", "is empty")
    except NoDocumentError as error:
        yield error.skipped(shown)
    except FileNotFoundError:
        yield Skipped(shown, None, "unreadable", "vanished before it was read")
    except OSError as error:
        yield Skipped(shown, None, "unreadable", f"cannot be read: {error.strerror}")


def _storable(document: Document, file: str) -> Document | Skipped:
    """Return the document if it can be written as UTF-8."""
    metadata = (str(each) for item in document.metadata.items() for each in item)
    if all(map(_is_utf8, (document.document_id, document.text, document.title, document.url or "", *metadata))):
        return document
    return Skipped(file, None, "not-text", "holds a lone surrogate, which UTF-8 cannot carry")


def _is_utf8(text: str) -> bool:
    """Return whether a text holds no lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _records(path: Path, name: str, extractor: Extractor) -> Iterator[SourceRecord]:
    suffix = _suffix(path)
    if suffix in _RECORD_READERS:
        yield from _RECORD_READERS[suffix](path)
        return
    content = _content(path)
    if not content:
        return
    encoding = None
    if suffix in _TEXT_READERS:
        text, encoding = decode(content)
        found: Extracted | PagedFile = _TEXT_READERS[suffix](text)
    elif suffix in HTML:
        text, encoding = decode(content, declared=declared_charset(content))
        found = extractor.read(suffix, text.encode())
    else:
        found = extractor.read(suffix, content)
    title = found.title if found.title.strip() else path.stem
    if isinstance(found, PagedFile):
        yield from page_documents(found, file=shown_path(path), document_id=name, title=title)
    elif found.text.strip() or found.title.strip():
        yield Document(name, Room().take(found.text), title, found.url, found.metadata)
    else:
        yield Skipped(shown_path(path), None, "empty", "holds no text")
    if encoding is not None and encoding.is_assumed:
        yield Assumed(shown_path(path), encoding.name)


def _content(path: Path) -> bytes:
    with path.open("rb") as file:
        content = file.read(_FIRST_BYTES)
        if len(content) == _FIRST_BYTES:  # a buffer for the greatest file would cost every small one some time
            content += file.read(MAX_FILE_BYTES + 1 - _FIRST_BYTES)
    if len(content) > MAX_FILE_BYTES:
        raise NoDocumentError("too-long", f"is longer than {MAX_FILE_BYTES} bytes")
    return content
