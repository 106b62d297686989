"""Metadata columns of documents, without a snapshot around them."""

from collections.abc import Sequence
from pathlib import Path

from indexer.documents import Document, Metadata
from indexer.metadata import Metadata as Columns
from indexer.metadata_writer import MetadataBuilder


def columns_of(documents: Sequence[Document], folder: Path, *, n_passages: Sequence[int] | None = None) -> Columns:
    """Write and open the columns of documents, each with one passage unless n_passages says otherwise."""
    builder = MetadataBuilder(folder / "scratch.sqlite")
    for document, n in zip(documents, n_passages if n_passages is not None else [1] * len(documents), strict=True):
        builder.add(document, n)
    builder.write(folder / "metadata")
    builder.close()
    return Columns(folder / "metadata", n_documents=len(documents))


def documents_with(*metadata: Metadata) -> list[Document]:
    """Return a document for each metadata, numbered from 0, with nothing else in it."""
    return [Document(f"{i:03}", "", metadata=each) for i, each in enumerate(metadata)]
