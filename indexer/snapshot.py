"""Open a published snapshot, verify it, and search it; thread-safe, and nothing of it ever changes."""

import os
import sqlite3
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from indexer.analysis import Analyzer
from indexer.bm25 import Bm25Index, TermWeight
from indexer.dense import DenseIndex
from indexer.documents import Document, with_context
from indexer.errors import SnapshotError
from indexer.facets import Facet, count_facet
from indexer.filters import Filter, Filtered, apply_filter
from indexer.intact import OpenFiles
from indexer.layout import ANN_FILE, BM25_FOLDER, DENSE_FILE, METADATA_FOLDER, STORE_FILE, TOKENS_FILE
from indexer.manifest import Manifest, read_manifest, verify_files
from indexer.metadata import Metadata
from indexer.publish import current_snapshot, hold, no_index
from indexer.ranking import Hits, Mask, Rows, Scores
from indexer.store import Store, StoredPassage
from indexer.tokens import TokenFile
from models.excerpts import TokenRarity
from models.tokenization import TokenIds

_SAMPLE = 1_000  # passages


class Snapshot:
    """An opened snapshot. Rows number its passages from 0 in the order of (document_id, ordinal)."""

    def __init__(self, folder: Path, manifest: Manifest, analyzer: Analyzer, *, index_name: str, held: int) -> None:
        """Open the parts; use `Snapshot.open`. held is what `publish.hold` gave, closed by `close`."""
        self.snapshot_id = manifest.snapshot_id
        self.index_name = index_name
        self.manifest = manifest
        self.analyzer = analyzer
        self.n_documents = manifest.n_documents
        self.n_passages = manifest.n_passages
        self._held = held
        self._files = OpenFiles(folder, manifest)
        self._dense = DenseIndex.open(folder / DENSE_FILE, folder / ANN_FILE, manifest.dense)
        self._bm25 = Bm25Index(folder / BM25_FOLDER, n_passages=manifest.n_passages)
        self._tokens = TokenFile(folder / TOKENS_FILE)
        self.metadata = Metadata(folder / METADATA_FOLDER, n_documents=manifest.n_documents)
        self._store = Store(folder / STORE_FILE)
        self._require_equal_counts(folder)
        self.analyzer.analyze("")  # builds what the analyzer keeps, which the first query would otherwise wait for

    @classmethod
    def open(
        cls, index_path: Path, *, encoder_fingerprint: str, dimension: int | None = None, verify: bool = True
    ) -> "Snapshot":
        """Open the current snapshot of an index, for queries encoded by the given encoder.

        Args:
            index_path: the index's folder, such as data/default.
            encoder_fingerprint: that of the dual encoder which will encode queries.
            dimension: of its vectors; None where that is not known, and the fingerprint alone must be the same.
            verify: whether to compare the sha256 of every file, which reads them all once.

        Raises:
            SnapshotError: there is none, it is altered, or it was made for another encoder, analyzer or format.
        """
        folder = current_snapshot(index_path)
        if folder is None:
            raise no_index(index_path)
        return cls.open_folder(
            folder, index_path.name, encoder_fingerprint=encoder_fingerprint, dimension=dimension, verify=verify
        )

    @classmethod
    def open_folder(
        cls,
        folder: Path,
        index_name: str,
        *,
        encoder_fingerprint: str,
        dimension: int | None = None,
        verify: bool = True,
    ) -> "Snapshot":
        """Open a snapshot by its folder, be it current or not; as `open`."""
        manifest = read_manifest(folder)
        analyzer = _require_match(manifest, index_name, encoder_fingerprint=encoder_fingerprint, dimension=dimension)
        held = hold(folder)
        try:
            verify_files(folder, manifest, with_hashes=verify)
            return cls(folder, manifest, analyzer, index_name=index_name, held=held)
        except (OSError, ValueError, sqlite3.Error, SnapshotError) as error:
            os.close(held)
            if isinstance(error, SnapshotError):
                raise
            raise SnapshotError(f"{folder} cannot be read: {error}") from error

    def _require_equal_counts(self, folder: Path) -> None:
        of_passages = {
            STORE_FILE: self._store.n_passages,
            DENSE_FILE: self._dense.n_passages,
            TOKENS_FILE: self._tokens.n_passages,
            METADATA_FOLDER: self.metadata.n_passages,
        }
        counts = [(name, found, self.n_passages, "passages") for name, found in of_passages.items()]
        counts.append((STORE_FILE, self._store.n_documents, self.n_documents, "documents"))
        counts.append((DENSE_FILE, self._dense.dimension, self.manifest.encoder.dimension, "dimensions"))
        counts.append((BM25_FOLDER, self._bm25.n_terms, self.manifest.bm25.n_terms, "terms"))
        for name, found, said, what in counts:
            if found != said:
                self._store.close()
                raise SnapshotError(f"{folder / name} holds {found:,} {what}; the manifest says {said:,}")

    @property
    def mean_passage_tokens(self) -> int:
        """How many of the cross-encoder's tokens a passage has in the mean, rounded up; 0 of an empty index."""
        return -(-self._tokens.n_tokens // max(1, self.n_passages))

    def move_to_gpu(self) -> None:
        """Search vectors on the first GPU from now on; raises DeviceError if that cannot be."""
        self._dense.move_to_gpu()

    def search_dense(self, query_vector: NDArray[np.float32], k: int, allowed: Mask | None = None) -> Hits:
        """Return the k passages whose vectors have the greatest inner product with the query's (dimension,).

        Of the allowed (n_passages,) ones only, where they are given, as in `search_bm25`: k of those, if there are as
        many, with the scores that they have without it.
        """
        return self._dense.search(query_vector, k, allowed=allowed)

    def search_bm25(self, query: str, k: int, allowed: Mask | None = None) -> Hits:
        """Return the k best passages that share a term with the query; none if no term is left of it."""
        return self._bm25.search(self.analyzer.analyze(query), k, allowed)

    def matching_bm25(self, query: str) -> Mask:
        """Return which passages (n_passages,) share a term with the query."""
        return self._bm25.matching(self.analyzer.analyze(query))

    def filtered(self, expression: Filter) -> Filtered:
        """Return the passages that a filter leaves."""
        return apply_filter(expression, self.metadata)

    def facets(self, fields: Sequence[str], passages: Mask, k: int) -> list[Facet]:
        """Return the k most frequent values of each field among the documents of passages (n_passages,)."""
        documents = self.metadata.of_passages(passages)
        return [count_facet(name, self.metadata, documents, k) for name in fields]

    def dense_scores(self, query_vector: NDArray[np.float32], rows: Rows) -> Scores:
        """Return the exact inner products (n,) of given rows, equal to those of `search_dense`."""
        return self._dense.scores(query_vector, rows)

    def bm25_scores(self, query: str, rows: Rows) -> Scores:
        """Return the BM25 scores (n,) of given rows, equal to those of `search_bm25`; 0 where no term is shared."""
        return self._bm25.scores(self.analyzer.analyze(query), rows)

    def bm25_terms(self, query: str, row: int) -> list[TermWeight]:
        """Return what each term of the query adds to the BM25 score of a passage, the most first."""
        return self._bm25.explain(self.analyzer.analyze(query), row)

    def documents_of(self, rows: Rows) -> Rows:
        """Return the document of each given passage, numbered in the order of document_id."""
        return self.metadata.documents_of(rows)

    def passages(self, rows: Rows) -> list[StoredPassage]:
        """Return the passages of given rows, in the given order; raises KeyError for a row that is not there."""
        return self._store.passages(rows)

    def passage_texts(self, rows: Rows) -> list[str]:
        """Return what the models see of given passages: title and heading, then the passage's own text."""
        return [with_context(item.title, item.heading, item.text) for item in self._store.passages(rows)]

    def passage_tokens(self, rows: Rows, *, tokenizer_fingerprint: str) -> list[TokenIds] | None:
        """Return the token ids of `passage_texts`, or None if they were made by another tokenizer."""
        if tokenizer_fingerprint != self._tokens.tokenizer_fingerprint:
            return None
        return self._tokens.passage_tokens(rows)

    def token_rarity(self, *, tokenizer_fingerprint: str) -> TokenRarity:
        """Return how rare the tokens of `passage_tokens` are, all equally if they were made by another tokenizer."""
        return self._token_rarity if tokenizer_fingerprint == self._tokens.tokenizer_fingerprint else TokenRarity([])

    @cached_property
    def _token_rarity(self) -> TokenRarity:
        """By at most a thousand passages from end to end."""
        rows = np.linspace(0, self.n_passages, min(self.n_passages, _SAMPLE), endpoint=False, dtype=np.int64)
        return TokenRarity(self._tokens.passage_tokens(rows))

    def document(self, document_id: str) -> Document | None:
        """Return a document, or None if there is none of that id."""
        return self._store.document(document_id)

    def damage(self) -> str | None:
        """Return what is wrong with a file that was changed since the snapshot was opened; for one thread at a time."""
        return self._files.fault()

    def close(self) -> None:
        """Let go of the files; no call may be made afterwards, calls under way end well."""
        self._store.close()
        if self._held >= 0:
            os.close(self._held)
            self._held = -1


def _require_match(manifest: Manifest, index_name: str, *, encoder_fingerprint: str, dimension: int | None) -> Analyzer:
    """Return the analyzer that the snapshot's terms come from, after the encoder was found to be the same."""
    made = manifest.encoder
    if made.fingerprint != encoder_fingerprint or dimension not in (None, made.dimension):
        dimensions = "" if dimension is None else f" and {dimension} dimensions"
        raise SnapshotError(
            f"index {index_name!r} was built with the encoder {made.name!r} (fingerprint {made.fingerprint[:12]}, "
            f"{made.dimension} dimensions), but the configured encoder has fingerprint {encoder_fingerprint[:12]}"
            f"{dimensions}: configure the first or index again"
        )
    analyzer = Analyzer.named(manifest.bm25.analyzer)
    if analyzer is None:
        raise SnapshotError(
            f"index {index_name!r} was built with the analyzer {manifest.bm25.analyzer!r}, which this Tercet does not"
            f" have: index again"
        )
    return analyzer
