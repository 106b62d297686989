"""The model folder: `model.onnx`, `tokenizer.json` and `model.json`, which describes and authenticates itself and them.

Nothing about a model lives outside its folder. Opening one verifies every hash, so a folder that opens is the one
that was measured.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from models.errors import ModelFolderError, shown
from models.tokenization import SPECIAL_TOKENS

BUNDLED = Path(__file__).parent / "bundled"
BUNDLED_DUAL_ENCODER = "minilm-l6-dual-encoder"
BUNDLED_CROSS_ENCODER = "tercet-l6-cross-encoder"
BUNDLED_READER = "tercet-l6-reader"

FORMAT_VERSION: Literal[1] = 1
SETTINGS_FILE = "model.json"
WEIGHTS_FILE = "model.onnx"
TOKENIZER_FILE = "tokenizer.json"
BEST_FOLDER = "best"  # of a training run: the checkpoint that is exported
_FINGERPRINT = "fingerprint"  # the field of model.json that authenticates the others; a folder made by hand has none

Kind = Literal["dual-encoder", "cross-encoder", "reader"]

# What each kind of graph gives, by name.
OUTPUTS: Mapping[Kind, tuple[str, ...]] = {
    "dual-encoder": ("last_hidden_state",),
    "cross-encoder": ("logits",),
    "reader": ("start_logits", "end_logits"),
}


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class RelevanceCalibration(_Frozen):
    """Weights of the relevance logit, see `models.calibration`; origin names the data they were learned on.

    Beside the mix that orders what was retrieved, a model has the logit alone for pairs, whose other weights are 0.
    n_examples counts candidates; calibration_error is the expected calibration error on queries that were held out.
    """

    logit_weight: float = Field(gt=0)
    dense_weight: float = 0.0
    bm25_weight: float = 0.0
    bias: float = 0.0
    origin: str
    n_examples: int | None = Field(default=None, ge=1)
    calibration_error: float | None = Field(default=None, ge=0, le=1)


class EarlyExitCalibration(_Frozen):
    """How far unread candidates may lie above those read, see `models.early_exit`; with it goes the mix of relevance.

    Of n_queries dev queries of origin, as many as confidence says keep their best k.
    """

    deviations: float = Field(ge=0)
    confidence: float = Field(gt=0, lt=1)
    k: int = Field(ge=1)
    origin: str
    n_queries: int = Field(ge=1)


class AnswerCalibration(_Frozen):
    """The no-answer threshold on the null margin, and the Platt weights that turn a margin into a probability.

    n_examples counts questions; calibration_error is the expected calibration error on questions that were held out.
    """

    threshold: float
    margin_weight: float = Field(gt=0)
    margin_bias: float
    origin: str
    n_examples: int | None = Field(default=None, ge=1)
    calibration_error: float | None = Field(default=None, ge=0, le=1)


class ExportParity(_Frozen):
    """How far a graph is from the checkpoint it was made of, over n_inputs inputs, measured when it was exported.

    fp32_max_difference is between torch and the fp32 graph, the int8 figures are between the fp32 graph and the int8
    one, all in the unit of the outputs; int8_noise is the root mean square of that difference as a share of that of the
    outputs, rank_agreement the share of pairs of inputs that a cross-encoder orders alike in both.
    """

    n_inputs: int = Field(ge=1)
    longest_tokens: int = Field(ge=1)
    fp32_max_difference: float = Field(ge=0)
    int8_max_difference: float | None = Field(default=None, ge=0)
    int8_mean_difference: float | None = Field(default=None, ge=0)
    int8_noise: float | None = Field(default=None, ge=0)
    rank_agreement: float | None = Field(default=None, ge=0, le=1)


class ModelSettings(_Frozen):
    """The content of `model.json`. Lengths are in tokens, special tokens included in max_tokens."""

    format_version: Literal[1] = FORMAT_VERSION
    name: str = Field(min_length=1)
    kind: Kind
    architecture: str
    max_tokens: int = Field(ge=16)
    max_query_tokens: int = Field(ge=1)
    overlap_tokens: int = Field(default=0, ge=0)
    pooling: Literal["mean"] | None = None
    query_prefix: str = ""
    passage_prefix: str = ""
    token_types: bool = True
    outputs: tuple[str, ...]
    relevance: RelevanceCalibration | None = None
    pair_relevance: RelevanceCalibration | None = None
    early_exit: EarlyExitCalibration | None = None
    answer: AnswerCalibration | None = None
    parity: ExportParity | None = None
    origin: str
    licence: str
    recipe: dict[str, Any] = Field(default_factory=dict)
    files: dict[str, str] = Field(default_factory=dict)

    @property
    def fingerprint(self) -> str:
        """Change whenever anything that was set does.

        What was not set does not count, so a field that a later Tercet adds leaves the fingerprints of older folders,
        and the indexes built with them, as they are.
        """
        said = self.model_dump(mode="json", exclude_unset=True)
        canonical = json.dumps(said, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A verified model folder; fingerprint is the sha256 of its settings, which hold the hash of each file."""

    path: Path
    settings: ModelSettings

    @property
    def fingerprint(self) -> str:
        """Change whenever anything about the model changes."""
        return self.settings.fingerprint

    @property
    def tokenizer_fingerprint(self) -> str:
        """Equal for two models whose tokenizers are the same file."""
        return self.settings.files[TOKENIZER_FILE]


