"""Metadata as columns over documents, for filters and facets, memory-mapped. `indexer/metadata_writer.py` writes it.

A field is a name of documents' metadata, or a built-in: `document_id`, `title` and `url`, where they are not empty; a
built-in hides metadata of its name. A field has a column for each kind of value in it: booleans, numbers, texts.

fields.json             the fields by name, and where the values of each column lie
passage_documents.npy   (n_passages,) int32, the document of each passage
rows.npy                int32, the documents that have a value, ascending, column by column; a column that has one for
                        every document leaves them out
booleans.npy, integers.npy, floats.npy, codes.npy    the values in the order of those documents
texts.bin, text_ends.npy    the distinct texts of each text column, sorted; a code is a text's number among them

Numbers are int64 where all of a field are whole and fit, otherwise all of the field are float64.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from indexer.documents import MetadataValue
from indexer.errors import SnapshotError
from indexer.mapped import SortedTexts, mapped_array, mapped_bytes
from indexer.ranking import Mask, Rows

Kind: TypeAlias = Literal["boolean", "number", "text"]
Storage: TypeAlias = Literal["boolean", "integer", "float", "text"]

FIELDS_FILE, PASSAGE_DOCUMENTS_FILE, ROWS_FILE = "fields.json", "passage_documents.npy", "rows.npy"
TEXTS_FILE, TEXT_ENDS_FILE = "texts.bin", "text_ends.npy"
VALUES_FILES: Mapping[Storage, str] = {
    "boolean": "booleans.npy",
    "integer": "integers.npy",
    "float": "floats.npy",
    "text": "codes.npy",
}
METADATA_FILES = (
    FIELDS_FILE,
    PASSAGE_DOCUMENTS_FILE,
    ROWS_FILE,
    TEXTS_FILE,
    TEXT_ENDS_FILE,
    *VALUES_FILES.values(),
)

_Scalar = TypeVar("_Scalar", bound=np.generic)
_Scalar_co = TypeVar("_Scalar_co", bound=np.generic, covariant=True)


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ColumnRecord(_Frozen):
    """Where a column lies: its values from `start` in the file of its storage, its documents from `rows_start`."""

    storage: Storage
    n_documents: int = Field(ge=0, description="documents that have a value of this kind")
    n_texts: int = Field(default=0, ge=0, description="distinct texts")
    start: int = Field(ge=0)
    rows_start: int | None = Field(ge=0, description="null: every document has a value")
    texts_start: int = Field(default=0, ge=0)

    @property
    def kind(self) -> Kind:
        """Return the kind of values that these compare with."""
        return "number" if self.storage == "integer" or self.storage == "float" else self.storage


class FieldRecord(_Frozen):
    """A field, with one column for each kind of value in it."""

    name: str
    columns: list[ColumnRecord]


class FieldTable(_Frozen):
    """The content of fields.json, sorted by name."""

    fields: list[FieldRecord]


@dataclass(frozen=True, slots=True, eq=False)
class Column(Generic[_Scalar_co]):
    """Values (n,) of one kind and their documents (n,), ascending, or None for every document."""

    values: NDArray[_Scalar_co]
    documents: NDArray[np.int32] | None


@dataclass(frozen=True, slots=True, eq=False)
class TextColumn(Column[np.int32]):
    """A column of texts: a value is a text's number in `texts`."""

    texts: SortedTexts


def kind_of(value: MetadataValue) -> Kind:
    """Return the kind of a value; a boolean is no number."""
    if isinstance(value, bool):
        return "boolean"
    return "text" if isinstance(value, str) else "number"


def as_float(number: int | float) -> float:
    """Return a number as a double, infinite where it is beyond the largest."""
    try:
        return float(number)
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")


class Metadata:
    """Written columns, memory-mapped; thread-safe."""

    def __init__(self, folder: Path, *, n_documents: int) -> None:
        """Open what was written for n_documents documents.

        Raises:
            SnapshotError: the list of fields cannot be read.
        """
        try:
            table = FieldTable.model_validate_json((folder / FIELDS_FILE).read_bytes())
        except ValidationError as error:
            raise SnapshotError(f"{folder / FIELDS_FILE} is not a list of fields") from error
        self.n_documents = n_documents
        self.fields: Mapping[str, FieldRecord] = {record.name: record for record in table.fields}
        self._passage_documents = mapped_array(folder / PASSAGE_DOCUMENTS_FILE, np.int32)
        self.n_passages = int(self._passage_documents.size)
        self._rows = mapped_array(folder / ROWS_FILE, np.int32)
        self._booleans = mapped_array(folder / VALUES_FILES["boolean"], np.bool_)
        self._integers = mapped_array(folder / VALUES_FILES["integer"], np.int64)
        self._floats = mapped_array(folder / VALUES_FILES["float"], np.float64)
        self._codes = mapped_array(folder / VALUES_FILES["text"], np.int32)
        self._texts = mapped_bytes(folder / TEXTS_FILE)
        self._text_ends = mapped_array(folder / TEXT_ENDS_FILE, np.int64)

    def kinds(self, field: str) -> set[Kind]:
        """Return the kinds of value in a field; none if no document has the field."""
        record = self.fields.get(field)
        return {column.kind for column in record.columns} if record is not None else set()

    def booleans(self, field: str) -> Column[np.bool_] | None:
        """Return the booleans of a field, None if it has none."""
        record = self._record(field, "boolean")
        return None if record is None else self._column(record, self._booleans)

    def integers(self, field: str) -> Column[np.int64] | None:
        """Return the numbers of a field, None if it has none or not all are whole."""
        record = self._record(field, "integer")
        return None if record is None else self._column(record, self._integers)

    def floats(self, field: str) -> Column[np.float64] | None:
        """Return the numbers of a field, None if it has none or all are whole."""
        record = self._record(field, "float")
        return None if record is None else self._column(record, self._floats)

    def texts(self, field: str) -> TextColumn | None:
        """Return the texts of a field, None if it has none."""
        record = self._record(field, "text")
        if record is None:
            return None
        codes = self._column(record, self._codes)
        numbers = range(record.texts_start, record.texts_start + record.n_texts)
        return TextColumn(codes.values, codes.documents, SortedTexts(self._texts, self._text_ends, numbers=numbers))

    def _record(self, field: str, storage: Storage) -> ColumnRecord | None:
        record = self.fields.get(field)
        columns = record.columns if record is not None else []
        return next((column for column in columns if column.storage == storage), None)

    def _column(self, record: ColumnRecord, values: NDArray[_Scalar]) -> Column[_Scalar]:
        start, rows_start, n = record.start, record.rows_start, record.n_documents
        return Column(
            np.asarray(values[start : start + n]),
            None if rows_start is None else np.asarray(self._rows[rows_start : rows_start + n]),
        )

    def of_documents(self, documents: Mask) -> Mask:
        """Return which passages (n_passages,) are of the given documents (n_documents,)."""
        return documents.take(self._passage_documents)

    def documents_of(self, passages: Rows) -> Rows:
        """Return the number of the document of each passage, both (n,) and counted from 0 in order of row."""
        numbers: Rows = self._passage_documents[passages].astype(np.int64)
        return numbers

    def of_passages(self, passages: Mask) -> Mask:
        """Return which documents (n_documents,) at least one of the given passages (n_passages,) is of."""
        documents = np.zeros(self.n_documents, np.bool_)
        documents[self._passage_documents[passages]] = True
        return documents
