"""Documents, what sources say where there is none, the passages cut from documents, and the text that models see.

Every offset is half-open and counts code points of the document's text: `document.text[start:end]` is the passage.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, TypeAlias

MetadataValue: TypeAlias = str | int | float | bool
Metadata: TypeAlias = Mapping[str, MetadataValue]

HEADING_SEPARATOR = " > "
INT64 = range(-(1 << 63), 1 << 63)
NO_METADATA: Metadata = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Document:
    """The unit that is ingested."""

    document_id: str
    text: str
    title: str = ""
    url: str | None = None
    metadata: Metadata = field(default_factory=lambda: NO_METADATA)


SkipKind: TypeAlias = Literal[
    "bad-record",
    "damaged",
    "empty",
    "link",
    "missing-column",
    "missing-extra",
    "not-text",
    "other-kind",
    "repeated-id",
    "too-long",
    "unreadable",
]
_NO_FAULT: frozenset[SkipKind] = frozenset({"empty", "link", "other-kind"})


@dataclass(frozen=True, slots=True)
class Skipped:
    """Something in a source that gives no document; line counts from 1 by `\\n`, None where lines mean nothing.

    The reason is safe to show: it quotes nothing of the content.
    """

    file: str
    line: int | None
    kind: SkipKind
    reason: str

    @property
    def is_fault(self) -> bool:
        """Return whether something is wrong with it, rather than that there is nothing in it to be read."""
        return self.kind not in _NO_FAULT

    def __str__(self) -> str:
        """Return `file:line: reason`."""
        return f"{self.file}: {self.reason}" if self.line is None else f"{self.file}:{self.line}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Assumed:
    """A file that was read in an encoding that nothing declares: a guess from its bytes."""

    file: str
    encoding: str

    def __str__(self) -> str:
        """Return `file: read as encoding`."""
        return f"{self.file}: read as {self.encoding}"


SourceRecord: TypeAlias = Document | Skipped | Assumed


@dataclass(frozen=True, slots=True)
class Passage:
    """The unit that is indexed: the slice [start, end) of its document; heading is "" or "A > B"."""

    document_id: str
    ordinal: int
    start: int
    end: int
    heading: str = ""

    @property
    def passage_id(self) -> str:
        """Return `document_id#ordinal`."""
        return f"{self.document_id}#{self.ordinal}"


def passage_text(document: Document, passage: Passage) -> str:
    """Return what the encoders and BM25 see of a passage: its context, then its slice of the document."""
    return with_context(document.title, passage.heading, document.text[passage.start : passage.end])


def with_context(title: str, heading: str, text: str) -> str:
    """Return title, heading and text, one below the other.

    Left out are blanks, a heading that repeats the title, and whatever the text's own first line says already, so
    that the models' room is not spent twice on the same words.
    """
    first_line = _plain(text.lstrip().split("\n", 1)[0])
    parts = [title, *heading.split(HEADING_SEPARATOR)]
    context: list[str] = []
    for part in parts:
        if part.strip() and _plain(part) != first_line and part not in context:
            context.append(part)
    lines = [context[0], HEADING_SEPARATOR.join(context[1:])] if context else []
    return "\n".join(line for line in (*lines, text) if line)


def _plain(line: str) -> str:
    return line.strip("# \t\r").casefold()
