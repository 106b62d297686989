"""Build a snapshot: read, chunk, embed, write, publish.

The same documents and models give the same bytes in every file but the manifest, whatever the order of the source,
whatever could be taken from the snapshot before, and however often the build was killed and began again. Memory holds
the vectors (4 bytes x dimension a passage, and as much again of those that a killed build left), 12 bytes for each
distinct term of a passage, 26 with a snapshot before, some for each value of metadata that is no text
(`indexer/metadata_writer.py`), and one document; documents and texts stream through SQLite.
"""

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from indexer.ann import DenseRecord, choose_kind, index_bytes
from indexer.bm25 import Bm25Index
from indexer.cutting import cut
from indexer.documents import Document
from indexer.embedding import Embedded, embed
from indexer.errors import BuildError, SnapshotError
from indexer.layout import BM25_FOLDER, STORE_FILE
from indexer.manifest import MANIFEST_FILE, Bm25Record, EncoderRecord, Manifest, record_files
from indexer.previous import Made, Previous, open_previous
from indexer.publish import building, publish, require_room
from indexer.recipe import BuildProgress, BuildRun, BuildSettings, Change, IndexModels, Stage
from indexer.staging import DocumentStage
from indexer.store import Store
from indexer.vectors import KEY, PendingVectors

logger = logging.getLogger(__name__)

_SETTINGS, _RUN = BuildSettings(), BuildRun()
_PENDING_FOLDER = "pending"
_STAGE_FILE = "stage.sqlite"


@dataclass(frozen=True, slots=True)
class BuildReport:
    """What was built.

    n_unchanged_documents were taken over from the snapshot before, n_deleted_documents of it are gone as was asked; the
    vectors of n_embedded_passages were made anew; n_cut_passages were longer than the encoder reads; n_repeated_ids
    documents were left out because their id came before.
    """

    snapshot_id: str
    path: Path
    n_documents: int
    n_passages: int
    n_unchanged_documents: int
    n_deleted_documents: int
    n_embedded_passages: int
    n_cut_passages: int
    n_repeated_ids: int
    n_bytes: int
    dense: DenseRecord


def build_snapshot(
    documents: Iterable[Document],
    *,
    index_path: Path,
    models: IndexModels,
    settings: BuildSettings = _SETTINGS,
    run: BuildRun = _RUN,
) -> BuildReport:
    """Index the documents and make the result the current snapshot of index_path, whose name is the index's.

    Nothing that a reader sees changes before the last step; a failed or killed build leaves the vectors that it made,
    which the next one takes up.

    Args:
        documents: all documents of the index, or with a change those that are new or other than before.
        index_path: the index's folder, made if it is not there.
        models: what the index is built for.
        settings: how it is built.
        run: what stays of the documents that are there, whom to tell, and who accepts the result.

    Raises:
        BuildError: the disk refused, another build is running, or a document cannot be stored; one sentence.
        SourceError: whatever the documents' iterator and what is told raise comes through.
    """
    build = _Build(index_path, models, settings, run.progress)
    with building(index_path) as folder, build.previous(run.change) as previous:
        n_repeated = build.stage(documents, folder, run, previous)
        manifest, embedded, n_unchanged = build.write(folder, previous)
        if run.accept is not None:
            manifest = manifest.model_copy(update={"evaluation": dict(run.accept(folder))})
            _write_manifest(folder, manifest)
        path = publish(folder, index_path, manifest.snapshot_id, keep=build.settings.keep)
        build.pending.remove()
    build.report("publish", 1, 1)
    return BuildReport(
        snapshot_id=manifest.snapshot_id,
        path=path,
        n_documents=manifest.n_documents,
        n_passages=manifest.n_passages,
        n_unchanged_documents=n_unchanged,
        n_deleted_documents=build.n_deleted,
        n_embedded_passages=embedded.n_made,
        n_cut_passages=embedded.n_cut,
        n_repeated_ids=n_repeated,
        n_bytes=manifest.n_bytes,
        dense=embedded.record,
    )


