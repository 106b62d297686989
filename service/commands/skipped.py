"""What an index command tells of the files and records that gave no document."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from indexer.documents import Assumed, SkipKind, Skipped
from service.commands.faults import CommandError, explanation
from service.commands.output import counted, say
from service.commands.skip_report import SkipReport

LISTED = 20

KINDS: Mapping[SkipKind, str] = {
    "bad-record": "not a record",
    "damaged": "damaged",
    "empty": "without text",
    "link": "links to folders",
    "missing-column": "without the columns that are needed",
    "missing-extra": "waiting for an extra to be installed",
    "not-text": "not text",
    "other-kind": "of other kinds",
    "repeated-id": "with an id that came before",
    "too-long": "too long",
    "unreadable": "that cannot be read",
}
_ASIDE: frozenset[SkipKind] = frozenset({"link", "other-kind"})


@dataclass(slots=True)
class SkippedRecords:
    """Counts what was skipped by kind and keeps the first few; with a report, writes each to it as it comes.

    Files of other kinds and links are counted, but listed in the report only: a folder of documents is full of them.
    """

    report: SkipReport | None = None
    by_kind: Counter[SkipKind] = field(default_factory=Counter)
    by_suffix: Counter[str] = field(default_factory=Counter)
    first: list[str] = field(default_factory=list)
    n_assumed: int = 0
    first_assumed: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        """Return how many were skipped, files of other kinds and links left aside."""
        return sum(n for kind, n in self.by_kind.items() if kind not in _ASIDE)

    def add(self, record: Skipped | Assumed) -> None:
        """Take one."""
        if isinstance(record, Assumed):
            self.n_assumed += 1
            _keep(self.first_assumed, record)
            self._write(record.file, None, "assumed-encoding", f"read as {record.encoding}")
            return
        self.by_kind[record.kind] += 1
        if record.kind == "other-kind":
            self.by_suffix[PurePath(record.file).suffix.lower()] += 1
        elif record.kind not in _ASIDE:
            _keep(self.first, record)
        self._write(record.file, record.line, record.kind, record.reason)

    def _write(self, file: str, line: int | None, kind: str, reason: str) -> None:
        if self.report is not None:
            self.report.write({"file": file, "line": line, "kind": kind, "reason": reason})

    def finish(self) -> None:
        """Take note that all sources are read; raises CommandError if the report cannot be written to its end."""
        if self.report is not None:
            self.report.finish()

    def tell(self) -> None:
        """Say what was skipped, why, and what was assumed."""
        for line in self.first:
            say(f"Skipped {line}")
        if self.count > len(self.first):
            say(f"Skipped {self.count - len(self.first):,} more, which --report FILE lists.")
        if self.count:
            counts = (f"{n:,} {KINDS[kind]}" for kind, n in self.by_kind.most_common() if kind not in _ASIDE)
            say(f"Skipped in all: {', '.join(counts)}.")
        if self.by_suffix:
            counts = (f"{n:,} {suffix or 'without a suffix'}" for suffix, n in sorted(self.by_suffix.items()))
            say(f"Note: files of other kinds were left out: {', '.join(counts)}.")
        if self.by_kind["link"]:
            say(f"Note: {counted(self.by_kind['link'], 'link')} to folders were not followed.")
        for line in self.first_assumed:
            say(f"Note: {line}, a guess from its bytes.")
        if self.n_assumed > len(self.first_assumed):
            say(f"Note: {self.n_assumed - len(self.first_assumed):,} more files in an encoding that was guessed.")

    def as_json(self) -> dict[str, object]:
        """Return the counts and the first of each, as `tercet index --json` prints them."""
        return {
            "n_skipped": self.count,
            "skipped_by_kind": dict(sorted(self.by_kind.items())),
            "skipped": self.first,
            "n_assumed_encodings": self.n_assumed,
            "assumed_encodings": self.first_assumed,
        }


@contextmanager
def skipped_records(report: Path | None) -> Iterator[SkippedRecords]:
    """Give the place for what is skipped, and tell it at the end, also of failed work.

    Raises:
        CommandError: the report cannot be written.
    """
    skipped = SkippedRecords(None if report is None else SkipReport(report))
    try:
        yield skipped
    finally:
        try:
            skipped.finish()
        except CommandError as error:  # of work that failed: else it was finished before anything was published
            say(explanation(error))
        skipped.tell()


def _keep(first: list[str], record: Skipped | Assumed) -> None:
    if len(first) < LISTED:
        first.append(str(record))
