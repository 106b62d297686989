"""The mean of the weights of runs that began at the same checkpoint: one model, at the cost of one.

Source: Wortsman et al. 2022, "Model soups", section 2 (the uniform soup). Left out: the greedy soup, chosen by dev.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from models.checkpoint import load_module, open_checkpoint, tokenizer_json
from models.errors import TrainingError
from models.folder import TOKENIZER_FILE


def average(checkpoints: Sequence[Path], out: Path) -> None:
    """Write the mean of the checkpoints' weights to out as a transformers folder.

    Worked example: two heads with biases [1, 3] and [3, 5] give one with [2, 4].

    Args:
        checkpoints: transformers folders or those of training runs, whose best checkpoint counts.
        out: a folder that is empty, or not there yet.

    Raises:
        ExportError: one of them is no checkpoint.
        TrainingError: there are fewer than two, their weights differ in name or shape, their tokenizers differ, or out
            holds files.
    """
    if len(checkpoints) < 2:
        raise TrainingError(f"an average needs at least 2 checkpoints, not {len(checkpoints)}")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise TrainingError(f"{out} is not an empty folder; name another one")
    first = open_checkpoint(checkpoints[0], None)
    module = load_module(first)
    tokenizer = tokenizer_json(first.path, module.model)
    sums = {name: weight.double() for name, weight in module.model.state_dict().items()}
    for path in checkpoints[1:]:
        checkpoint = open_checkpoint(path, first.kind)
        other = load_module(checkpoint)
        weights = other.model.state_dict()
        _check_same_shapes(sums, weights, (checkpoints[0], path))
        if tokenizer_json(checkpoint.path, other.model) != tokenizer:
            raise TrainingError(f"{path} has another {TOKENIZER_FILE} than {checkpoints[0]}")
        sums = {name: total + weights[name].double() for name, total in sums.items()}
    module.model.load_state_dict({name: total / len(checkpoints) for name, total in sums.items()})
    out.mkdir(parents=True, exist_ok=True)
    model: Any = module.model
    model.save_pretrained(out)
    (out / TOKENIZER_FILE).write_text(tokenizer, encoding="utf-8")


def _check_same_shapes(left: Mapping[str, Tensor], right: Mapping[str, Tensor], paths: tuple[Path, Path]) -> None:
    for name in {**left, **right}:
        shapes = [tuple(side[name].shape) if name in side else None for side in (left, right)]
        if shapes[0] != shapes[1]:
            raise TrainingError(f"{name} is {shapes[0]} in {paths[0]} and {shapes[1]} in {paths[1]}")
