"""Write the columns of `indexer/metadata.py`: one pass over the documents, texts sorted on disk."""

import sqlite3
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from indexer.documents import INT64, Document
from indexer.mapped import save_joined
from indexer.metadata import (
    FIELDS_FILE,
    PASSAGE_DOCUMENTS_FILE,
    ROWS_FILE,
    TEXT_ENDS_FILE,
    TEXTS_FILE,
    VALUES_FILES,
    ColumnRecord,
    FieldRecord,
    FieldTable,
    Storage,
    as_float,
)

_SCALARS: Mapping[Storage, type[np.generic]] = {
    "boolean": np.bool_,
    "integer": np.int64,
    "float": np.float64,
    "text": np.int32,
}


@dataclass(slots=True)
class _Booleans:
    documents: "array[int]" = field(default_factory=lambda: array("i"))
    values: "array[int]" = field(default_factory=lambda: array("b"))


@dataclass(slots=True)
class _Numbers:
    """Whole numbers until one comes that is not whole or does not fit."""

    documents: "array[int]" = field(default_factory=lambda: array("i"))
    integers: "array[int]" = field(default_factory=lambda: array("q"))
    floats: "array[float] | None" = None

    def add(self, document: int, number: int | float) -> None:
        self.documents.append(document)
        if self.floats is None and isinstance(number, int) and number in INT64:
            self.integers.append(number)
            return
        if self.floats is None:
            self.floats = array("d", self.integers)
            self.integers = array("q")
        self.floats.append(as_float(number))


class MetadataBuilder:
    """Collects the fields of documents in order, then writes their columns.

    Texts wait in a scratch file. Memory holds 12 bytes a number, 5 a boolean and 4 a passage, and while it writes 8
    more a text, and 12 for each document of one field.
    """

    def __init__(self, scratch: Path) -> None:
        """Create the scratch file, which `close` removes."""
        self._scratch = scratch
        self._connection = sqlite3.connect(scratch, isolation_level=None)
        self._connection.executescript(  # the key is the order of reading, so nothing is left to sort
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;"
            "CREATE TABLE texts (field INTEGER, text BLOB, document INTEGER, PRIMARY KEY (field, text, document))"
            " WITHOUT ROWID; BEGIN;"
        )
        self._field_numbers: dict[str, int] = {}
        self._booleans: dict[str, _Booleans] = {}
        self._numbers: dict[str, _Numbers] = {}
        self._passage_documents = array("i")
        self._n_documents = 0

    def add(self, document: Document, n_passages: int) -> None:
        """Add the next document, from which n_passages were cut."""
        texts = []
        for name, value in {**document.metadata, **_built_in(document)}.items():
            number = self._field_numbers.setdefault(name, len(self._field_numbers))
            if isinstance(value, str):
                texts.append((number, value.encode(), self._n_documents))
            elif isinstance(value, bool):
                booleans = self._booleans.setdefault(name, _Booleans())
                booleans.documents.append(self._n_documents)
                booleans.values.append(value)
            else:
                self._numbers.setdefault(name, _Numbers()).add(self._n_documents, value)
        self._connection.executemany("INSERT INTO texts VALUES (?, ?, ?)", texts)
        self._passage_documents.extend(repeat(self._n_documents, n_passages))
        self._n_documents += 1

    def write(self, folder: Path) -> None:
        """Write the columns into a new folder; the same documents give the same bytes."""
        folder.mkdir()
        with (folder / TEXTS_FILE).open("wb") as content:
            writer = _ColumnWriter(self._n_documents, content)
            names = sorted(self._field_numbers)
            fields = [FieldRecord(name=name, columns=list(self._columns(name, writer))) for name in names]
        writer.finish(folder)
        save_joined(folder / PASSAGE_DOCUMENTS_FILE, [np.frombuffer(self._passage_documents, np.intc)], np.int32)
        (folder / FIELDS_FILE).write_text(FieldTable(fields=fields).model_dump_json() + "\n", encoding="utf-8")

    def _columns(self, name: str, writer: "_ColumnWriter") -> Iterator[ColumnRecord]:
        if (booleans := self._booleans.get(name)) is not None:
            yield writer.add("boolean", _array(booleans.documents), _array(booleans.values))
        if (numbers := self._numbers.get(name)) is not None and numbers.floats is None:
            yield writer.add("integer", _array(numbers.documents), _array(numbers.integers))
        elif numbers is not None and numbers.floats is not None:
            yield writer.add("float", _array(numbers.documents), _array(numbers.floats))
        select = "SELECT text, document FROM texts WHERE field = ? ORDER BY text, document"
        texts = writer.add_texts(self._connection.execute(select, (self._field_numbers[name],)))
        if texts is not None:
            yield texts

    def close(self) -> None:
        """Remove the scratch file."""
        self._connection.close()
        self._scratch.unlink(missing_ok=True)


def _built_in(document: Document) -> dict[str, str]:
    fields = {"document_id": document.document_id, "title": document.title, "url": document.url}
    return {name: value for name, value in fields.items() if value}


def _array(values: "array[int] | array[float]") -> NDArray[np.generic]:
    return np.array(values)


class _ColumnWriter:
    """Places columns one behind the other in the files that they share."""

    def __init__(self, n_documents: int, content: BinaryIO) -> None:
        self._n_documents, self._content = n_documents, content
        self._rows: list[NDArray[np.generic]] = []
        self._values: dict[Storage, list[NDArray[np.generic]]] = {storage: [] for storage in VALUES_FILES}
        self._n_rows, self._n_values = 0, dict.fromkeys(VALUES_FILES, 0)
        self._text_ends = array("q")

    def add(
        self, storage: Storage, documents: NDArray[np.generic], values: NDArray[np.generic], *, n_texts: int = 0
    ) -> ColumnRecord:
        """Add a column; the last n_texts texts are its own."""
        is_full = documents.size == self._n_documents
        record = ColumnRecord(
            storage=storage,
            n_documents=documents.size,
            n_texts=n_texts,
            start=self._n_values[storage],
            rows_start=None if is_full else self._n_rows,
            texts_start=len(self._text_ends) - n_texts if n_texts else 0,
        )
        self._values[storage].append(values.astype(_SCALARS[storage]))
        self._n_values[storage] += values.size
        if not is_full:
            self._rows.append(documents)
            self._n_rows += documents.size
        return record

    def add_texts(self, sorted_texts: Iterator[tuple[bytes, int]]) -> ColumnRecord | None:
        """Add a column of texts and their documents, None if there are none."""
        documents, codes = array("i"), array("i")
        n_texts, last = 0, None
        for text, document in sorted_texts:
            if text != last:
                self._content.write(text)
                self._text_ends.append(self._content.tell())
                n_texts, last = n_texts + 1, text
            documents.append(document)
            codes.append(n_texts - 1)
        if not documents:
            return None
        order = np.argsort(_array(documents))
        return self.add("text", _array(documents)[order], _array(codes)[order], n_texts=n_texts)

    def finish(self, folder: Path) -> None:
        save_joined(folder / ROWS_FILE, self._rows, np.int32)
        save_joined(folder / TEXT_ENDS_FILE, [_array(self._text_ends)], np.int64)
        for storage, name in VALUES_FILES.items():
            save_joined(folder / name, self._values[storage], _SCALARS[storage])
