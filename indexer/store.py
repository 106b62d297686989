"""The document store: one SQLite file with documents and passages, written once, then opened read-only and immutable.

A passage's text is stored beside its document's: reading ten passages never reads ten whole documents. Rows of both
tables count from 0 in the order of document_id, then ordinal; the order is that of UTF-8 bytes, which is Python's.
"""

import json
import sqlite3
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from indexer.documents import Document, Metadata, Passage
from indexer.ranking import Rows

_SCHEMA = """
CREATE TABLE documents (
    row INTEGER PRIMARY KEY, document_id TEXT NOT NULL UNIQUE, title TEXT NOT NULL, url TEXT, metadata TEXT NOT NULL,
    text TEXT NOT NULL);
CREATE TABLE passages (
    row INTEGER PRIMARY KEY, document INTEGER NOT NULL, ordinal INTEGER NOT NULL, start INTEGER NOT NULL,
    "end" INTEGER NOT NULL, heading TEXT NOT NULL, text TEXT NOT NULL);
"""
_MAPPED_BYTES = 1 << 40  # SQLite lowers it to what the platform allows
_ROWS_A_QUERY = 500


@dataclass(frozen=True, slots=True)
class StoredPassage:
    """A passage with what is needed to show it; text is the slice [start, end) of the document's text."""

    row: int
    passage_id: str
    document_id: str
    title: str
    url: str | None
    metadata: Metadata
    text: str
    start: int
    end: int
    heading: str


class StoreWriter:
    """Writes a new store; documents and their passages arrive in order. The same calls give the same bytes."""

    def __init__(self, path: Path) -> None:
        """Create the file."""
        self._connection = sqlite3.connect(path, isolation_level=None)
        # The folder is thrown away if anything fails, so a journal would only be written for nothing.
        self._connection.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA page_size = 8192;")
        self._connection.executescript(_SCHEMA + "BEGIN;")
        self.n_documents = 0
        self.n_passages = 0

    def add(self, document: Document, passages: Sequence[Passage]) -> None:
        """Add one document with its passages."""
        self._connection.execute(
            "INSERT INTO documents VALUES (?, ?, ?, ?, ?, ?)", (self.n_documents, *document_columns(document))
        )
        self._connection.executemany(
            "INSERT INTO passages VALUES (?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    self.n_passages + i,
                    self.n_documents,
                    passage.ordinal,
                    passage.start,
                    passage.end,
                    passage.heading,
                    document.text[passage.start : passage.end],
                )
                for i, passage in enumerate(passages)
            ],
        )
        self.n_documents += 1
        self.n_passages += len(passages)

    def finish(self) -> None:
        """Write what is outstanding."""
        self._connection.execute("COMMIT")

    def close(self) -> None:
        """Close the file; without `finish` before, it is incomplete."""
        self._connection.close()


class Store:
    """An opened store; any number of threads may read at once, each with a connection of its own for the while."""

    def __init__(self, path: Path) -> None:
        """Open the file."""
        self._uri = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
        self._idle: deque[sqlite3.Connection] = deque()
        self._is_closed = False
        with self._connection() as connection:
            self.n_documents = _n_rows(connection, "documents")
            self.n_passages = _n_rows(connection, "passages")

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = sqlite3.connect(self._uri, uri=True, check_same_thread=False, isolation_level=None)
            connection.execute(f"PRAGMA mmap_size = {_MAPPED_BYTES}")
        try:
            yield connection
        finally:
            self._idle.append(connection)
            if self._is_closed:
                self.close()

    def passages(self, rows: Rows) -> list[StoredPassage]:
        """Return the passages of the given rows, in the given order.

        Raises:
            KeyError: a row is not in [0, n_passages).
        """
        found: dict[int, StoredPassage] = {}
        wanted = sorted({int(row) for row in rows})
        with self._connection() as connection:
            for start in range(0, len(wanted), _ROWS_A_QUERY):
                found.update(_select_passages(connection, wanted[start : start + _ROWS_A_QUERY]))
        return [found[int(row)] for row in rows]

    def document(self, document_id: str) -> Document | None:
        """Return a document, or None if there is none of that id."""
        with self._connection() as connection:
            row = connection.execute(
                "SELECT document_id, title, url, metadata, text FROM documents WHERE document_id = ?",
                (document_id.encode("utf-8", "replace").decode(),),
            ).fetchone()
        return None if row is None else document_from_columns(row)

    def passage_batches(self, size: int) -> Iterator[list[StoredPassage]]:
        """Yield all passages in order of row, size at a time."""
        with self._connection() as connection:
            for start in range(0, self.n_passages, size):
                rows = list(range(start, min(start + size, self.n_passages)))
                found = _select_range(connection, rows[0], rows[-1])
                yield [found[row] for row in rows]

    def close(self) -> None:
        """Close the idle connections; those in use close when they come back."""
        self._is_closed = True
        while self._idle:
            self._idle.pop().close()


def _n_rows(connection: sqlite3.Connection, table: str) -> int:
    """Return how many rows a table has: they count from 0, so the last one tells, while a count reads every page."""
    (n_rows,) = connection.execute(f"SELECT coalesce(max(row) + 1, 0) FROM {table}").fetchone()  # noqa: S608
    return int(n_rows)


_PASSAGE_COLUMNS = """
    SELECT passages.row, document_id, ordinal, title, url, metadata, passages.text, start, "end", heading
    FROM passages JOIN documents ON documents.row = passages.document
"""


def _select_passages(connection: sqlite3.Connection, rows: Sequence[int]) -> dict[int, StoredPassage]:
    marks = ", ".join("?" * len(rows))
    return _collect(connection.execute(f"{_PASSAGE_COLUMNS} WHERE passages.row IN ({marks})", rows))


def _select_range(connection: sqlite3.Connection, first: int, last: int) -> dict[int, StoredPassage]:
    return _collect(connection.execute(f"{_PASSAGE_COLUMNS} WHERE passages.row BETWEEN ? AND ?", (first, last)))


def _collect(cursor: sqlite3.Cursor) -> dict[int, StoredPassage]:
    return {
        row: StoredPassage(
            row, f"{document_id}#{ordinal}", document_id, title, url, json.loads(metadata), text, start, end, heading
        )
        for row, document_id, ordinal, title, url, metadata, text, start, end, heading in cursor
    }


def document_columns(document: Document) -> tuple[str, str, str | None, str, str]:
    """Return a document as the columns document_id, title, url, metadata (JSON), text."""
    metadata = json.dumps(dict(document.metadata), ensure_ascii=False, sort_keys=True, allow_nan=False)
    return document.document_id, document.title, document.url, metadata, document.text


def document_from_columns(row: tuple[str, str, str | None, str, str]) -> Document:
    """Return the document that `document_columns` gave the columns of."""
    document_id, title, url, metadata, text = row
    return Document(document_id, text, title, url, json.loads(metadata))
