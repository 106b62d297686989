"""What a build is told: for which models, how to cut and index, and what becomes of the documents that are there."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

from indexer.analysis import Analyzer
from indexer.ann import DenseSettings
from indexer.chunking import ChunkingSettings
from indexer.errors import BuildError
from indexer.manifest import Manifest
from indexer.publish import KEPT_SNAPSHOTS
from models.dual_encoder import Embeddings
from models.tokenization import Tokenizer

_WISHES = {
    "kind": "wanted dense index",
    "recall": "wanted recall of a dense index",
    "memory_bytes": "memory for a dense index in bytes",
}

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
    """How an index is built. What is not given is, in a build that keeps documents, as it was for them.

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

    def over(self, before: Manifest) -> "BuildSettings":
        """Return these settings, and those of a snapshot wherever nothing was given.

        Raises:
            BuildError: no language was given, and that of the snapshot is not known any more.
        """
        analyzer = Analyzer.named(before.bm25.analyzer)
        if analyzer is None and "language" not in self.model_fields_set:
            raise BuildError(
                f"snapshot {before.snapshot_id} was built with the analyzer {before.bm25.analyzer!r}, which this Tercet"
                " does not have: say the language"
            )
        there = {
            "language": analyzer.language if analyzer is not None else None,
            "chunking": before.chunking,
            "k1": before.bm25.k1,
            "b": before.bm25.b,
        }
        kept = {name: value for name, value in there.items() if name not in self.model_fields_set}
        wish = {name: value for name, value in before.wish if name not in self.dense.model_fields_set}
        return self.model_copy(update=kept | {"dense": self.dense.model_copy(update=wish)})


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
    raise to end the build. notice is told in sentences what is otherwise than a user may expect. accept is shown the
    folder of the complete snapshot before it is published; it raises to refuse it, and returns the figures that the
    manifest shall hold.
    """

    change: Change | None = None
    progress: Callable[[BuildProgress], None] = lambda progress: None
    repeated: Callable[[str], None] = lambda document_id: None
    notice: Callable[[str], None] = lambda sentence: None
    accept: Callable[[Path], Mapping[str, float]] | None = None


def differences(before: Manifest, settings: BuildSettings, models: IndexModels) -> Iterator[str]:
    """Yield a sentence on each part of a snapshot's recipe that is another one now."""
    analyzer, made, encoder = Analyzer.named(before.bm25.analyzer), before.encoder, models.dual_encoder
    if before.bm25.analyzer != settings.analyzer.name:
        language = analyzer.language if analyzer is not None else before.bm25.analyzer
        yield f"The language is {settings.language} now, {language} before: all passages are analyzed anew."
    if made.fingerprint != encoder.fingerprint:
        now, then = f"{models.encoder_name} ({encoder.fingerprint[:12]})", f"{made.name} ({made.fingerprint[:12]})"
        yield f"The dual encoder is {now} now, {then} before: all passages are embedded anew."
    if before.passage_tokenizer_fingerprint != models.passage_tokenizer_fingerprint:
        yield "The cross-encoder's tokenizer is another one than before: all passages are tokenized anew."
    if before.chunking != settings.chunking:
        yield "Passages are cut otherwise than before: all are made anew."
    if (before.bm25.k1, before.bm25.b) != (settings.k1, settings.b):
        yield f"BM25's k1 and b are {settings.k1} and {settings.b} now, {before.bm25.k1} and {before.bm25.b} before."
    for name, then in before.wish:
        if then != (now := getattr(settings.dense, name)):
            yield f"The {_WISHES[name]} is {_said(now)} now, {_said(then)} before."


def _said(value: object) -> str:
    return "not bounded" if value is None else str(value)
