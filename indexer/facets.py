"""Facets: how many of the given documents have which value of a field."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from indexer.documents import MetadataValue
from indexer.metadata import Column, Metadata
from indexer.ranking import Mask, best_rows

MAX_CHARACTERS = 1_000  # of a value that is given; longer ones are texts of their own, which nobody chooses from

_Scalar = TypeVar("_Scalar", bound=np.generic)
_MOST_BYTES = 4 * (MAX_CHARACTERS + 1)


@dataclass(frozen=True, slots=True)
class FacetValue:
    """A value, and how many documents have it; of a text that is_cut only the first MAX_CHARACTERS are given."""

    value: MetadataValue
    n_documents: int
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class Facet:
    """Counts that add up: n_documents are those of `values`, of further values (n_other), and without one (n_missing).

    values come by count, the greatest first, then booleans, numbers, texts, each ascending. is_known says whether any
    document of the index has the field.
    """

    field: str
    is_known: bool
    n_documents: int
    values: list[FacetValue]
    n_other: int
    n_missing: int


def count_facet(field: str, metadata: Metadata, documents: Mask, k: int) -> Facet:
    """Return the k most frequent values of a field among documents (n_documents,); exact.

    Worked example: among documents with the years 1999, 2001, 2001, 2020 and one without, k = 1 gives 2001 twice,
    2 others and 1 missing, of 5 documents.
    """
    tallies = list(_tallies(field, metadata, documents))
    n_documents = int(np.count_nonzero(documents))
    n_with_value = sum(int(tally.counts.sum()) for tally in tallies)
    counted = [each for tally in tallies for each in _most_frequent(tally, k)]
    values = sorted(counted, key=lambda each: -each.n_documents)[:k]  # stable: equal counts stay in order of value
    return Facet(
        field=field,
        is_known=field in metadata.fields,
        n_documents=n_documents,
        values=values,
        n_other=n_with_value - sum(each.n_documents for each in values),
        n_missing=n_documents - n_with_value,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Tally:
    """How often each value of a kind comes, (n,) in ascending order of the values; name gives the i-th value."""

    counts: NDArray[np.int64]
    name: Callable[[int], MetadataValue]


def _tallies(field: str, metadata: Metadata, documents: Mask) -> Iterator[_Tally]:
    """Yield the tally of each kind of value: booleans, numbers, texts."""
    if (booleans := metadata.booleans(field)) is not None:
        yield _Tally(np.bincount(_among(booleans, documents), minlength=2), bool)
    if (integers := metadata.integers(field)) is not None:
        whole, counts = np.unique(_among(integers, documents), return_counts=True)
        yield _Tally(counts, lambda i: int(whole[i]))
    if (floats := metadata.floats(field)) is not None:
        numbers, counts = np.unique(_among(floats, documents), return_counts=True)
        yield _Tally(counts, lambda i: float(numbers[i]))
    if (column := metadata.texts(field)) is not None:
        texts = column.texts
        yield _Tally(np.bincount(_among(column, documents), minlength=len(texts)), lambda i: _beginning(texts[i]))


def _among(column: Column[_Scalar], documents: Mask) -> NDArray[_Scalar]:
    """Return the values (n,) of those documents that have one."""
    return column.values[documents if column.documents is None else documents[column.documents]]


def _most_frequent(tally: _Tally, k: int) -> list[FacetValue]:
    found = np.flatnonzero(tally.counts)
    best = best_rows(found, tally.counts[found].astype(np.float64), k).rows.tolist()
    return [_facet_value(tally.name(i), int(tally.counts[i])) for i in best]


def _facet_value(value: MetadataValue, n_documents: int) -> FacetValue:
    if isinstance(value, str) and len(value) > MAX_CHARACTERS:
        return FacetValue(value[:MAX_CHARACTERS], n_documents, is_cut=True)
    return FacetValue(value, n_documents)


def _beginning(text: bytes) -> str:
    """Return a text in UTF-8, or the first of it if it is long: more than MAX_CHARACTERS of them."""
    return text[:_MOST_BYTES].decode(errors="ignore")
