"""The mean of the weights of runs that began at the same checkpoint: one model, at the cost of one.

Source: Wortsman et al. 2022, "Model soups", section 2 (the uniform soup). Left out: the greedy soup, chosen by dev.
"""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from models.checkpoint import load_module, open_checkpoint, tokenizer_json
from models.errors import TrainingError
from models.folder import TOKENIZER_FILE
from models.training.checkpoints import save_checkpoint

_LEAST_COSINE = 0.5  # hours of training left 0.99 of the encoder that they began with; strangers have about 0


def average(checkpoints: Sequence[Path], out: Path) -> None:
    """Write the mean of the checkpoints' weights to out as a transformers folder.

    Worked example: two heads with biases [1, 3] and [3, 5] give one with [2, 4].

    Args:
        checkpoints: transformers folders or those of training runs, whose best checkpoint counts.
        out: a folder that is empty, or not there yet.

    Raises:
        ExportError: one of them is no checkpoint.
        TrainingError: there are fewer than two, their weights differ in name or shape or did not begin alike, their
            tokenizers differ, or out holds files.
    """
    if len(checkpoints) < 2:
        raise TrainingError(f"an average needs at least 2 checkpoints, not {len(checkpoints)}")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise TrainingError(f"{out} is not an empty folder; name another one")
    first = open_checkpoint(checkpoints[0], None)
    module = load_module(first)
    tokenizer = tokenizer_json(first.path, module.model)
    own = module.model.state_dict()
    sums = {name: weight.double() for name, weight in own.items()}
    for path in checkpoints[1:]:
        checkpoint = open_checkpoint(path, first.kind)
        other = load_module(checkpoint)
        weights = other.model.state_dict()
        _check_same_shapes(sums, weights, (checkpoints[0], path))
        if tokenizer_json(checkpoint.path, other.model) != tokenizer:
            raise TrainingError(f"{path} has another {TOKENIZER_FILE} than {checkpoints[0]}")
        cosine = encoder_cosine(own, weights, prefix=str(module.model.base_model_prefix))
        if cosine < _LEAST_COSINE:
            raise TrainingError(
                f"{checkpoints[0]} and {path} did not begin at the same checkpoint: "
                f"the cosine of their encoders' weights is {cosine:.2f}"
            )
        sums = {name: total + weights[name].double() for name, total in sums.items()}
    module.model.load_state_dict({name: total / len(checkpoints) for name, total in sums.items()})
    try:
        save_checkpoint(module.model, tokenizer.encode(), out)
    except TrainingError:
        shutil.rmtree(out, ignore_errors=True)  # it was empty
        raise


def encoder_cosine(left: Mapping[str, Tensor], right: Mapping[str, Tensor], *, prefix: str) -> float:
    """Return the cosine of the matrices of two encoders of equal shapes, each taken as one vector.

    Biases and norms are left out, which are alike in all models, and heads, which begin at random.

    Worked example: the matrices [[1, 0]] and [[1, 1]] have 1 / sqrt(2) = .71.

    Args:
        left: weights by name.
        right: the same of the other.
        prefix: what the names of an encoder's weights begin with where a model has a head.
    """
    has_head = any(name.startswith(f"{prefix}.") for name in left)
    names = [
        name
        for name, weight in left.items()
        if weight.ndim == 2 and weight.is_floating_point() and (not has_head or name.startswith(f"{prefix}."))
    ]
    one, other = (torch.cat([side[name].flatten() for name in names]) for side in (left, right))
    return float(functional.cosine_similarity(one, other, dim=0))


def _check_same_shapes(left: Mapping[str, Tensor], right: Mapping[str, Tensor], paths: tuple[Path, Path]) -> None:
    for name in {**left, **right}:
        shapes = [tuple(side[name].shape) if name in side else None for side in (left, right)]
        if shapes[0] != shapes[1]:
            raise TrainingError(f"{name} is {shapes[0]} in {paths[0]} and {shapes[1]} in {paths[1]}")
