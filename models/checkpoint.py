"""A transformers folder as exports and training meet it: its kind, its lengths, its tokenizer, and its torch module.

Whatever is wrong with the folder becomes one sentence. Weights that an export needs and the folder lacks are an error
here; transformers would draw them at random and say so in a log.
"""

import inspect
import json
import logging
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import tokenizers
import torch
import transformers
from safetensors import SafetensorError
from torch import Tensor, nn

from models.errors import ExportError
from models.folder import BEST_FOLDER, OUTPUTS, TOKENIZER_FILE, Kind

CONFIG_FILE = "config.json"
_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
_VOCABULARIES = ("vocab.txt", "vocab.json", "spm.model", "sentencepiece.bpe.model", "tokenizer.model")
_HEADS: Mapping[str, Kind] = {
    "ForQuestionAnswering": "reader",
    "ForSequenceClassification": "cross-encoder",
    "Model": "dual-encoder",
}
LOADERS: Mapping[Kind, Any] = {
    "dual-encoder": transformers.AutoModel,
    "cross-encoder": transformers.AutoModelForSequenceClassification,
    "reader": transformers.AutoModelForQuestionAnswering,
}
_DEFAULT_TOKENS: Mapping[Kind, int] = {"dual-encoder": 256, "cross-encoder": 512, "reader": 384}
LOAD_ERRORS = (
    OSError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    RuntimeError,
    ImportError,
    EOFError,
    pickle.UnpicklingError,
    SafetensorError,
)
_POSITIONS_AFTER_PADDING = {"roberta", "xlm-roberta", "camembert", "mpnet"}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A transformers folder that was looked at; max_positions is the longest input that its positions allow."""

    path: Path
    kind: Kind
    architecture: str
    max_positions: int

    @property
    def default_max_tokens(self) -> int:
        """What an input may have at most unless someone says otherwise."""
        return min(_DEFAULT_TOKENS[self.kind], self.max_positions)


class Exportable(nn.Module):
    """A checkpoint whose forward takes the tensors of its inputs by position and gives its outputs as a tuple."""

    def __init__(self, model: nn.Module, kind: Kind) -> None:
        super().__init__()
        self.model = model
        self.outputs = OUTPUTS[kind]
        self.token_types = has_token_types(model)
        self.inputs = ("input_ids", "attention_mask", *(("token_type_ids",) if self.token_types else ()))

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Any:
        """Return the outputs of the kind, in order; token types only where the model has them."""
        types = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        result = self.model(input_ids=input_ids, attention_mask=attention_mask, **types)
        return tuple(getattr(result, name) for name in self.outputs)


def open_checkpoint(path: Path, kind: Kind | None) -> Checkpoint:
    """Return what a transformers folder holds, or the best checkpoint of a training run's folder.

    Args:
        path: either folder.
        kind: what to make of it; None to follow the architecture that its config names.

    Raises:
        ExportError: it is no such folder, or of no known kind.
    """
    if not path.is_dir():
        raise ExportError(f"{path} is not a folder")
    path = checkpoint_in(path) or path
    content = _config(path)
    if not has_weights(path):
        raise ExportError(f"{path} has no weights ({' or '.join(_WEIGHTS)})")
    found = kind if kind is not None else _kind(path, content)
    with loading(path):
        config = transformers.AutoConfig.from_pretrained(path, local_files_only=True)
        return Checkpoint(path, found, _architecture(config), _max_positions(config))


def checkpoint_in(path: Path) -> Path | None:
    """Return the transformers folder that path is, or else the best checkpoint of the run in path, None for neither."""
    return next((each for each in (path, path / BEST_FOLDER) if (each / CONFIG_FILE).is_file()), None)


def has_weights(path: Path) -> bool:
    """Return whether a folder holds the weights of a transformers model, whole or in pieces."""
    return any((path / each).is_file() for name in _WEIGHTS for each in (name, f"{name}.index.json"))


def load_module(checkpoint: Checkpoint) -> Exportable:
    """Return the checkpoint in torch, in fp32, evaluating.

    Raises:
        ExportError: a weight is missing, of another shape or no finite number, a file is damaged, a cross-encoder has
            several logits, or a dual encoder pools in another way than by the mean.
    """
    _check_pooling(checkpoint.path, checkpoint.kind)
    with loading(checkpoint.path):
        model, report = LOADERS[checkpoint.kind].from_pretrained(
            checkpoint.path,
            local_files_only=True,
            attn_implementation="eager",
            dtype="float32",
            output_loading_info=True,
        )
    missing = sorted(name for name in report["missing_keys"] if not _is_unused(name, checkpoint.kind))
    if missing:
        raise ExportError(f"{checkpoint.path} lacks weights of a {checkpoint.kind}: {missing[0]}")
    if checkpoint.kind == "cross-encoder" and model.config.num_labels != 1:
        raise ExportError(f"{checkpoint.path} gives {model.config.num_labels} logits; a cross-encoder gives 1")
    check_finite(checkpoint.path, model)
    return Exportable(model, checkpoint.kind).eval()


def check_finite(path: Path, model: nn.Module) -> None:
    """Return when every weight of a model that was loaded from path is finite.

    Raises:
        ExportError: one is not.
    """
    name = not_finite(model)
    if name is not None:
        raise ExportError(f"{path} has numbers in {name} that are not finite (NaN or infinite)")


def not_finite(model: nn.Module) -> str | None:
    """Return the name of the first weight that holds NaN or infinity, None where all are finite."""
    return next((name for name, weight in model.named_parameters() if not bool(torch.isfinite(weight).all())), None)


def tokenizer_json(path: Path, model: nn.Module) -> str:
    """Return the content of the tokenizer.json in a transformers folder, or of one made of a slow tokenizer's files.

    Raises:
        ExportError: there is none and none can be made, or it knows more tokens than the model has embeddings.
    """
    file = path / TOKENIZER_FILE
    content = file.read_bytes() if file.is_file() else _converted(path).encode()
    try:
        vocabulary = tokenizers.Tokenizer.from_buffer(content).get_vocab(with_added_tokens=True)
    except ValueError as error:
        raise ExportError(f"{file} is no tokenizer: {error}") from error
    n_embeddings = model.get_input_embeddings().weight.shape[0]  # type: ignore[operator]  # torch types attributes of modules loosely
    highest = max(vocabulary.values(), default=-1)
    if highest >= n_embeddings:
        raise ExportError(f"{file} has token ids up to {highest}, but the model has {n_embeddings} embeddings")
    return content.decode()


def _config(path: Path) -> dict[str, Any]:
    file = path / CONFIG_FILE
    if not file.is_file():
        raise ExportError(f"{path} has no {CONFIG_FILE}, so it is no transformers folder and no training run")
    try:
        content = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ExportError(f"{file} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise ExportError(f"{file} is not a JSON object")
    return content


def _kind(path: Path, config: Mapping[str, Any]) -> Kind:
    """Return the kind whose head the config's architecture ends with."""
    architectures = config.get("architectures")
    names: Sequence[Any] = architectures if isinstance(architectures, list) else []
    for name in names:
        for ending, kind in _HEADS.items():
            if str(name).endswith(ending):
                return kind
    found = ", ".join(str(name) for name in names) or "no architecture"
    raise ExportError(f"{path / CONFIG_FILE} names {found}; give --kind, one of {', '.join(get_args(Kind))}")


