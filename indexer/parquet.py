"""Parquet to documents, one a row, a batch of rows in memory at a time; needs the extra `parquet`."""

from collections.abc import Iterator
from pathlib import Path

from indexer.columns import Ids, document_of, parts_of, require_columns
from indexer.documents import Document, Skipped
from indexer.errors import NoDocumentError

_BATCH_ROWS = 256


def read_parquet(path: Path) -> Iterator[Document | Skipped]:
    """Yield the documents of a file, and what is none, in order; reasons name rows, which count from 1.

    Raises:
        NoDocumentError: the extra is missing, the file is damaged, or it has no column for the id or the text.
        OSError: it cannot be opened.
    """
    ids = Ids("row")
    for row, record in enumerate(_records(path), 1):
        try:
            document = document_of(record, parts_of(record))
            ids.require_new(document.document_id, row)
            yield document
        except NoDocumentError as error:
            yield Skipped(str(path), None, error.kind, f"row {row}: {error}")


def _records(path: Path) -> Iterator[dict[str, object]]:
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise NoDocumentError("missing-extra", "needs the extra `parquet`: install tercet[parquet]") from error
    n_rows = 0
    with path.open("rb") as content:
        try:
            with ParquetFile(content, memory_map=False) as file:
                require_columns(file.schema_arrow.names)
                for batch in file.iter_batches(batch_size=_BATCH_ROWS):
                    yield from batch.to_pylist()
                    n_rows += batch.num_rows
        except (ArrowException, OSError, ValueError) as error:
            raise NoDocumentError("damaged", f"is damaged, or no Parquet, after row {n_rows}") from error
