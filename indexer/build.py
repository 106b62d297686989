"""Build a snapshot: read, chunk, embed, write, publish.

The same documents and models give the same bytes in every file but the manifest, whatever the order of the source,
whatever could be taken from the snapshot before, and however often the build was killed and began again. Memory holds
the vectors (4 bytes x dimension a passage, and as much again of those that a killed build left), 12 bytes for each
distinct term of a passage, 26 with a snapshot before, some for each value of metadata that is no text
(`indexer/metadata_writer.py`), and one document; documents and texts stream through SQLite.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from indexer.ann import FEWEST, DenseRecord, choose_kind, index_bytes
from indexer.cutting import cut
from indexer.description import describe, says_the_same, write_manifest
from indexer.documents import Document
from indexer.embedding import Embedded, embed
from indexer.errors import BuildError, SnapshotError
from indexer.layout import STORE_FILE
from indexer.manifest import Manifest
from indexer.previous import Made, Previous, current_manifest, open_previous
from indexer.publish import building, publish, require_room
from indexer.recipe import BuildProgress, BuildRun, BuildSettings, IndexModels, Stage, differences
from indexer.staging import DocumentStage
from indexer.store import Store
from indexer.vectors import KEY, PendingVectors

_SETTINGS, _RUN = BuildSettings(), BuildRun()
_PENDING_FOLDER = "pending"
_STAGE_FILE = "stage.sqlite"
_MOST_GONE_IDS = 20


@dataclass(frozen=True, slots=True)
class BuildReport:
    """What was built.

    is_unchanged says that it would say what the current snapshot says, which therefore stayed current, and is the one
    that snapshot_id and path name. n_unchanged_documents were taken over from the snapshot before, n_deleted_documents
    of it are gone as was asked, n_gone_documents because the sources hold them no more; gone_ids are the first of the
    latter, at most 20; the vectors of n_embedded_passages were made anew; n_cut_passages were longer than the
    encoder reads; n_repeated_ids documents were left out because their id came before. notices are what `BuildRun` was
    told.
    """

    snapshot_id: str
    path: Path
    is_unchanged: bool
    language: str
    n_documents: int
    n_passages: int
    n_unchanged_documents: int
    n_deleted_documents: int
    n_gone_documents: int
    gone_ids: Sequence[str]
    n_embedded_passages: int
    n_cut_passages: int
    n_repeated_ids: int
    n_bytes: int
    dense: DenseRecord
    notices: Sequence[str]


def build_snapshot(
    documents: Iterable[Document],
    *,
    index_path: Path,
    models: IndexModels,
    settings: BuildSettings = _SETTINGS,
    run: BuildRun = _RUN,
) -> BuildReport:
    """Index the documents and make the result the current snapshot of index_path, whose name is the index's.

    If it would say what the current one says, nothing is published, and what there is to go back to stays. Nothing that
    a reader sees changes before the last step; a failed or killed build leaves the vectors that it made, which the next
    one takes up.

    Args:
        documents: all documents of the index, or with a change those that are new or other than before.
        index_path: the index's folder, made if it is not there.
        models: what the index is built for.
        settings: how it is built; with a change, what is not given is as it was.
        run: what stays of the documents that are there, whom to tell, and who accepts the result.

    Raises:
        BuildError: the disk refused, another build is running, or a document cannot be stored; one sentence.
        SourceError: whatever the documents' iterator and what is told raise comes through.
    """
    build = _Build(index_path, models, settings, run)
    with building(index_path) as folder, build.previous() as previous:
        n_repeated = build.stage(documents, folder, previous)
        manifest, embedded, n_unchanged = build.write(folder, previous)
        is_unchanged = previous is not None and says_the_same(manifest, previous.manifest)
        path = previous.path if previous is not None and is_unchanged else build.publish(folder, manifest)
        build.pending.remove()
    return BuildReport(
        snapshot_id=path.name,
        path=path,
        is_unchanged=is_unchanged,
        language=build.settings.language,
        n_documents=manifest.n_documents,
        n_passages=manifest.n_passages,
        n_unchanged_documents=n_unchanged,
        n_deleted_documents=build.n_deleted,
        n_gone_documents=build.n_gone,
        gone_ids=build.gone_ids,
        n_embedded_passages=embedded.n_made,
        n_cut_passages=embedded.n_cut,
        n_repeated_ids=n_repeated,
        n_bytes=manifest.n_bytes,
        dense=embedded.record,
        notices=build.notices,
    )


class _Build:
    """The steps of one build, each of which leaves its files in the folder."""

    def __init__(self, index_path: Path, models: IndexModels, settings: BuildSettings, run: BuildRun) -> None:
        self.settings = settings
        self.n_deleted = self.n_gone = 0
        self.gone_ids: list[str] = []
        self.notices: list[str] = []
        self._index_path, self._models, self._run = index_path, models, run

    def report(self, stage: Stage, done: int, total: int | None) -> None:
        self._run.progress(BuildProgress(stage, done, total))

    def notice(self, sentence: str) -> None:
        self.notices.append(sentence)
        self._run.notice(sentence)

    @contextmanager
    def previous(self) -> Iterator[Previous | None]:
        """Give the snapshot to take over from; one that is damaged is left, unless its documents are needed."""
        try:
            previous = self._open_previous()
        except SnapshotError as error:
            if self._run.change is not None:
                raise BuildError(
                    f"the documents that are there cannot be kept: {error}; index all of them again"
                ) from error
            self.notice(f"Nothing is taken over from the snapshot before: {error}.")
            previous = None
        try:
            yield previous
        finally:
            if previous is not None:
                previous.close()

    def _open_previous(self) -> Previous | None:
        """Return the current snapshot, say what is otherwise now, and let settings that say nothing be as it is."""
        before = current_manifest(self._index_path)
        if before is None:
            return None
        if self._run.change is not None:
            self.settings = self.settings.over(before)
        previous = open_previous(self._index_path, self._made())
        for sentence in differences(before, self.settings, self._models):
            self.notice(sentence)
        return previous

    def stage(self, documents: Iterable[Document], folder: Path, previous: Previous | None) -> int:
        """Put the documents on disk, the given ones first, so that they win over those that are there.

        Returns:
            How many were left out because their id came before.
        """
        self._stage = DocumentStage(folder / _STAGE_FILE)
        n_repeated = 0
        for document in documents:
            if not self._stage.add(document):
                n_repeated += 1
                self._run.repeated(document.document_id)
            self.report("read", self._stage.n_documents, None)
        change = self._run.change
        if previous is not None and change is None:
            self.n_gone, self.gone_ids = self._stage.gone(previous.path / STORE_FILE, _MOST_GONE_IDS)
        elif previous is not None and change is not None:
            self.n_deleted = self._stage.add_stored(previous.path / STORE_FILE, change.deleted_ids)
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
        if self.pending.n_damaged:
            self.notice(
                f"Of the vectors that a killed build left, {self.pending.n_damaged:,} are damaged and made anew."
            )
        manifest = describe(folder, self._index_path, (self._models, self.settings), embedded)
        wanted = self.settings.dense.kind
        if wanted not in ("auto", embedded.record.kind):
            self.notice(
                f"A dense index of the kind {wanted} needs {FEWEST:,} passages; there are {manifest.n_passages:,}, so a"
                " flat one was built, which is exact."
            )
        return manifest, embedded, n_unchanged

    def publish(self, folder: Path, manifest: Manifest) -> Path:
        """Let the run accept the snapshot, make it current, and return where it lies."""
        if self._run.accept is not None:
            manifest = manifest.model_copy(update={"evaluation": dict(self._run.accept(folder))})
            write_manifest(folder, manifest)
        path = publish(folder, self._index_path, manifest.snapshot_id, keep=self.settings.keep)
        self.report("publish", 1, 1)
        return path

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
