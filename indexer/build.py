"""Build a snapshot: read, chunk, embed, write, publish.

The same documents and models give the same bytes in every file but the manifest, whatever the order of the source.
Memory holds the vectors (4 bytes x dimension a passage), 12 bytes for each distinct term of a passage, some for each
value of metadata that is no text (`indexer/metadata_writer.py`), and one document; documents and texts stream through
SQLite.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from indexer.analysis import ANALYZER, analyze
from indexer.bm25 import Bm25Builder, Bm25Index
from indexer.chunking import ChunkingSettings, chunk
from indexer.dense import DenseBuilder
from indexer.documents import Document, passage_text, with_context
from indexer.errors import BuildError
from indexer.manifest import (
    MANIFEST_FILE,
    Bm25Record,
    EncoderRecord,
    Manifest,
    record_files,
)
from indexer.metadata_writer import MetadataBuilder
from indexer.publish import building, publish
from indexer.snapshot import BM25_FOLDER, DENSE_FILE, METADATA_FOLDER, STORE_FILE, TOKENS_FILE
from indexer.staging import DocumentStage
from indexer.store import Store, StoreWriter
from indexer.tokens import TokenWriter
from models.dual_encoder import Embeddings
from models.tokenization import Tokenizer

_SLICE = 2048  # passages sorted by length together: their texts and vectors take a few MB
_BATCH = 32  # passages between two reports of progress

Stage = Literal["read", "chunk", "embed", "publish"]


class PassageEncoder(Protocol):
    """What a build needs of `models.dual_encoder.DualEncoder`."""

    fingerprint: str
    dimension: int
    tokenizer: Tokenizer

    def encode_passages(self, passages: Sequence[str]) -> Embeddings:
        """Return the vectors of passages, in order."""
        ...


@dataclass(frozen=True, slots=True)
class IndexModels:
    """The models that an index is built for: its dual encoder, and the cross-encoder's tokenizer."""

    dual_encoder: PassageEncoder
    passage_tokenizer: Tokenizer
    passage_tokenizer_fingerprint: str
    encoder_name: str = "dual encoder"


