"""JSON Lines to documents: one record a line, split on `\\n` only, in bounded memory.

    {"id": …, "text": …, "title"?: …, "url"?: …, "metadata"?: {…}, any other field: kept as metadata}

`_id` serves as `id` (the layout of BEIR). A UTF-8 byte order mark, `\\r\\n` and blank lines are no content. A line that
is no document is reported with its true number and left out; so is every later record of an id.
"""

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

import orjson

from indexer.documents import BadRecord, Document, MetadataValue
from indexer.errors import SourceError

MAX_LINE_BYTES = 16 << 20

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_FIELDS = frozenset({"id", "_id", "text", "title", "url", "metadata"})


def read_json_lines(path: Path, *, max_line_bytes: int = MAX_LINE_BYTES) -> Iterator[Document | BadRecord]:
    """Yield the documents and bad records of a `.jsonl` or `.jsonl.gz` file, in order.

    Args:
        path: the file; one that ends in `.gz` is decompressed as it is read.
        max_line_bytes: longer lines are bad records; never more than this is held of one line.

    Raises:
        SourceError: the file cannot be read or decompressed.
    """
    seen: dict[str, int] = {}
    line = 0
    try:
        with _opened(path) as file:
            for line, content in _lines(file, max_line_bytes):
                record = _parse(content, path, line, max_line_bytes)
                if isinstance(record, Document) and record.document_id in seen:
                    record = BadRecord(str(path), line, f"repeats the id of line {seen[record.document_id]}")
                elif isinstance(record, Document):
                    seen[record.document_id] = line
                if record is not None:
                    yield record
    except (OSError, EOFError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SourceError(f"{path} cannot be read after line {line}: {reason}") from error


def _opened(path: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb")


def _lines(file: BinaryIO, max_line_bytes: int) -> Iterator[tuple[int, bytes | None]]:
    """Yield each line's number and content without its end, None where it is too long."""
    line = 0
    while content := file.readline(max_line_bytes + 2):  # room for the line's end
        line += 1
        is_whole = content.endswith(b"\n") or len(content) < max_line_bytes + 2
        content = content.removesuffix(b"\n").removesuffix(b"\r")
        if line == 1:
            content = content.removeprefix(_BYTE_ORDER_MARK)
        yield line, content if is_whole and len(content) <= max_line_bytes else None
        while not is_whole:
            rest = file.readline(1 << 20)
            is_whole = rest.endswith(b"\n") or not rest


def _parse(content: bytes | None, path: Path, line: int, max_line_bytes: int) -> Document | BadRecord | None:
    """Return what a line holds, None if it is blank."""
    try:
        if content is None:
            raise ValueError(f"longer than {max_line_bytes} bytes")
        return _document(_record(content)) if content.strip() else None
    except ValueError as error:
        return BadRecord(str(path), line, str(error))


def _record(content: bytes) -> dict[str, object]:
    try:
        content.decode()
        record = orjson.loads(content)
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start + 1} of the line is not UTF-8") from error
    except orjson.JSONDecodeError as error:
        raise ValueError(f"not JSON, at character {error.pos + 1}") from error
    if not isinstance(record, dict):
        raise ValueError("not a JSON object")
    return record


def _document(record: dict[str, object]) -> Document:
    document_id = record.get("id", record.get("_id"))
    if isinstance(document_id, int) and not isinstance(document_id, bool):
        document_id = str(document_id)
    if not isinstance(document_id, str) or not document_id.strip():
        raise ValueError('"id" (or "_id") must be a string that is not blank, or a whole number')
    text, title, url = record.get("text"), record.get("title"), record.get("url")
    if not isinstance(text, str):
        raise ValueError('"text" must be a string')
    if not (title is None or isinstance(title, str)):
        raise ValueError('"title" must be a string')
    if not (url is None or isinstance(url, str)):
        raise ValueError('"url" must be a string')
    own = record.get("metadata")
    if not (own is None or isinstance(own, dict)):
        raise ValueError('"metadata" must be an object')
    others = {name: value for name, value in record.items() if name not in _FIELDS}
    return Document(document_id, text, "" if title is None else title, url, flat_metadata({**others, **(own or {})}))


def flat_metadata(fields: dict[str, object]) -> dict[str, MetadataValue]:
    """Return fields as metadata: numbers, strings and booleans as they are, null left out, the rest as JSON text."""
    flat: dict[str, MetadataValue] = {}
    for name, value in fields.items():
        if isinstance(value, str | int | float | bool):
            flat[str(name)] = value
        elif value is not None:
            flat[str(name)] = orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
    return flat
