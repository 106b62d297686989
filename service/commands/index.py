"""`tercet index` and `tercet delete`: documents in or out, a published snapshot out."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from indexer.build import BuildReport, build_snapshot
from indexer.documents import Assumed, Document, Skipped
from indexer.errors import SnapshotError, SourceError
from indexer.extractor import Extractor, FileLimits
from indexer.files import shown_path
from indexer.publish import current_snapshot
from indexer.recipe import BuildRun, BuildSettings, Change, IndexModels
from indexer.sources import read_documents
from models.dual_encoder import DualEncoder
from models.folder import TOKENIZER_FILE, open_model_folder
from models.tokenization import Tokenizer
from service.commands.build_progress import build_progress
from service.commands.gate import gate_keeper
from service.commands.output import counted, duration, print_done, say, size
from service.commands.skipped import SkippedRecords, skipped_records
from service.engine import model_runtime
from service.gate import Gate
from service.settings import Settings

_DENSE = {"kind": "dense_index", "recall": "recall", "memory_bytes": "dense_memory_bytes"}


@dataclass(frozen=True, slots=True)
class IndexRun:
    """How `tercet index` runs.

    updates keeps the documents that are there; gate is tried before publishing; report_path takes all that is skipped.
    """

    fails_on_error: bool = False
    updates: bool = False
    gate: Gate | None = None
    report_path: Path | None = None
    as_json: bool = False


def index_sources(sources: Sequence[str], settings: Settings, run: IndexRun) -> None:
    """Build the configured index from sources, print what was built, and tell what was skipped.

    Raises:
        SourceError, BuildError, ModelError, CommandError: fit to show; the last if the report cannot be written.
    """
    started = time.monotonic()
    with skipped_records(run.report_path) as skipped:
        report = build_index(sources, settings, run, skipped=skipped)
    _tell_what_is_left_out(report)
    _tell_what_was_built(report, settings, skipped.as_json(), started, as_json=run.as_json)


def delete_documents(ids: Sequence[str], ids_from: Path | None, settings: Settings, *, as_json: bool) -> None:
    """Publish the configured index without some of its documents, and tell how many of them it held.

    Raises:
        BuildError, ModelError, SnapshotError, OSError: fit to show.
    """
    started = time.monotonic()
    index_path = settings.data_path / settings.index
    if current_snapshot(index_path) is None:
        raise SnapshotError(f"there is no index {settings.index!r} in {settings.data_path}")
    deleted_ids = frozenset([*ids, *_lines(ids_from)])
    report = _build([], settings, BuildRun(Change(deleted_ids)))
    n_unknown = len(deleted_ids) - report.n_deleted_documents
    if n_unknown:
        say(f"The index did not hold {counted(n_unknown, 'document')} of these ids.")
    _tell_what_was_built(report, settings, {"n_unknown_ids": n_unknown}, started, as_json=as_json)


def _lines(path: Path | None) -> list[str]:
    if path is None:
        return []
    try:
        return [line for line in path.read_text(encoding="utf-8-sig").split("\n") if line.strip()]
    except UnicodeDecodeError as error:
        raise SourceError(f"{path} is not UTF-8: byte {error.start + 1}") from error


def build_index(
    sources: Sequence[str], settings: Settings, run: IndexRun, *, skipped: SkippedRecords | None = None
) -> BuildReport:
    """Build and publish the configured index, showing progress on stderr; skipped takes what gave no document.

    Raises:
        SourceError: a source cannot be read, or holds a fault, such as an id that comes again, and the run fails on
            those, or all that it holds was skipped: an index of nothing would take the place of a good one.
        BuildError: the index cannot be written.
        ModelError: the configured encoder or cross-encoder cannot be used.
    """
    reader = _Reader(SkippedRecords() if skipped is None else skipped, fails_on_error=run.fails_on_error)
    limits = FileLimits(settings.file_cpu_seconds, settings.file_memory_bytes)
    how = BuildRun(
        change=Change() if run.updates else None,
        repeated=reader.skip_repeated,
        accept=gate_keeper(run.gate, settings) if run.gate is not None else None,
    )
    with closing(Extractor(limits)) as extractor:
        return _build(reader.documents(sources, extractor), settings, how)


def _build(documents: Iterable[Document], settings: Settings, run: BuildRun) -> BuildReport:
    recipe, models = build_settings(settings), index_models(settings)
    with build_progress(settings.progress) as show:
        return build_snapshot(
            documents,
            index_path=settings.data_path / settings.index,
            models=models,
            settings=recipe,
            run=replace(run, progress=show, notice=say),
        )


def build_settings(settings: Settings) -> BuildSettings:
    """Return how the settings want an index built; what none of them says is left open."""
    said = settings.model_dump(include=settings.model_fields_set)
    dense = {name: said[setting] for name, setting in _DENSE.items() if setting in said}
    language = {"language": settings.language} if "language" in said else {}
    return BuildSettings.model_validate(
        {"keep": settings.keep_snapshots, "dense": dense | {"device": settings.device}, **language}
    )


def index_models(settings: Settings) -> IndexModels:
    """Open what a build needs: the dual encoder, and the tokenizer of the cross-encoder without its weights."""
    encoder_folder = open_model_folder(settings.dual_encoder, "dual-encoder")
    cross_encoder_folder = open_model_folder(settings.cross_encoder, "cross-encoder")
    return IndexModels(
        dual_encoder=DualEncoder(encoder_folder, model_runtime(settings)),
        passage_tokenizer=Tokenizer(cross_encoder_folder.path / TOKENIZER_FILE),
        passage_tokenizer_fingerprint=cross_encoder_folder.tokenizer_fingerprint,
        encoder_name=encoder_folder.settings.name,
    )


class _Reader:
    """Reads sources one after the other, and passes on what gives no document."""

    def __init__(self, skipped: SkippedRecords, *, fails_on_error: bool) -> None:
        self._skipped, self._fails_on_error = skipped, fails_on_error
        self._source = ""

    def documents(self, sources: Sequence[str], extractor: Extractor) -> Iterator[Document]:
        n_documents = 0
        for self._source in sources:
            for record in read_documents(self._source, extractor=extractor):
                if isinstance(record, Document):
                    n_documents += 1
                    yield record
                else:
                    self._pass_on(record)
        self._skipped.finish()
        if self._skipped.count and not n_documents:
            raise SourceError(f"no document was read, {self._skipped.count:,} skipped: {self._skipped.first[0]}")
        extractor.close()  # what follows takes longer

    def skip_repeated(self, document_id: str) -> None:
        """Take the last document back: its id came before, maybe in another file."""
        reason = f"the id {document_id!r} came before"
        self._pass_on(Skipped(shown_path(self._source), None, "repeated-id", reason))

    def _pass_on(self, record: Skipped | Assumed) -> None:
        self._skipped.add(record)
        if self._fails_on_error and isinstance(record, Skipped) and record.is_fault:
            raise SourceError(str(record))


def _tell_what_was_built(
    report: BuildReport, settings: Settings, more: Mapping[str, object], started: float, *, as_json: bool
) -> None:
    """Print the report: for people on stderr, as JSON on stdout; started is of the monotonic clock."""
    seconds = time.monotonic() - started
    if as_json:
        facts: dict[str, object] = {"index": settings.index, "path": shown_path(settings.data_path, settings.index)}
        print_done(facts | _facts(report) | dict(more) | {"seconds": round(seconds, 3)})
        return
    content = f"{counted(report.n_documents, 'document')} in {counted(report.n_passages, 'passage')}"
    if report.is_unchanged:
        say(f"Index {settings.index!r} is as it was: snapshot {report.snapshot_id}, {content}; nothing was published.")
        return
    unchanged = f"{report.n_unchanged_documents:,} unchanged, " if report.n_unchanged_documents else ""
    say(
        f"Index {settings.index!r} holds {content} ({unchanged}{size(report.n_bytes)}, built in {duration(seconds)}) "
        f"and lies in {settings.data_path / settings.index}."
    )
    if report.n_gone_documents:
        n_more = report.n_gone_documents - len(report.gone_ids)
        listed = ", ".join(map(repr, report.gone_ids)) + (f" and {n_more:,} more" if n_more else "")
        gone = counted(report.n_gone_documents, "document")
        say(f"It holds {gone} of before no more, for want of --update: {listed}.")


def _facts(report: BuildReport) -> dict[str, object]:
    return {
        "snapshot": report.snapshot_id,
        "is_unchanged": report.is_unchanged,
        "language": report.language,
        "n_documents": report.n_documents,
        "n_passages": report.n_passages,
        "n_unchanged_documents": report.n_unchanged_documents,
        "n_deleted_documents": report.n_deleted_documents,
        "n_gone_documents": report.n_gone_documents,
        "gone_ids": list(report.gone_ids),
        "n_embedded_passages": report.n_embedded_passages,
        "n_cut_passages": report.n_cut_passages,
        "n_repeated_ids": report.n_repeated_ids,
        "dense": report.dense.model_dump(),
        "notices": list(report.notices),
        "n_bytes": report.n_bytes,
    }


def _tell_what_is_left_out(report: BuildReport) -> None:
    if report.n_cut_passages:
        say(f"The dual encoder could not read all of {counted(report.n_cut_passages, 'passage')}.")
    dense = report.dense
    if dense.recall is not None and dense.wanted_recall is not None and dense.recall < dense.wanted_recall:
        say(
            f"The dense index ({dense.kind}) finds {dense.recall:.1%} of the true best {dense.recall_depth} at its"
            f" greatest effort, less than the {dense.wanted_recall:.1%} that were wanted; another kind may find more."
        )
    if not report.n_documents:
        say("There was no document in it: the index is empty.")
