"""manifest.json: what a snapshot holds, what made it, and the sha256 of each of its files."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import orjson
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_core import PydanticCustomError

from indexer.ann import DenseRecord, DenseWish, choose_kind
from indexer.chunking import ChunkingSettings
from indexer.errors import SnapshotError
from indexer.layout import snapshot_files
from models.folder import first_fault, sha256_of

FORMAT_VERSION: Literal[2] = 2
MANIFEST_FILE = "manifest.json"

_EARLIEST, _LATEST = datetime(2000, 1, 1, tzinfo=UTC), datetime(3000, 1, 1, tzinfo=UTC)
_Count: TypeAlias = Annotated[int, Field(ge=0, lt=1 << 31)]  # rows are int32
_Time: TypeAlias = Annotated[
    AwareDatetime, Field(ge=_EARLIEST, lt=_LATEST), AfterValidator(lambda time: time.astimezone(UTC))
]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class EncoderRecord(_Frozen):
    """The dual encoder that embedded the passages."""

    name: str
    fingerprint: str
    dimension: int = Field(ge=1, lt=1 << 31)


class Bm25Record(_Frozen):
    """The BM25 index: the analyzer that made its terms, and its constants."""

    analyzer: str
    k1: float = Field(gt=0)
    b: float = Field(ge=0, le=1)
    n_terms: _Count


class FileRecord(_Frozen):
    """One file of the snapshot."""

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    n_bytes: int = Field(ge=0, lt=1 << 63)


class Manifest(_Frozen):
    """The content of manifest.json; files are named relative to the snapshot's folder, and none is left out."""

    format_version: Literal[2] = FORMAT_VERSION
    snapshot_id: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=200)
    created_at: _Time
    n_documents: _Count
    n_passages: _Count
    n_cut_passages: _Count = Field(description="passages of which the dual encoder did not see every token")
    encoder: EncoderRecord
    passage_tokenizer_fingerprint: str
    bm25: Bm25Record
    dense: DenseRecord
    dense_wish: DenseWish | None = Field(default=None, description="null: built before wishes were written down")
    chunking: ChunkingSettings
    files: dict[str, FileRecord]
    evaluation: dict[str, float] = Field(default_factory=dict)

    @field_validator("files")
    @classmethod
    def _are_those_of_a_snapshot(cls, files: dict[str, FileRecord], info: ValidationInfo) -> dict[str, FileRecord]:
        dense = info.data.get("dense")
        if isinstance(dense, DenseRecord):  # else that is the fault
            expected = snapshot_files(has_ann=dense.kind != "flat")
            if missing := sorted(expected - files.keys()):
                raise PydanticCustomError("files", "{name} is missing", {"name": missing[0]})
            if unknown := sorted(files.keys() - expected):
                raise PydanticCustomError("files", "{name} is no file of a snapshot", {"name": repr(unknown[0][:100])})
        return files

    @property
    def wish(self) -> DenseWish:
        """Return which dense index was wanted; where nothing says so, what would give the one that is there."""
        if self.dense_wish is not None:
            return self.dense_wish
        by_itself = choose_kind(self.n_passages, self.encoder.dimension, DenseWish())
        said = {"kind": "auto" if self.dense.kind == by_itself else self.dense.kind, "recall": self.dense.wanted_recall}
        return DenseWish.model_validate({name: value for name, value in said.items() if value is not None})

    @property
    def n_bytes(self) -> int:
        """Return the size of all files together."""
        return sum(record.n_bytes for record in self.files.values())


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of a snapshot's folder.

    Raises:
        SnapshotError: it is missing, malformed, or of another format version.
    """
    path = folder / MANIFEST_FILE
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise SnapshotError(f"{path} is missing") from error
    except OSError as error:
        raise SnapshotError(f"{path} cannot be read: {error}") from error
    return parse_manifest(content, str(path))


def parse_manifest(content: bytes, name: str) -> Manifest:
    """Return the manifest that content holds; name is what errors call it. Raises as `read_manifest`."""
    try:
        parsed = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise SnapshotError(f"{name} is not JSON: {error}") from error
    version = parsed.get("format_version") if isinstance(parsed, dict) else None
    if version != FORMAT_VERSION:
        found = f"format version {version}" if isinstance(version, int) else "no format version"
        raise SnapshotError(f"{name} has {found}; this Tercet reads version {FORMAT_VERSION}")
    try:
        return Manifest.model_validate(parsed)
    except ValidationError as error:
        raise SnapshotError(f"{name}: {first_fault(error)}") from error


def record_files(folder: Path) -> dict[str, FileRecord]:
    """Return the record of every file under a folder, but for a manifest, sorted by name."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST_FILE)
    return {
        path.relative_to(folder).as_posix(): FileRecord(sha256=sha256_of(path), n_bytes=path.stat().st_size)
        for path in paths
    }


def verify_files(folder: Path, manifest: Manifest, *, with_hashes: bool) -> None:
    """Compare the files under a folder with the manifest: their presence and size, and their content if wanted.

    Raises:
        SnapshotError: a file is missing or altered.
    """
    for name, expected in manifest.files.items():
        verify_file(folder / name, expected, with_hash=with_hashes)


def verify_file(path: Path, expected: FileRecord, *, with_hash: bool) -> None:
    """Compare one file with its record, as `verify_files`."""
    if not path.is_file():
        raise SnapshotError(f"{path} is missing")
    if path.stat().st_size != expected.n_bytes:
        raise SnapshotError(f"{path} has {path.stat().st_size} bytes; the manifest says {expected.n_bytes}")
    if with_hash and (found := sha256_of(path)) != expected.sha256:
        raise SnapshotError(f"{path} was altered: sha256 {found[:12]}…, the manifest says {expected.sha256[:12]}…")
