"""CSV and TSV to documents: the first record names the columns, every later one is a document (RFC 4180).

The name decides what separates fields: a tab in `.tsv` and `.tab`, a comma in `.csv`. In all of them a field in double
quotes may hold separators, line ends and doubled quotes. Lines end at `\\n` only, so U+2028 and U+0085 stay in their
field; `\\r\\n` is kept inside quotes. A column that is no part of a document has the narrowest type that fits all of
its cells, which a first pass over the file finds out: whole number, number, boolean, else text.
"""

import csv
import io
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TextIO, TypeAlias

from indexer.columns import Ids, document_of, parts_of, require_columns
from indexer.documents import INT64, Assumed, MetadataValue, SourceRecord
from indexer.encodings import Encoding, encoding_of
from indexer.errors import NoDocumentError
from indexer.records import cut_short, opened

MAX_RECORD_CHARACTERS = 16 << 20

CellType: TypeAlias = Literal["integer", "float", "boolean", "text"]

_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]{0,18})")  # a leading zero is part of a code, such as that of a town
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,2})?")
_BOOLEANS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class _Table:
    path: Path
    encoding: Encoding
    max_characters: int

    @property
    def delimiter(self) -> str:
        return "\t" if {".tsv", ".tab"} & {suffix.lower() for suffix in self.path.suffixes[-2:]} else ","


_Row: TypeAlias = "list[str] | NoDocumentError"


def read_table(path: Path, *, max_record_characters: int = MAX_RECORD_CHARACTERS) -> Iterator[SourceRecord]:
    """Yield the documents of a `.csv`, `.tsv` or `.tab` file, or of such a file in `.gz`, and what is none, in order.

    Args:
        path: the file; in an encoding that is guessed, it is followed by an `Assumed`.
        max_record_characters: longer records are skipped; never more than this is held of one.

    Raises:
        NoDocumentError: the file cannot be read to its end, or has no column for the id or the text.
    """
    with opened(path) as file:
        try:
            encoding = encoding_of(file)
        except (OSError, EOFError, zlib.error) as error:
            raise cut_short(error, "line 0") from error
    table = _Table(path, encoding, max_record_characters)
    rows = _rows(table)
    header = next(rows, None)
    if header is not None:
        line, names = header
        yield from _documents(table, _columns(names, line), rows)
    if encoding.is_assumed:
        yield Assumed(str(path), encoding.name)


def _columns(names: _Row, line: int) -> list[str]:
    """Return the names of the columns; one without a name gets the name of its place, such as `column_1`."""
    if isinstance(names, NoDocumentError):
        raise names
    try:
        named = [name.strip() or f"column_{number}" for number, name in enumerate(_checked(names, len(names)), 1)]
        require_columns(named)
    except NoDocumentError as error:
        raise NoDocumentError(error.kind, str(error), line=line) from error
    return named


def _documents(table: _Table, names: Sequence[str], rows: Iterator[tuple[int, _Row]]) -> Iterator[SourceRecord]:
    parts, ids = parts_of(names), Ids("line")
    others = [name for name in names if name not in parts.values()]
    types = _column_types(table, names, others)
    for line, row in rows:
        try:
            cells: dict[str, object] = dict(zip(names, _checked(row, len(names)), strict=True))
            document = document_of(cells | {name: typed(str(cells[name]), types[name]) for name in others}, parts)
            ids.require_new(document.document_id, line)
            yield document
        except NoDocumentError as error:
            yield error.skipped(str(table.path), line)


def _checked(row: _Row, n_columns: int) -> list[str]:
    """Return a row that has what its header promises and is text."""
    if isinstance(row, NoDocumentError):
        raise row
    if len(row) != n_columns:
        raise NoDocumentError("bad-record", f"has {len(row)} fields; the header has {n_columns}")
    joined = "".join(row)
    if "\0" in joined:
        raise NoDocumentError("not-text", "holds a NUL character, so it is not text")
    try:
        joined.encode()
    except UnicodeEncodeError as error:
        raise NoDocumentError("not-text", "holds bytes that are no characters in the encoding of the file") from error
    return row