class _Build:
    """The steps of one build, each of which leaves its files in the folder."""

    def __init__(
        self,
        index_path: Path,
        models: IndexModels,
        settings: BuildSettings,
        progress: Callable[[BuildProgress], None],
    ) -> None:
        self.settings = settings
        self.n_deleted = 0
        self._index_path, self._models, self._progress = index_path, models, progress

    def report(self, stage: Stage, done: int, total: int | None) -> None:
        self._progress(BuildProgress(stage, done, total))

    @contextmanager
    def previous(self, change: Change | None) -> Iterator[Previous | None]:
        """Give the snapshot to take over from; one that is damaged is left, unless its documents are needed."""
        try:
            previous = open_previous(self._index_path, self._made())
        except SnapshotError as error:
            if change is not None:
                raise BuildError(
                    f"the documents that are there cannot be kept: {error}; index all of them again"
                ) from error
            logger.warning("Nothing is taken over from the snapshot before: %s", error)
            previous = None
        try:
            yield previous
        finally:
            if previous is not None:
                previous.close()

    def stage(self, documents: Iterable[Document], folder: Path, run: BuildRun, previous: Previous | None) -> int:
        """Put the documents on disk, the given ones first, so that they win over those that are there.

        Returns:
            How many were left out because their id came before.
        """
        self._stage = DocumentStage(folder / _STAGE_FILE)
        n_repeated = 0
        for document in documents:
            if not self._stage.add(document):
                n_repeated += 1
                run.repeated(document.document_id)
            self.report("read", self._stage.n_documents, None)
        if run.change is not None and previous is not None:
            self.n_deleted = self._stage.add_stored(previous.path / STORE_FILE, run.change.deleted_ids)
            self.report("read", self._stage.n_documents, None)
        return n_repeated

    def write(self, folder: Path, previous: Previous | None) -> tuple[Manifest, Embedded, int]:
        """Write the snapshot's files; return its manifest, what was embedded, and how many documents were unchanged."""
        encoder = self._models.dual_encoder
        n_unchanged = self._cut(folder, previous)
        self._require_room(folder)
        self.pending = PendingVectors(
            self._index_path / _PENDING_FOLDER, encoder_fingerprint=encoder.fingerprint, dimension=encoder.dimension
        )
        known = [previous.vectors] if previous is not None and previous.vectors is not None else []
        with self.pending:
            settings = self.settings.dense, lambda done, total: self.report("embed", done, total)
            embedded = embed(folder, encoder, known, self.pending, settings)
        return self._describe(folder, embedded), embedded, n_unchanged

    def _made(self) -> Made:
        return Made(
            self._models.dual_encoder.fingerprint,
            self._models.passage_tokenizer_fingerprint,
            self.settings.analyzer.name,
            self.settings.chunking.model_dump_json(),
        )

    def _cut(self, folder: Path, previous: Previous | None) -> int:
        total = self._stage.n_documents
        try:
            return cut(
                self._stage.in_order(),
                folder,
                (self._models, self.settings),
                previous,
                lambda done: self.report("chunk", done, total),
            )
        finally:
            self._stage.close()
            (folder / _STAGE_FILE).unlink()

    def _require_room(self, folder: Path) -> None:
        """Refuse to begin with the vectors, which take long, where the disk could not hold them."""
        store = Store(folder / STORE_FILE)
        store.close()
        n, dimension = store.n_passages, self._models.dual_encoder.dimension
        kind = choose_kind(n, dimension, self.settings.dense)
        needed = 2 * n * (4 * dimension + KEY.itemsize) + index_bytes(kind, n, dimension)
        require_room(self._index_path, needed, f"the vectors of {n:,} passages")

    def _describe(self, folder: Path, embedded: Embedded) -> Manifest:
        """Write the manifest and return it."""
        store = Store(folder / STORE_FILE)
        store.close()
        files = record_files(folder)
        encoder = self._models.dual_encoder
        created_at = datetime.now(UTC).replace(microsecond=0)
        content = hashlib.sha256("".join(record.sha256 for record in files.values()).encode()).hexdigest()
        manifest = Manifest(
            snapshot_id=_new_id(self._index_path, f"{created_at:%Y%m%dT%H%M%SZ}-{content[:8]}"),
            created_at=created_at,
            n_documents=store.n_documents,
            n_passages=store.n_passages,
            n_cut_passages=embedded.n_cut,
            encoder=EncoderRecord(
                name=self._models.encoder_name, fingerprint=encoder.fingerprint, dimension=encoder.dimension
            ),
            passage_tokenizer_fingerprint=self._models.passage_tokenizer_fingerprint,
            bm25=Bm25Record(
                analyzer=self.settings.analyzer.name,
                k1=self.settings.k1,
                b=self.settings.b,
                n_terms=Bm25Index(folder / BM25_FOLDER, n_passages=store.n_passages).n_terms,
            ),
            dense=embedded.record,
            chunking=self.settings.chunking,
            files=files,
        )
        _write_manifest(folder, manifest)
        return manifest


def _write_manifest(folder: Path, manifest: Manifest) -> None:
    (folder / MANIFEST_FILE).write_text(manifest.model_dump_json(indent=2) + "\n", encoding="utf-8")


def _new_id(index_path: Path, wanted: str) -> str:
    """Return the wanted id, with a number if it is taken: the same content was built twice in a second."""
    number, snapshot_id = 1, wanted
    while (index_path / "snapshots" / snapshot_id).exists():
        number += 1
        snapshot_id = f"{wanted}-{number}"
    return snapshot_id
