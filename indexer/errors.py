"""What can go wrong between documents and candidates.

IndexerError
├── SourceError     a source is missing, unreadable or of an unknown kind; or, by policy, holds a bad record
├── BuildError      a snapshot cannot be built: no space, no permission, another build is running, bad settings
├── SnapshotError   a snapshot is missing, altered, or made for another encoder or format; names both sides
└── FilterError     a filter cannot be read, or is too large; says where or by how much
"""


class IndexerError(Exception):
    """Any failure of this layer that is the caller's or the world's fault."""


class SourceError(IndexerError):
    """A source of documents cannot be read."""


class BuildError(IndexerError):
    """A snapshot cannot be built."""


class SnapshotError(IndexerError):
    """A snapshot cannot be opened."""


class FilterError(IndexerError):
    """A filter cannot be read or is too large."""
