"""`tercet index`: documents in, a published snapshot out."""

import time
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

from indexer.build import BuildReport, BuildSettings, IndexModels, build_snapshot
from indexer.documents import Document, Skipped
from indexer.errors import SourceError
from indexer.sources import read_documents
from models.dual_encoder import DualEncoder
from models.folder import TOKENIZER_FILE, open_model_folder
from models.tokenization import Tokenizer
from service.commands.build_progress import build_progress
from service.commands.output import counted, duration, print_json, say, size
from service.commands.skipped import SkippedRecords, skipped_records
from service.engine import model_threads
from service.settings import Settings


def index_sources(
    sources: Sequence[str], settings: Settings, *, fails_on_error: bool, as_json: bool, report_path: Path | None = None
) -> None:
    """Build the configured index from sources, print what was built, and tell what was skipped.

    Raises:
        SourceError, BuildError, ModelError, OSError: fit to show; the last if the report cannot be written.
    """
    started = time.monotonic()
    with skipped_records(report_path) as skipped:
        report = build_index(sources, settings, fails_on_error=fails_on_error, skipped=skipped)
    seconds = time.monotonic() - started
    _tell_what_is_left_out(report)
    if as_json:
        print_json(
            {
                "index": settings.index,
                "path": str(settings.data_path / settings.index),
                "snapshot": report.snapshot_id,
                "n_documents": report.n_documents,
                "n_passages": report.n_passages,
                "n_cut_passages": report.n_cut_passages,
                **skipped.as_json(),
                "n_repeated_ids": report.n_repeated_ids,
                "repeated_ids": list(report.repeated_ids),
                "n_bytes": report.n_bytes,
                "seconds": round(seconds, 3),
            }
        )
        return
    content = f"{counted(report.n_documents, 'document')} in {counted(report.n_passages, 'passage')}"
    say(
        f"Index {settings.index!r} holds {content} ({size(report.n_bytes)}, built in {duration(seconds)}) "
        f"and lies in {settings.data_path / settings.index}."
    )


def build_index(
    sources: Sequence[str], settings: Settings, *, fails_on_error: bool, skipped: SkippedRecords | None = None
) -> BuildReport:
    """Build and publish the configured index, showing progress on stderr; skipped takes what gave no document.

    Raises:
        SourceError: a source cannot be read, or holds a fault and fails_on_error is set, or all that it holds was
            skipped: an index of nothing would take the place of a good one.
        BuildError: the index cannot be written, or an id comes again and fails_on_error is set.
        ModelError: the configured encoder or cross-encoder cannot be used.
    """
    models = _index_models(settings)
    with build_progress(settings.progress) as show:
        return build_snapshot(
            _documents(sources, SkippedRecords() if skipped is None else skipped, fails_on_error=fails_on_error),
            index_path=settings.data_path / settings.index,
            models=models,
            settings=BuildSettings(repeated_ids="fail" if fails_on_error else "keep-first"),
            progress=show,
        )


def _index_models(settings: Settings) -> IndexModels:
    """Open what a build needs: the dual encoder, and the tokenizer of the cross-encoder without its weights."""
    encoder_folder = open_model_folder(settings.dual_encoder, "dual-encoder")
    cross_encoder_folder = open_model_folder(settings.cross_encoder, "cross-encoder")
    return IndexModels(
        dual_encoder=DualEncoder(encoder_folder, n_threads=model_threads(settings), device=settings.device),
        passage_tokenizer=Tokenizer(cross_encoder_folder.path / TOKENIZER_FILE),
        passage_tokenizer_fingerprint=cross_encoder_folder.tokenizer_fingerprint,
        encoder_name=encoder_folder.settings.name,
    )


def _documents(sources: Sequence[str], skipped: SkippedRecords, *, fails_on_error: bool) -> Iterator[Document]:
    n_documents = 0
    for record in chain.from_iterable(map(read_documents, sources)):
        if isinstance(record, Document):
            n_documents += 1
            yield record
            continue
        skipped.add(record)
        if fails_on_error and isinstance(record, Skipped) and record.is_fault:
            raise SourceError(str(record))
    if skipped.count and not n_documents:
        raise SourceError(f"no document was read, {skipped.count:,} skipped: {skipped.first[0]}")


def _tell_what_is_left_out(report: BuildReport) -> None:
    if report.n_repeated_ids:
        examples = ", ".join(report.repeated_ids)
        say(f"Left out {counted(report.n_repeated_ids, 'document')} whose id came before: {examples}")
    if report.n_cut_passages:
        say(f"The dual encoder could not read all of {counted(report.n_cut_passages, 'passage')}.")
    if not report.n_documents:
        say("There was no document in it: the index is empty.")