def _column_types(table: _Table, names: Sequence[str], others: Sequence[str]) -> dict[str, CellType]:
    """Return the type of each of the other columns, from all of its cells that are not empty."""
    found: dict[str, CellType | None] = dict.fromkeys(others)
    rows = _rows(table)
    next(rows, None)
    for _, row in rows:
        if not isinstance(row, NoDocumentError) and len(row) == len(names):
            for name, cell in zip(names, row, strict=True):
                if name in found and found[name] != "text" and cell:
                    found[name] = _wider(found[name], cell_type(cell))
    return {name: "text" if cells is None else cells for name, cells in found.items()}


def cell_type(cell: str) -> CellType:
    """Return the narrowest type of a cell that is not empty."""
    if _WHOLE.fullmatch(cell) and int(cell) in INT64:
        return "integer"
    if _NUMBER.fullmatch(cell):
        return "float"
    return "boolean" if cell.lower() in _BOOLEANS else "text"


def _wider(left: CellType | None, right: CellType) -> CellType:
    if left is None or left == right:
        return right
    return "float" if {left, right} == {"integer", "float"} else "text"


def typed(cell: str, as_type: CellType) -> MetadataValue | None:
    """Return a cell as a value of its column's type, None where it is empty.

    Raises:
        NoDocumentError: it is of no such type, which the first pass would have seen.
    """
    if not cell or as_type == "text":
        return cell or None
    try:
        if as_type == "boolean":
            return _BOOLEANS[cell.lower()]
        return int(cell) if as_type == "integer" else float(cell)
    except (ValueError, KeyError) as error:
        raise NoDocumentError("unreadable", "changed while the file was read") from error


class _TooLongError(Exception):
    """A record is longer than is read."""


class _Lines:
    """Lines for `csv.reader`; number counts them, and more than max_characters a record are not given."""

    def __init__(self, file: TextIO, max_characters: int) -> None:
        self.number = 0
        self._file, self._max_characters, self._left = file, max_characters, max_characters

    def begin_record(self) -> int:
        """Return the number of the next line."""
        self._left = self._max_characters
        return self.number + 1

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        line = self._file.readline(self._left + 1)
        if not line:
            raise StopIteration
        self.number += 1
        self._left -= len(line)
        if self._left < 0:
            while line and not line.endswith("\n"):
                line = self._file.readline(1 << 20)
            raise _TooLongError
        return line


def _rows(table: _Table) -> Iterator[tuple[int, _Row]]:
    """Yield the records, blank lines left out, with the number of the line that each begins in."""
    # The limit belongs to the process, not to a reader; 128 KiB, its default, is less than many a text.
    csv.field_size_limit(max(csv.field_size_limit(), table.max_characters))
    errors = "surrogatepass" if table.encoding.name.startswith(("utf-16", "utf-32")) else "surrogateescape"
    with opened(table.path) as file:
        text = io.TextIOWrapper(file, table.encoding.name, errors=errors, newline="\n")
        lines = _Lines(text, table.max_characters)
        reader = csv.reader(lines, delimiter=table.delimiter, strict=True)
        while True:
            first = lines.begin_record()
            try:
                row: _Row = next(reader)
            except StopIteration:
                return
            except (_TooLongError, csv.Error) as error:
                row = _fault(error, first, lines.number, table.max_characters)
            except UnicodeDecodeError as error:
                raise NoDocumentError("not-text", f"is not {table.encoding.name} throughout", line=first) from error
            except (OSError, EOFError, zlib.error) as error:
                raise cut_short(error, f"line {lines.number}") from error
            if row:
                yield first, row


def _fault(error: Exception, first: int, last: int, max_characters: int) -> NoDocumentError:
    """Return what is wrong with the lines from the first to the last, all of which are lost."""
    lost = f"; lines {first} to {last} are lost" if last > first else ""
    if isinstance(error, _TooLongError):
        reason = f"longer than {max_characters} characters, or has a quote that is not closed{lost}"
        return NoDocumentError("too-long", reason)
    if "new-line" in str(error):
        return NoDocumentError("bad-record", f"has a carriage return that is neither in quotes nor at its end{lost}")
    if "unexpected end" in str(error):
        return NoDocumentError("bad-record", f"has a quote that is not closed{lost}")
    return NoDocumentError("bad-record", f"has text after a closing quote{lost}")