class BuildSettings(BaseModel):
    """How an index is built; repeated_ids says what happens when an id comes again."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    chunking: ChunkingSettings = ChunkingSettings()
    k1: float = Field(default=1.2, gt=0)
    b: float = Field(default=0.75, ge=0, le=1)
    repeated_ids: Literal["keep-first", "fail"] = "keep-first"


@dataclass(frozen=True, slots=True)
class BuildProgress:
    """How far a build is: documents in "read" and "chunk", passages in "embed"; total is None while it is unknown."""

    stage: Stage
    done: int
    total: int | None


@dataclass(frozen=True, slots=True)
class BuildReport:
    """What was built; n_cut_passages were longer than the encoder reads; repeated_ids are the first few left out."""

    snapshot_id: str
    path: Path
    n_documents: int
    n_passages: int
    n_cut_passages: int
    n_repeated_ids: int
    repeated_ids: tuple[str, ...]
    n_bytes: int


@dataclass(slots=True)
class _Repeated:
    count: int = 0
    first: list[str] = field(default_factory=list)


def build_snapshot(
    documents: Iterable[Document],
    *,
    index_path: Path,
    models: IndexModels,
    settings: BuildSettings | None = None,
    progress: Callable[[BuildProgress], None] | None = None,
) -> BuildReport:
    """Index the documents and make the result the current snapshot of index_path, whose name is the index's.

    Nothing that a reader sees changes before the last step; a failed build leaves nothing behind, a killed one
    leaves a folder that the next one removes.

    Raises:
        BuildError: the disk refused, another build is running, or a document cannot be stored; one sentence.
        SourceError: whatever the documents' iterator raises comes through.
    """
    build = _Build(models, settings or BuildSettings(), progress or (lambda _: None))
    with building(index_path) as folder:
        repeated = build.stage(documents, folder)
        build.chunk(folder)
        n_cut = build.embed(folder)
        manifest = build.describe(folder, index_path, n_cut)
        path = publish(folder, index_path, manifest.snapshot_id)
    build.report("publish", 1, 1)
    return BuildReport(
        snapshot_id=manifest.snapshot_id,
        path=path,
        n_documents=manifest.n_documents,
        n_passages=manifest.n_passages,
        n_cut_passages=n_cut,
        n_repeated_ids=repeated.count,
        repeated_ids=tuple(repeated.first),
        n_bytes=sum(record.n_bytes for record in manifest.files.values()),
    )


class _Build:
    """The steps of one build, each of which leaves its files in the folder."""

    def __init__(self, models: IndexModels, settings: BuildSettings, progress: Callable[[BuildProgress], None]) -> None:
        self._models, self._settings, self._progress = models, settings, progress

    def report(self, stage: Stage, done: int, total: int | None) -> None:
        self._progress(BuildProgress(stage, done, total))

    def stage(self, documents: Iterable[Document], folder: Path) -> _Repeated:
        self._stage = DocumentStage(folder / "stage.sqlite")
        repeated = _Repeated()
        for document in documents:
            if not self._stage.add(document):
                self._refuse_repetition(document, repeated)
            self.report("read", self._stage.n_documents, None)
        return repeated

    def _refuse_repetition(self, document: Document, repeated: _Repeated) -> None:
        if self._settings.repeated_ids == "fail":
            raise BuildError(f"two documents have the id {document.document_id!r}")
        repeated.count += 1
        if len(repeated.first) < 10:
            repeated.first.append(document.document_id)

    def chunk(self, folder: Path) -> None:
        """Cut the staged documents in order; write the store, the BM25 index, the metadata and the token file."""
        total = self._stage.n_documents
        store = StoreWriter(folder / STORE_FILE)
        metadata = MetadataBuilder(folder / "metadata.sqlite")
        bm25 = Bm25Builder(k1=self._settings.k1, b=self._settings.b)
        tokenizer = self._models.passage_tokenizer
        fingerprint = self._models.passage_tokenizer_fingerprint
        try:
            with TokenWriter(
                folder / TOKENS_FILE, vocabulary_size=tokenizer.vocabulary_size, tokenizer_fingerprint=fingerprint
            ) as tokens:
                for done, document in enumerate(self._stage.in_order(), 1):
                    passages = chunk(document, self._models.dual_encoder.tokenizer, self._settings.chunking)
                    store.add(document, passages)
                    metadata.add(document, len(passages))
                    texts = [passage_text(document, passage) for passage in passages]
                    for text, tokenized in zip(texts, tokenizer.encode_batch(texts), strict=True):
                        bm25.add(analyze(text))
                        tokens.add(tokenized.ids)
                    self.report("chunk", done, total)
            store.finish()
            metadata.write(folder / METADATA_FOLDER)
        finally:
            store.close()
            metadata.close()
            self._stage.close()
        (folder / "stage.sqlite").unlink()
        bm25.write(folder / BM25_FOLDER)

    def embed(self, folder: Path) -> int:
        """Write the vectors of all passages; return how many passages the encoder had to cut."""
        store = Store(folder / STORE_FILE)
        builder = DenseBuilder(self._models.dual_encoder.dimension)
        n_cut = done = 0
        try:
            for passages in store.passage_batches(_SLICE):
                texts = [with_context(passage.title, passage.heading, passage.text) for passage in passages]
                vectors = np.zeros((len(texts), self._models.dual_encoder.dimension), np.float32)
                for numbers in _by_length(texts, _BATCH):
                    embeddings = self._models.dual_encoder.encode_passages([texts[i] for i in numbers])
                    vectors[numbers] = embeddings.vectors
                    n_cut += int(np.count_nonzero(embeddings.cut_tokens))
                    done += len(numbers)
                    self.report("embed", done, store.n_passages)
                if not np.isfinite(vectors).all():
                    raise BuildError("the dual encoder gave a vector that is not finite")
                builder.add(vectors)
        finally:
            store.close()
        builder.write(folder / DENSE_FILE)
        return n_cut

    def describe(self, folder: Path, index_path: Path, n_cut: int) -> Manifest:
        """Write the manifest and return it."""
        store = Store(folder / STORE_FILE)
        store.close()
        files = record_files(folder)
        encoder = self._models.dual_encoder
        created_at = datetime.now(UTC).replace(microsecond=0)
        content = hashlib.sha256("".join(record.sha256 for record in files.values()).encode()).hexdigest()
        manifest = Manifest(
            snapshot_id=_new_id(index_path, f"{created_at:%Y%m%dT%H%M%SZ}-{content[:8]}"),
            created_at=created_at,
            n_documents=store.n_documents,
            n_passages=store.n_passages,
            n_cut_passages=n_cut,
            encoder=EncoderRecord(
                name=self._models.encoder_name, fingerprint=encoder.fingerprint, dimension=encoder.dimension
            ),
            passage_tokenizer_fingerprint=self._models.passage_tokenizer_fingerprint,
            bm25=Bm25Record(
                analyzer=ANALYZER,
                k1=self._settings.k1,
                b=self._settings.b,
                n_terms=Bm25Index(folder / BM25_FOLDER, n_passages=store.n_passages).n_terms,
            ),
            chunking=self._settings.chunking,
            files=files,
        )
        (folder / MANIFEST_FILE).write_text(manifest.model_dump_json(indent=2) + "\n", encoding="utf-8")
        return manifest


def _by_length(texts: Sequence[str], size: int) -> Iterator[list[int]]:
    """Yield the numbers of the texts, size at a time, the longest first."""
    order = sorted(range(len(texts)), key=lambda i: -len(texts[i]))
    for start in range(0, len(order), size):
        yield order[start : start + size]


def _new_id(index_path: Path, wanted: str) -> str:
    """Return the wanted id, with a number if it is taken: the same content was built twice in a second."""
    number, snapshot_id = 1, wanted
    while (index_path / "snapshots" / snapshot_id).exists():
        number += 1
        snapshot_id = f"{wanted}-{number}"
    return snapshot_id
