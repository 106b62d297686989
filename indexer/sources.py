"""Sources of documents: a folder or file of text, Markdown or HTML, JSON Lines, a BEIR folder, or `pydoc`.

What is no document is yielded as a `BadRecord` in its place, so that the caller decides whether to skip or to fail.
"""

import logging
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from indexer.documents import BadRecord, Document
from indexer.errors import SourceError
from indexer.markup import Extracted, read_html, read_markdown
from indexer.python_documentation import python_documentation
from indexer.records import read_json_lines
from indexer.sections import first_heading

PYTHON_DOCUMENTATION = "pydoc"
MAX_FILE_BYTES = 64 << 20

_TEXT, _MARKDOWN, _HTML = {".txt", ".text", ".rst"}, {".md", ".markdown"}, {".html", ".htm", ".xhtml"}
_JSON_LINES = (".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz")
_READABLE = _TEXT | _MARKDOWN | _HTML
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")

_log = logging.getLogger(__name__)


def read_documents(source: str) -> Iterator[Document | BadRecord]:
    """Yield the documents of a source, in an order that depends on its content only.

    Args:
        source: `pydoc` (the Python documentation of this interpreter), or a path: a JSON Lines file; a folder with a
            `corpus.jsonl` or `corpus.jsonl.gz` (BEIR), of which only that is read; any other folder, whose text,
            Markdown and HTML files are read at every depth, hidden ones and links to folders left out; or one such
            file. A file's id is its path from the folder, or its name.

    Raises:
        SourceError: nothing is there, nothing in it is of a kind that is read, or it cannot be read.
    """
    path = Path(source)
    if source == PYTHON_DOCUMENTATION:
        yield from python_documentation()
    elif path.is_dir():
        yield from _read_folder(path)
    elif path.is_file():
        yield from _read_single(path)
    else:
        raise SourceError(f"{source!r} is neither a file, nor a folder, nor {PYTHON_DOCUMENTATION!r}")


def _read_folder(folder: Path) -> Iterator[Document | BadRecord]:
    for name in ("corpus.jsonl", "corpus.jsonl.gz"):
        if (folder / name).is_file():
            yield from read_json_lines(folder / name)
            return
    skipped: Counter[str] = Counter()
    n_read = 0
    for path in _files(folder):
        if path.suffix.lower() in _READABLE:
            n_read += 1
            yield _read_file(path, path.relative_to(folder).as_posix())
        else:
            skipped[path.suffix.lower()] += 1
    if not n_read:
        raise SourceError(f"{folder} holds no file that ends in {', '.join(sorted(_READABLE))}")
    if skipped:
        _log.info("files of other kinds were left out", extra={"n_by_suffix": dict(skipped)})


def _files(folder: Path) -> Iterator[Path]:
    """Yield the regular files below a folder, sorted, hidden ones left out; a folder that refuses is an error."""

    def refuse(error: OSError) -> None:
        raise SourceError(f"{error.filename} cannot be read: {error.strerror}") from error

    for directory, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(directory, name)
            if not name.startswith(".") and path.is_file():
                yield path


def _read_single(path: Path) -> Iterator[Document | BadRecord]:
    if path.name.lower().endswith(_JSON_LINES):
        yield from read_json_lines(path)
    elif path.suffix.lower() in _READABLE:
        yield _read_file(path, path.name)
    else:
        known = ", ".join(sorted({*_READABLE, *_JSON_LINES}))
        raise SourceError(f"{path} is of no kind that is read; known are {known}")


def _read_file(path: Path, document_id: str) -> Document | BadRecord:
    shown = os.fsencode(path).decode("utf-8", "backslashreplace")
    try:
        document_id.encode()
        if path.stat().st_size > MAX_FILE_BYTES:
            return BadRecord(shown, None, f"has {path.stat().st_size} bytes; at most {MAX_FILE_BYTES} are read")
        extracted = _extract(path.read_bytes(), path.suffix.lower())
    except UnicodeEncodeError:
        return BadRecord(shown, None, "its name is not UTF-8")
    except _NotTextError as error:
        return BadRecord(shown, error.line, str(error))
    except OSError as error:
        return BadRecord(shown, None, f"cannot be read: {error.strerror}")
    title = extracted.title if extracted.title.strip() else path.stem
    return Document(document_id, extracted.text, title, metadata=extracted.metadata)


class _NotTextError(ValueError):
    def __init__(self, line: int | None, reason: str) -> None:
        super().__init__(reason)
        self.line = line


def _extract(content: bytes, suffix: str) -> Extracted:
    if suffix in _HTML:
        return read_html(content)
    text = _decode(content)
    return read_markdown(text) if suffix in _MARKDOWN else Extracted(text, first_heading(text))


def _decode(content: bytes) -> str:
    """Return the text of UTF-8 bytes, or of UTF-16 ones with a byte order mark; line ends stay as they are."""
    encoding = "utf-16" if content.startswith(_UTF16_MARKS) else "utf-8-sig"
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _NotTextError(
            line, f"byte {error.start + 1} of the file is not {encoding.removesuffix('-sig')}"
        ) from error
    if "\0" in text:
        raise _NotTextError(text.count("\n", 0, text.index("\0")) + 1, "holds a NUL character, so it is not text")
    return text
