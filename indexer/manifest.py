"""manifest.json: what a snapshot holds, what made it, and the sha256 of each of its files."""

import json
from datetime import datetime
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from indexer.ann import DenseRecord
from indexer.chunking import ChunkingSettings
from indexer.errors import SnapshotError
from models.folder import first_fault, sha256_of

FORMAT_VERSION: Literal[2] = 2
MANIFEST_FILE = "manifest.json"


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class EncoderRecord(_Frozen):
    """The dual encoder that embedded the passages."""

    name: str
    fingerprint: str
    dimension: int = Field(ge=1)


class Bm25Record(_Frozen):
    """The BM25 index: the analyzer that made its terms, and its constants."""

    analyzer: str
    k1: float
    b: float
    n_terms: int = Field(ge=0)


class FileRecord(_Frozen):
    """One file of the snapshot."""

    sha256: str
    n_bytes: int = Field(ge=0)


class Manifest(_Frozen):
    """The content of manifest.json; files are named relative to the snapshot's folder."""

    format_version: Literal[2] = FORMAT_VERSION
    snapshot_id: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    created_at: datetime
    n_documents: int = Field(ge=0)
    n_passages: int = Field(ge=0)
    n_cut_passages: int = Field(ge=0, description="passages of which the dual encoder did not see every token")
    encoder: EncoderRecord
    passage_tokenizer_fingerprint: str
    bm25: Bm25Record
    dense: DenseRecord
    chunking: ChunkingSettings
    files: dict[str, FileRecord]
    evaluation: dict[str, float] = Field(default_factory=dict)


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
        parsed = json.loads(content)
        version = parsed.get("format_version") if isinstance(parsed, dict) else None
        if version != FORMAT_VERSION:
            raise SnapshotError(f"{name} has format version {version}; this Tercet reads version {FORMAT_VERSION}")
        return Manifest.model_validate(parsed)
    except ValidationError as error:
        raise SnapshotError(f"{name}: {first_fault(error)}") from error
    except ValueError as error:
        raise SnapshotError(f"{name} cannot be read: {error}") from error


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
        path = folder / name
        if not path.is_file():
            raise SnapshotError(f"{path} is missing")
        if path.stat().st_size != expected.n_bytes:
            raise SnapshotError(f"{path} has {path.stat().st_size} bytes; the manifest says {expected.n_bytes}")
        if with_hashes and (found := sha256_of(path)) != expected.sha256:
            raise SnapshotError(f"{path} was altered: sha256 {found[:12]}…, the manifest says {expected.sha256[:12]}…")
