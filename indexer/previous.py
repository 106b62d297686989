"""What a build takes over from the snapshot before: passages, tokens and terms of unchanged documents, and vectors.

A document is unchanged if its title and text are; its address and metadata are written anew in any case. Nothing is
taken from a snapshot whose files are not as its manifest says.
"""

import sqlite3
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from indexer.bm25 import Bm25Index, Forward
from indexer.dense import DenseIndex
from indexer.documents import Document, Passage
from indexer.errors import SnapshotError
from indexer.layout import BM25_FOLDER, DENSE_FILE, KEYS_FILE, METADATA_FOLDER, STORE_FILE, TOKENS_FILE
from indexer.manifest import Manifest, read_manifest, verify_files
from indexer.mapped import mapped_array
from indexer.metadata import PASSAGE_DOCUMENTS_FILE
from indexer.publish import current_snapshot
from indexer.ranking import Rows
from indexer.tokens import TokenFile
from indexer.vectors import KEY, VectorSource
from models.tokenization import TokenIds


@dataclass(frozen=True, slots=True)
class Made:
    """What decides passages, tokens, terms and vectors besides the text; equal ones make equal parts."""

    encoder: str
    passage_tokenizer: str
    analyzer: str
    chunking: str

    @classmethod
    def of(cls, manifest: Manifest) -> "Made":
        """Return what made a snapshot."""
        return cls(
            manifest.encoder.fingerprint,
            manifest.passage_tokenizer_fingerprint,
            manifest.bm25.analyzer,
            manifest.chunking.model_dump_json(),
        )


class Previous:
    """The current snapshot of an index, as a build reads it; close it at the end."""

    def __init__(self, folder: Path, manifest: Manifest, made: Made) -> None:
        """Open the parts; use `open_previous`."""
        self.path, self.manifest = folder, manifest
        self.has_passages = Made.of(manifest) == made
        self._store = sqlite3.connect(f"{(folder / STORE_FILE).absolute().as_uri()}?mode=ro&immutable=1", uri=True)
        self._owners = mapped_array(folder / METADATA_FOLDER / PASSAGE_DOCUMENTS_FILE, np.int32)
        self._tokens = TokenFile(folder / TOKENS_FILE)
        self._bm25 = Bm25Index(folder / BM25_FOLDER, n_passages=manifest.n_passages)
        self._forward: Forward | None = None
        self.vectors: VectorSource | None = None  # by what the encoder saw, if this build's encoder made them
        if manifest.encoder.fingerprint == made.encoder:
            keys = np.load(folder / KEYS_FILE)
            assert keys.dtype == KEY
            self.vectors = VectorSource(keys, DenseIndex.open(folder / DENSE_FILE).vectors)

    @property
    def forward(self) -> Forward:
        """The terms of each passage; put in order at first use, which takes 12 bytes of memory a posting."""
        if self._forward is None:
            self._forward = self._bm25.forward()
        return self._forward

    def unchanged(self, document: Document) -> tuple[list[Passage], Rows] | None:
        """Return the passages of a document and their rows, or None if it was not there, or another."""
        found = self._store.execute(
            "SELECT row, title, text FROM documents WHERE document_id = ?", (document.document_id,)
        ).fetchone()
        if not self.has_passages or found is None or found[1:] != (document.title, document.text):
            return None
        first, last = np.searchsorted(self._owners, [found[0], found[0] + 1]).tolist()
        passages = [
            Passage(document.document_id, ordinal, start, end, heading)
            for ordinal, start, end, heading in self._store.execute(
                'SELECT ordinal, start, "end", heading FROM passages WHERE row BETWEEN ? AND ? ORDER BY row',
                (first, last - 1),
            )
        ]
        return passages, np.arange(first, last)

    def tokens(self, rows: Rows) -> list[TokenIds]:
        """Return the token ids of passages."""
        return self._tokens.passage_tokens(rows)

    def close(self) -> None:
        """Close the store."""
        self._store.close()


def current_manifest(index_path: Path) -> Manifest | None:
    """Return the manifest of the current snapshot, None if there is none; raises SnapshotError if it cannot be read."""
    folder = current_snapshot(index_path)
    return None if folder is None else read_manifest(folder)


def open_previous(index_path: Path, made: Made) -> Previous | None:
    """Return the current snapshot after every byte of it was compared with its manifest, None if there is none.

    Raises:
        SnapshotError: it is damaged, or of another format.
    """
    folder = current_snapshot(index_path)
    if folder is None:
        return None
    manifest = read_manifest(folder)
    verify_files(folder, manifest, with_hashes=True)
    try:
        return Previous(folder, manifest, made)
    except (OSError, ValueError, sqlite3.Error) as error:
        raise SnapshotError(f"{folder} cannot be read: {error}") from error
