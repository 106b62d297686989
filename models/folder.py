"""The model folder: `model.onnx`, `tokenizer.json` and `model.json`, which describes and authenticates the other two.

Nothing about a model lives outside its folder. Opening one verifies every hash, so a folder that opens is the one
that was measured.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from models.errors import ModelFolderError

BUNDLED = Path(__file__).parent / "bundled"
BUNDLED_DUAL_ENCODER = "minilm-l6-dual-encoder"
BUNDLED_CROSS_ENCODER = "tercet-l6-cross-encoder"
BUNDLED_READER = "tercet-l6-reader"

FORMAT_VERSION: Literal[1] = 1
SETTINGS_FILE = "model.json"
WEIGHTS_FILE = "model.onnx"
TOKENIZER_FILE = "tokenizer.json"

Kind = Literal["dual-encoder", "cross-encoder", "reader"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class RelevanceCalibration(_Frozen):
    """Weights of the relevance logit, see `models.calibration`; origin names the data they were learned on."""

    logit_weight: float = Field(gt=0)
    dense_weight: float = 0.0
    rrf_weight: float = 0.0
    bias: float = 0.0
    origin: str


class AnswerCalibration(_Frozen):
    """The no-answer threshold on the null margin, and the Platt weights that turn a margin into a probability."""

    threshold: float
    margin_weight: float = Field(gt=0)
    margin_bias: float
    origin: str


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
    answer: AnswerCalibration | None = None
    origin: str
    licence: str
    recipe: dict[str, Any] = Field(default_factory=dict)
    files: dict[str, str] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A verified model folder; fingerprint is the sha256 of its settings, which hold the hash of each file."""

    path: Path
    settings: ModelSettings

    @property
    def fingerprint(self) -> str:
        """Change whenever anything about the model changes."""
        canonical = json.dumps(self.settings.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()

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
        ModelFolderError: nothing is there, a file is missing or altered, or the model is of another kind.
    """
    path = _locate(name_or_path)
    settings = _read_settings(path / SETTINGS_FILE)
    if kind is not None and settings.kind != kind:
        raise ModelFolderError(f"{path} holds a {settings.kind}; a {kind} was asked for")
    for name in (WEIGHTS_FILE, TOKENIZER_FILE):
        if name not in settings.files:
            raise ModelFolderError(f"{path / SETTINGS_FILE} lists no sha256 for {name}")
    for name, expected in settings.files.items():
        _verify(path / name, expected)
    return ModelFolder(path, settings)


def write_settings(path: Path, settings: ModelSettings) -> ModelFolder:
    """Write model.json for the files that lie in path, with their present hashes, and return the folder."""
    files = {name: sha256_of(path / name) for name in (WEIGHTS_FILE, TOKENIZER_FILE)}
    hashed = settings.model_copy(update={"files": files})
    content = json.dumps(hashed.model_dump(mode="json"), indent=2, ensure_ascii=False)
    (path / SETTINGS_FILE).write_text(content + "\n", encoding="utf-8")
    return ModelFolder(path, hashed)


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
        version = content.get("format_version") if isinstance(content, dict) else None
        if version != FORMAT_VERSION:
            raise ModelFolderError(f"{path} has format version {version}; this Tercet reads version {FORMAT_VERSION}")
        return ModelSettings.model_validate(content)
    except (OSError, ValueError) as error:
        reason = first_fault(error) if isinstance(error, ValidationError) else str(error)
        raise ModelFolderError(f"{path} cannot be read: {reason}") from error


def first_fault(error: ValidationError) -> str:
    """Return the first fault of a file's content as `field.field: what is wrong`, quoting nothing of it."""
    fault = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}"


def _verify(path: Path, expected: str) -> None:
    if not path.is_file():
        raise ModelFolderError(f"{path} is missing")
    found = sha256_of(path)
    if found != expected:
        raise ModelFolderError(f"{path} was altered: its sha256 is {found[:12]}…, model.json says {expected[:12]}…")
