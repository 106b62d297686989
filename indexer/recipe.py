"""What a build is told: for which models, how to cut and index, and what becomes of the documents that are there."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

from indexer.analysis import Analyzer
from indexer.ann import DenseSettings
from indexer.chunking import ChunkingSettings
from indexer.publish import KEPT_SNAPSHOTS
from models.dual_encoder import Embeddings
from models.tokenization import Tokenizer

Stage = Literal["read", "chunk", "embed", "publish"]


class PassageEncoder(Protocol):
    """What a build needs of `models.dual_encoder.DualEncoder`."""

    fingerprint: str
    dimension: int
    tokenizer: Tokenizer

    def encode_passages(self, passages: Sequence[str]) -> Embeddings:
        """Return the vectors of passages, in order."""
        ...


@dataclass(frozen=True, slots=True)
class IndexModels:
    """The models that an index is built for: its dual encoder, and the cross-encoder's tokenizer."""

    dual_encoder: PassageEncoder
    passage_tokenizer: Tokenizer
    passage_tokenizer_fingerprint: str
    encoder_name: str = "dual encoder"


class BuildSettings(BaseModel):
    """How an index is built.

    language is one of `indexer.analysis.LANGUAGES`; keep is how many snapshots stay, the new one counted.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    chunking: ChunkingSettings = ChunkingSettings()
    language: str = "english"
    k1: float = Field(default=1.2, gt=0)
    b: float = Field(default=0.75, ge=0, le=1)
    dense: DenseSettings = DenseSettings()
    keep: int = Field(default=KEPT_SNAPSHOTS, ge=1)

    @property
    def analyzer(self) -> Analyzer:
        """The analyzer of the language."""
        return Analyzer.of(self.language)


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of the documents that are there: all but the deleted ids stay, unless the sources have them anew."""

    deleted_ids: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class BuildProgress:
    """How far a build is: documents in "read" and "chunk", passages in "embed"; total is None while it is unknown."""

    stage: Stage
    done: int
    total: int | None


@dataclass(frozen=True, slots=True)
class BuildRun:
    """One run of a build.

    change keeps the documents that are there, but for those that it deletes; None for the given ones only. progress is
    told how far the build is, repeated the id of each document that is left out because that id came before; either may
    raise to end the build. accept is shown the folder of the complete snapshot before it is published; it raises to
    refuse it, and returns the figures that the manifest shall hold.
    """

    change: Change | None = None
    progress: Callable[[BuildProgress], None] = lambda progress: None
    repeated: Callable[[str], None] = lambda document_id: None
    accept: Callable[[Path], Mapping[str, float]] | None = None
