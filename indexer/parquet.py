"""Parquet to documents, one a row, a few rows in memory at a time; needs the extra `parquet`.

Times keep microseconds, as Python's do. A date that Python has no year for becomes text as well, and a time whose zone
nobody knows is that of UTC. A value that cannot be read costs its row, not the file.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from indexer.columns import Ids, document_of, parts_of, require_columns
from indexer.documents import Document, Skipped
from indexer.errors import NoDocumentError, installing

if TYPE_CHECKING:
    from pyarrow import Array, DataType, RecordBatch, Schema

_BATCH_ROWS = 16  # 2 us a row more than 256 cost; 4 rows cost 35 us more


def read_parquet(path: Path) -> Iterator[Document | Skipped]:
    """Yield the documents of a file, and what is none, in order; reasons name rows, which count from 1.

    Raises:
        NoDocumentError: the extra is missing, the file is damaged, it has no column for the id or the text, or two
            columns of one name.
        OSError: it cannot be opened.
    """
    ids = Ids("row")
    for row, record in enumerate(_records(path), 1):
        try:
            if isinstance(record, NoDocumentError):
                raise record
            document = document_of(record, parts_of(record))
            ids.require_new(document.document_id, row)
            yield document
        except NoDocumentError as error:
            yield Skipped(str(path), None, error.kind, f"row {row}: {error}")


def _records(path: Path) -> Iterator[dict[str, object] | NoDocumentError]:
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise NoDocumentError("missing-extra", f"needs the extra `parquet`: {installing('parquet')}") from error
    n_rows = 0
    with path.open("rb") as content:
        try:
            with ParquetFile(content, memory_map=False) as file:
                require_columns(file.schema_arrow.names)
                schema = _in_microseconds(file.schema_arrow)
                for batch in file.iter_batches(batch_size=_BATCH_ROWS):
                    yield from _rows(batch.cast(schema, safe=False))
                    n_rows += batch.num_rows
        except (ArrowException, OSError, ValueError) as error:
            raise NoDocumentError("damaged", f"is damaged, or no Parquet, after row {n_rows}") from error


def _in_microseconds(schema: "Schema") -> "Schema":
    """Return the schema without nanoseconds, which Python's times do not have."""
    import pyarrow

    def coarser(kind: "DataType") -> "DataType":
        if pyarrow.types.is_timestamp(kind) and kind.unit == "ns":
            return pyarrow.timestamp("us", kind.tz)
        if pyarrow.types.is_duration(kind) and kind.unit == "ns":
            return pyarrow.duration("us")
        return pyarrow.time64("us") if pyarrow.types.is_time64(kind) else kind

    return pyarrow.schema([(field.name, coarser(field.type)) for field in schema])


def _rows(batch: "RecordBatch") -> Sequence[dict[str, object] | NoDocumentError]:
    try:
        rows: list[dict[str, object]] = batch.to_pylist()
    except (ValueError, OverflowError, LookupError):  # the last for a zone; pyarrow's own are ValueErrors too
        return [_row(batch.slice(place, 1)) for place in range(batch.num_rows)]
    return rows


def _row(batch: "RecordBatch") -> dict[str, object] | NoDocumentError:
    """Return the only row of a batch, or what is wrong with it."""
    row: dict[str, object] = {}
    for number, (name, column) in enumerate(zip(batch.schema.names, batch.columns, strict=True), 1):
        try:
            row[name] = _value(column)
        except UnicodeDecodeError:
            return NoDocumentError("not-text", f"column {number} holds bytes that are no characters")
        except (ValueError, OverflowError, LookupError):
            return NoDocumentError("bad-record", f"column {number} holds a value that cannot be read")
    return row


def _value(column: "Array") -> object:
    """Return the only value of a column; a date or time that Python has none for as text, as in ISO 8601."""
    from pyarrow.types import is_date, is_timestamp

    try:
        return column.to_pylist()[0]
    except (ValueError, OverflowError, LookupError):
        if not (is_date(column.type) or is_timestamp(column.type)):
            raise
    moment = str(column.to_numpy(zero_copy_only=False)[0])
    if moment == "NaT":  # no time
        return None
    return f"{moment}+00:00" if is_timestamp(column.type) and column.type.tz is not None else moment