def _check_pooling(path: Path, kind: Kind) -> None:
    """Refuse a sentence-transformers folder that pools in another way than by the mean."""
    file = path / "1_Pooling" / CONFIG_FILE
    if kind != "dual-encoder" or not file.is_file():
        return
    pooling = _config(file.parent)
    modes = [name for name, is_on in pooling.items() if name.startswith("pooling_mode_") and is_on is True]
    if modes and modes != ["pooling_mode_mean_tokens"]:
        raise ExportError(f"{file} pools by {', '.join(modes)}; Tercet pools by the mean only")


def _architecture(config: Any) -> str:
    """Return one line for people: `bert, 6 layers, 384 wide, 12 heads, 30522 tokens`."""
    sizes = (
        (config.num_hidden_layers, "layers"),
        (config.hidden_size, "wide"),
        (config.num_attention_heads, "heads"),
        (config.vocab_size, "tokens"),
    )
    return ", ".join([str(config.model_type), *(f"{number} {noun}" for number, noun in sizes)])


def _max_positions(config: Any) -> int:
    """Return the longest input; models of RoBERTa's family number positions from the padding id + 1."""
    offset = config.pad_token_id + 1 if config.model_type in _POSITIONS_AFTER_PADDING else 0
    return int(config.max_position_embeddings) - offset


def has_token_types(model: nn.Module) -> bool:
    """Return whether the model tells query from passage; RoBERTa takes token types but knows only one."""
    takes = "token_type_ids" in inspect.signature(model.forward).parameters
    return takes and getattr(model.config, "type_vocab_size", 0) >= 2


def _is_unused(name: str, kind: Kind) -> bool:
    return kind == "dual-encoder" and name.startswith("pooler.")  # mean pooling takes the hidden states


def _converted(path: Path) -> str:
    if not any((path / name).is_file() for name in _VOCABULARIES):
        raise ExportError(f"{path} has no {TOKENIZER_FILE} and no vocabulary to make one from")
    with loading(path):
        tokenizer = transformers.AutoTokenizer.from_pretrained(path, local_files_only=True)
        backend: Callable[[], str] | None = getattr(getattr(tokenizer, "backend_tokenizer", None), "to_str", None)
    if backend is None:
        raise ExportError(f"{path} has no {TOKENIZER_FILE}, and transformers cannot make one of its tokenizer")
    return backend()


@contextmanager
def loading(path: Path) -> Iterator[None]:
    """Turn what transformers says of a folder into an ExportError of its first line, and keep it quiet meanwhile."""
    try:
        with quiet():
            yield
    except LOAD_ERRORS as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ExportError(f"{path} cannot be loaded by transformers: {reason}") from error


@contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers' log and progress bars away."""
    logger = logging.getLogger("transformers")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    bars: Any = transformers.utils.logging
    has_bars = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        yield
    finally:
        logger.setLevel(level)
        if has_bars:
            bars.enable_progress_bar()
