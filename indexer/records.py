"""JSON Lines to documents: one record a line, split on `\\n` only, in bounded memory.

    {"id": …, "text": …, "title"?: …, "url"?: …, "metadata"?: {…}, any other field: kept as metadata}

Other usual names of these fields serve as well, see `indexer.columns`. The encoding is UTF-8. A byte order mark,
`\\r\\n` and blank lines are no content. A line that is no document is reported with its true number and left out; so
is every later record of an id.
"""

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

import orjson

from indexer.columns import Ids, document_of, parts_of
from indexer.documents import Document, Skipped
from indexer.errors import NoDocumentError

MAX_LINE_BYTES = 16 << 20

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")


def read_json_lines(path: Path, *, max_line_bytes: int = MAX_LINE_BYTES) -> Iterator[Document | Skipped]:
    """Yield the documents of a `.jsonl` or `.jsonl.gz` file, and what is none, in order.

    Args:
        path: the file; one that ends in `.gz` is decompressed as it is read.
        max_line_bytes: longer lines are skipped; never more than this is held of one line.

    Raises:
        NoDocumentError: the file cannot be read or decompressed to its end, or is UTF-16.
    """
    ids = Ids("line")
    line = 0
    try:
        with opened(path) as file:
            for line, content in _lines(file, max_line_bytes):
                try:
                    document = _document(content, max_line_bytes)
                    if document is not None:
                        ids.require_new(document.document_id, line)
                        yield document
                except NoDocumentError as error:
                    yield error.skipped(str(path), line)
    except (OSError, EOFError, zlib.error) as error:
        raise cut_short(error, f"line {line}") from error


def opened(path: Path) -> BinaryIO:
    """Return the file, decompressed if its name ends in `.gz`."""
    return cast(BinaryIO, gzip.open(path, "rb")) if path.suffix.lower() == ".gz" else path.open("rb")


def cut_short(error: Exception, last: str) -> NoDocumentError:
    """Return what to say of a file that could be read only as far as its last line or row."""
    reason = getattr(error, "strerror", None) or " ".join(str(error).split()).rstrip(".")
    return NoDocumentError("unreadable", f"cannot be read after {last}: {reason}")


def _lines(file: BinaryIO, max_line_bytes: int) -> Iterator[tuple[int, bytes | None]]:
    """Yield each line's number and content without its end, None where it is too long."""
    line = 0
    while content := file.readline(max_line_bytes + 2):  # room for the line's end
        line += 1
        is_whole = content.endswith(b"\n") or len(content) < max_line_bytes + 2
        content = content.removesuffix(b"\n").removesuffix(b"\r")
        if line == 1:
            content = content.removeprefix(_BYTE_ORDER_MARK)
        if line == 1 and content.startswith(_UTF_16_MARKS):
            raise NoDocumentError("not-text", "is UTF-16; JSON Lines is read as UTF-8", line=1)
        yield line, content if is_whole and len(content) <= max_line_bytes else None
        while not is_whole:
            rest = file.readline(1 << 20)
            is_whole = rest.endswith(b"\n") or not rest


def _document(content: bytes | None, max_line_bytes: int) -> Document | None:
    """Return what a line holds, None if it is blank."""
    if content is None:
        raise NoDocumentError("too-long", f"longer than {max_line_bytes} bytes")
    if not content.strip():
        return None
    record = _record(content)
    return document_of(record, parts_of(record))


def _record(content: bytes) -> dict[str, object]:
    try:
        content.decode()
        record = orjson.loads(content)
    except UnicodeDecodeError as error:
        raise NoDocumentError("not-text", f"byte {error.start + 1} of the line is not UTF-8") from error
    except orjson.JSONDecodeError as error:
        raise NoDocumentError("bad-record", f"not JSON, at character {error.pos + 1}") from error
    if not isinstance(record, dict):
        raise NoDocumentError("bad-record", "not a JSON object")
    return record
