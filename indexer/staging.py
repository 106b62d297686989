"""Holds the documents of a build on disk until all are read, then gives them back in order of their id.

That order is what makes a build independent of the order of its source, in bounded memory.
"""

import sqlite3
from collections.abc import Collection, Iterator
from pathlib import Path

from indexer.documents import Document
from indexer.errors import BuildError
from indexer.store import document_columns, document_from_columns


class DocumentStage:
    """A scratch file of documents; the first of those that share an id is kept."""

    def __init__(self, path: Path) -> None:
        """Create the file."""
        self._connection = sqlite3.connect(path.absolute().as_uri(), uri=True, isolation_level=None)
        self._connection.executescript(
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;"
            "CREATE TABLE documents (document_id TEXT PRIMARY KEY, title, url, metadata, text); BEGIN;"
        )
        self.n_documents = 0

    def add(self, document: Document) -> bool:
        """Add a document; return False, and change nothing, if one of its id is there already.

        Raises:
            BuildError: the document cannot be stored as it is; says why.
        """
        if not document.document_id:
            raise BuildError(f"document number {self.n_documents + 1} has an empty id")
        try:
            columns = document_columns(document)
            cursor = self._connection.execute("INSERT OR IGNORE INTO documents VALUES (?, ?, ?, ?, ?)", columns)
        except UnicodeEncodeError as error:
            name = document.document_id.encode("utf-8", "backslashreplace").decode()
            raise BuildError(f"document {name!r} holds a lone surrogate, which UTF-8 cannot carry") from error
        except ValueError as error:
            raise BuildError(f"the metadata of document {document.document_id!r} is not JSON: {error}") from error
        self.n_documents += cursor.rowcount
        return cursor.rowcount == 1

    def add_stored(self, store: Path, deleted_ids: Collection[str]) -> int:
        """Add the documents of a store, but for the deleted ones and those whose id is there already.

        Returns:
            How many of the deleted ones the store holds.
        """
        self._attach(store)
        self._connection.execute("CREATE TEMP TABLE deleted (document_id TEXT PRIMARY KEY)")
        ids = ((each.encode("utf-8", "replace").decode(),) for each in deleted_ids)
        self._connection.executemany("INSERT OR IGNORE INTO deleted VALUES (?)", ids)
        cursor = self._connection.execute(
            "INSERT OR IGNORE INTO documents SELECT document_id, title, url, metadata, text FROM stored.documents"
            " WHERE document_id NOT IN (SELECT document_id FROM deleted)"
        )
        self.n_documents += cursor.rowcount
        found = "SELECT count(*) FROM stored.documents WHERE document_id IN (SELECT document_id FROM deleted)"
        (n_deleted,) = self._connection.execute(found).fetchone()
        return int(n_deleted)

    def gone(self, store: Path, most: int) -> tuple[int, list[str]]:
        """Return how many documents of a store are not there, and the ids of the first of them, at most so many."""
        self._attach(store)
        gone = "FROM stored.documents WHERE document_id NOT IN (SELECT document_id FROM main.documents)"
        (n_gone,) = self._connection.execute(f"SELECT count(*) {gone}").fetchone()
        first = self._connection.execute(f"SELECT document_id {gone} ORDER BY document_id LIMIT ?", (most,))
        return int(n_gone), [document_id for (document_id,) in first]

    def _attach(self, store: Path) -> None:
        """Give the other methods the tables of a store, as `stored`."""
        self._connection.execute("COMMIT")  # no database is attached within a transaction
        self._connection.execute("ATTACH ? AS stored", (f"{store.absolute().as_uri()}?mode=ro&immutable=1",))
        self._connection.execute("BEGIN")

    def in_order(self) -> Iterator[Document]:
        """Yield the documents by id, in the order of code points."""
        cursor = self._connection.execute(
            "SELECT document_id, title, url, metadata, text FROM documents ORDER BY document_id"
        )
        yield from map(document_from_columns, cursor)

    def close(self) -> None:
        """Close the file, which is of no more use."""
        self._connection.close()