def open_model_folder(name_or_path: str, kind: Kind | None) -> ModelFolder:
    """Return the bundled model of that name, or the model folder at that path, once its hashes are verified.

    Args:
        name_or_path: as the settings have it.
        kind: what it must be, None for any.

    Raises:
        ModelFolderError: nothing is there, a file is missing or altered, the model is of another kind, or its settings
            contradict each other.
    """
    path = _locate(name_or_path)
    settings = _read_settings(path / SETTINGS_FILE)
    if kind is not None and settings.kind != kind:
        raise ModelFolderError(f"{path} holds a {settings.kind}; a {kind} was asked for")
    contradiction = _contradiction(settings)
    if contradiction is not None:
        raise ModelFolderError(f"{path / SETTINGS_FILE} contradicts itself: {contradiction}")
    for name in (WEIGHTS_FILE, TOKENIZER_FILE):
        if name not in settings.files:
            raise ModelFolderError(f"{path / SETTINGS_FILE} lists no sha256 for {name}")
    for name in settings.files.keys() - {WEIGHTS_FILE, TOKENIZER_FILE}:
        raise ModelFolderError(f"{path / SETTINGS_FILE} lists {shown(name)}, which is no file of a model")
    for name, expected in settings.files.items():
        _verify(path / name, expected)
    return ModelFolder(path, settings)


def write_settings(path: Path, settings: ModelSettings) -> ModelFolder:
    """Write model.json for the files that lie in path, with their present hashes, and return the folder.

    The file is replaced in one rename: whatever fails, a whole model.json is there.
    """
    files = {name: sha256_of(path / name) for name in (WEIGHTS_FILE, TOKENIZER_FILE)}
    content = settings.model_dump(mode="json") | {"files": files}
    written = ModelSettings.model_validate(content)
    content[_FINGERPRINT] = written.fingerprint
    partial = path / f"{SETTINGS_FILE}.{os.getpid()}.partial"
    try:
        partial.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        os.replace(partial, path / SETTINGS_FILE)
    finally:
        partial.unlink(missing_ok=True)
    return ModelFolder(path, written)


def says_its_fingerprint(folder: ModelFolder) -> bool:
    """Return whether model.json authenticates itself, which it was compared with when the folder was opened."""
    return json.loads((folder.path / SETTINGS_FILE).read_bytes()).get(_FINGERPRINT) is not None


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file as hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def bundled_names() -> list[str]:
    """Return the names of the models that come with Tercet, sorted."""
    return sorted(path.parent.name for path in BUNDLED.glob(f"*/{SETTINGS_FILE}"))


def _locate(name_or_path: str) -> Path:
    for path in (BUNDLED / name_or_path, Path(name_or_path)):
        if (path / SETTINGS_FILE).is_file():
            return path
    raise ModelFolderError(
        f"{name_or_path!r} is neither a bundled model ({', '.join(bundled_names())}) "
        f"nor a folder with a {SETTINGS_FILE}"
    )


def _read_settings(path: Path) -> ModelSettings:
    try:
        content = json.loads(path.read_bytes())
        json.dumps(content, ensure_ascii=False).encode()  # fails for lone surrogates, which nothing could show
        version = content.get("format_version") if isinstance(content, dict) else None
        if version != FORMAT_VERSION:
            found = f"format version {shown(str(version))}"
            raise ModelFolderError(f"{path} has {found}; this Tercet reads version {FORMAT_VERSION}")
        relevance = content.get("relevance")
        if isinstance(relevance, dict) and "rrf_weight" in relevance:  # ADR 23
            raise ModelFolderError(
                f"{path} was calibrated by an older Tercet: take 'relevance', 'pair_relevance', 'early_exit' and "
                f"{_FINGERPRINT!r} out of it and run `tercet calibrate reranker` again"
            )
        expected = content.pop(_FINGERPRINT, None)
        settings = ModelSettings.model_validate(content)
        if expected not in (None, settings.fingerprint):
            found, expected = settings.fingerprint[:12], shown(str(expected)[:12])
            raise ModelFolderError(
                f"{path} was altered: its fingerprint is {found}…, it says {expected}…; "
                f"take {_FINGERPRINT!r} out of it if it is as you want it"
            )
    except (OSError, ValueError, RecursionError) as error:
        reason = first_fault(error) if isinstance(error, ValidationError) else str(error)
        raise ModelFolderError(f"{path} cannot be read: {reason}") from error
    return settings


def _contradiction(settings: ModelSettings) -> str | None:
    """Return what in the settings does not fit together, None where all does."""
    if settings.outputs != OUTPUTS[settings.kind]:
        wanted, found = (", ".join(each) for each in (OUTPUTS[settings.kind], settings.outputs))
        return f"a {settings.kind} gives {wanted}, not {shown(found)}"
    room = settings.max_tokens - settings.max_query_tokens - SPECIAL_TOKENS
    if settings.kind != "dual-encoder" and settings.overlap_tokens >= room:
        beside = f"a query of {settings.max_query_tokens} tokens and an overlap of {settings.overlap_tokens}"
        return f"max_tokens is {settings.max_tokens}, which leaves no room beside {beside}"
    if settings.parity is not None and settings.parity.longest_tokens < settings.max_tokens:
        return f"max_tokens is {settings.max_tokens}, but its graph was tried with {settings.parity.longest_tokens}"
    return None


def first_fault(error: ValidationError) -> str:
    """Return the first fault of a file's content as `field.field: what is wrong`, quoting no value of it."""
    fault = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(shown(str(part)) for part in fault["loc"])
    return f"{place}: {fault['msg']}" if place else fault["msg"]


def _verify(path: Path, expected: str) -> None:
    if not path.is_file():
        raise ModelFolderError(f"{path} is missing")
    found = sha256_of(path)
    if found != expected:
        raise ModelFolderError(f"{path} was altered: its sha256 is {found[:12]}…, model.json says {expected[:12]}…")
