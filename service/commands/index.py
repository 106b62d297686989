"""`tercet index`: documents in, a published snapshot out."""

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from indexer.build import BuildReport, BuildSettings, IndexModels, build_snapshot
from indexer.documents import BadRecord, Document
from indexer.errors import SourceError
from indexer.sources import read_documents
from models.dual_encoder import DualEncoder
from models.folder import TOKENIZER_FILE, open_model_folder
from models.tokenization import Tokenizer
from service.commands.build_progress import build_progress
from service.commands.output import counted, duration, print_json, say, size
from service.engine import model_threads
from service.settings import Settings

_SHOWN_RECORDS = 20


@dataclass(slots=True)
class BadRecords:
    """The records of a build's sources that are no documents: how many, and the first few."""

    count: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, record: BadRecord) -> None:
        """Count one."""
        self.count += 1
        if len(self.first) < _SHOWN_RECORDS:
            self.first.append(str(record))


def index_sources(sources: Sequence[str], settings: Settings, *, fails_on_error: bool, as_json: bool) -> None:
    """Build the configured index from sources and print what was built.

    Raises:
        SourceError, BuildError, ModelError: fit to show.
    """
    started = time.monotonic()
    with _notes_of_indexer() as notes:
        report, bad = build_index(sources, settings, fails_on_error=fails_on_error)
    seconds = time.monotonic() - started
    for note in notes:
        say(note)
    _tell_what_is_left_out(report, bad)
    if as_json:
        print_json(
            {
                "index": settings.index,
                "path": str(settings.data_path / settings.index),
                "snapshot": report.snapshot_id,
                "n_documents": report.n_documents,
                "n_passages": report.n_passages,
                "n_cut_passages": report.n_cut_passages,
                "n_bad_records": bad.count,
                "bad_records": bad.first,
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
    sources: Sequence[str], settings: Settings, *, fails_on_error: bool
) -> tuple[BuildReport, BadRecords]:
    """Build and publish the configured index, showing progress on stderr.

    Raises:
        SourceError: a source cannot be read, or holds a bad record and fails_on_error is set.
        BuildError: the index cannot be written, or an id comes again and fails_on_error is set.
        ModelError: the configured encoder or cross-encoder cannot be used.
    """
    bad = BadRecords()
    models = _index_models(settings)
    with build_progress(settings.progress) as show:
        report = build_snapshot(
            _documents(sources, bad, fails_on_error=fails_on_error),
            index_path=settings.data_path / settings.index,
            models=models,
            settings=BuildSettings(repeated_ids="fail" if fails_on_error else "keep-first"),
            progress=show,
        )
    return report, bad


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


def _documents(sources: Sequence[str], bad: BadRecords, *, fails_on_error: bool) -> Iterator[Document]:
    for source in sources:
        for record in read_documents(source):
            if isinstance(record, Document):
                yield record
            elif fails_on_error:
                raise SourceError(str(record))
            else:
                bad.add(record)


@contextmanager
def _notes_of_indexer() -> Iterator[list[str]]:
    """Collect what the indexer logs meanwhile, such as how many files of other kinds it left out."""
    notes: list[str] = []

    def note(record: logging.LogRecord) -> bool:
        kinds = getattr(record, "n_by_suffix", {})
        counts = ", ".join(f"{n:,} {suffix or 'without a suffix'}" for suffix, n in sorted(kinds.items()))
        notes.append(f"Note: {record.getMessage()}{f': {counts}' if counts else ''}.")
        return False

    logger, level = logging.getLogger("indexer.sources"), logging.getLogger("indexer.sources").level
    logger.addFilter(note)
    logger.setLevel(logging.INFO)
    try:
        yield notes
    finally:
        logger.setLevel(level)
        logger.removeFilter(note)


def _tell_what_is_left_out(report: BuildReport, bad: BadRecords) -> None:
    for record in bad.first:
        say(f"Skipped {record}")
    if bad.count > len(bad.first):
        say(f"Skipped {counted(bad.count - len(bad.first), 'more bad record')}.")
    if report.n_repeated_ids:
        examples = ", ".join(report.repeated_ids)
        say(f"Left out {counted(report.n_repeated_ids, 'document')} whose id came before: {examples}")
    if report.n_cut_passages:
        say(f"The dual encoder could not read all of {counted(report.n_cut_passages, 'passage')}.")
    if not report.n_documents:
        say("There was no document in it: the index is empty.")
