"""What can go wrong between documents and candidates.

IndexerError
├── SourceError     a source is missing, unreadable or of an unknown kind; or, by policy, holds a bad record
├── NoDocumentError a file or record gives no document; sources turn it into `documents.Skipped`
├── BuildError      a snapshot cannot be built: no space, no permission, another build is running, bad settings
├── SnapshotError   a snapshot is missing, altered, or made for another encoder or format; names both sides
└── FilterError     a filter cannot be read, or is too large; says where or by how much
"""

from indexer.documents import SkipKind, Skipped


class IndexerError(Exception):
    """Any failure of this layer that is the caller's or the world's fault."""


class SourceError(IndexerError):
    """A source of documents cannot be read."""


class NoDocumentError(IndexerError):
    """A file or a record gives no document; its words quote nothing of the content."""

    def __init__(self, kind: SkipKind, reason: str, *, line: int | None = None) -> None:
        super().__init__(reason)
        self.kind, self.line = kind, line

    def skipped(self, file: str, line: int | None = None) -> Skipped:
        """Return what a source yields in its place; the line is that of the error, if it knows one."""
        return Skipped(file, line if self.line is None else self.line, self.kind, str(self))


class BuildError(IndexerError):
    """A snapshot cannot be built."""


class SnapshotError(IndexerError):
    """A snapshot cannot be opened."""


class FilterError(IndexerError):
    """A filter cannot be read or is too large."""


def installing(extra: str) -> str:
    """Return how an extra is installed, as a clause; Tercet is installed from its folder and is on no package index."""
    return f"run pip install --editable '.[{extra}]' in Tercet's folder"
