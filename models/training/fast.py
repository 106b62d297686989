"""Make a transformers encoder train fast on a CPU whose matrix units take bfloat16, without changing what it computes.

Profiled on two cores with AMX, 24 windows of 168 tokens a step: the fused attention kernel's backward pass took 44% of
the time and drawing dropout masks 9%. Plain matrix products in bfloat16 and masks cut from random bytes made a step
2.5 times faster (ADR 8).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AutoConfig
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from models.checkpoint import LOADERS, loading
from models.errors import TrainingError
from models.folder import Kind

_ATTENTION = "tercet"
_ATTENTION_DROPOUTS = ("attention_probs_dropout_prob", "attention_dropout")  # each family has its own name
_LABELS: Mapping[Kind, Mapping[str, int]] = {
    "dual-encoder": {},
    "cross-encoder": {"num_labels": 1},
    "reader": {"num_labels": 2},
}


class ByteDropout(nn.Module):
    """Dropout (Srivastava et al. 2014) whose mask is drawn a byte a value, so its rate is a multiple of 1/256."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.p = rate
        self.cut = round(rate * 256)
        self.generator = np.random.Generator(np.random.SFC64(0))

    def seed(self, seed: int) -> None:
        """Start the masks anew."""
        self.generator = np.random.Generator(np.random.SFC64(seed))

    def forward(self, x: Tensor) -> Tensor:
        """Return x with dropped values 0 and the others scaled so that their mean stays, unchanged when evaluating."""
        if not self.training or self.cut == 0:
            return x
        words = self.generator.integers(0, 2**64, -(-x.numel() // 8), np.uint64, endpoint=False)
        kept = torch.from_numpy(words.view(np.uint8)[: x.numel()]).view(x.shape) >= self.cut
        return x * (kept.to(x.dtype) * (256 / (256 - self.cut)))


def load_for_training(kind: Kind, path: Path, *, dropout: float, freeze_embeddings: bool = False) -> nn.Module:
    """Return the checkpoint in path with the fast attention and dropout, its attention dropout off.

    A head of the kind that the checkpoint lacks is drawn at random; a pooler that only it has is left out.

    Args:
        kind: what the model shall be.
        path: a transformers folder.
        dropout: rate after the embeddings and each layer.
        freeze_embeddings: leave the embeddings as they are, which saves a tenth of the time.

    Raises:
        ExportError: transformers cannot load it.
        TrainingError: it is no encoder of BERT's type, lacks weights, or has a head of another shape.
    """
    ALL_ATTENTION_FUNCTIONS.register(_ATTENTION, attention)
    ALL_MASK_ATTENTION_FUNCTIONS.register(_ATTENTION, ALL_MASK_ATTENTION_FUNCTIONS["eager"])
    with loading(path):
        config = AutoConfig.from_pretrained(path, local_files_only=True, **_LABELS[kind])
        for name in _ATTENTION_DROPOUTS:
            if hasattr(config, name):
                setattr(config, name, 0.0)
        model, report = LOADERS[kind].from_pretrained(
            path,
            config=config,
            local_files_only=True,
            attn_implementation=_ATTENTION,
            dtype="float32",
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
    _check_whole(path, model, report)
    if kind == "dual-encoder":
        model.pooler = None
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Dropout):
                setattr(module, name, ByteDropout(dropout if child.p > 0 else 0.0))
    if freeze_embeddings:
        model.base_model.embeddings.requires_grad_(False)
    return model  # type: ignore[no-any-return]  # the loaders have no types


def _check_whole(path: Path, model: Any, report: Mapping[str, Any]) -> None:
    """Refuse what transformers would fill with random numbers, but for a head and a pooler that are not there."""
    if not isinstance(getattr(model.base_model, "embeddings", None), nn.Module):
        raise TrainingError(f"{path} holds a {model.config.model_type}, which is no encoder of BERT's type")
    for name, found, expected in sorted(report["mismatched_keys"]):
        raise TrainingError(f"{path}: {name} is {tuple(found)}, expected {tuple(expected)}")
    encoder = "" if model.base_model is model else f"{model.base_model_prefix}."
    lacking = [name for name in report["missing_keys"] if name.startswith(encoder) and "pooler" not in name]
    if lacking:
        raise TrainingError(f"{path} has no weight {min(lacking)}")


def seed_everything(model: nn.Module, seed: int) -> None:
    """Seed torch and every dropout of the model."""
    torch.manual_seed(seed)
    layers = [module for module in model.modules() if isinstance(module, ByteDropout)]
    for position, layer in enumerate(layers):
        layer.seed(seed * 1000 + position)


def attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: object
) -> tuple[Tensor, None]:
    """Return scaled dot-product attention (Vaswani et al. 2017, equation 1) in the dtype of the query.

    Args:
        module: not used; part of the interface.
        query: (batch, heads, tokens, head size), as key and value.
        attention_mask: additive, broadcast to (batch, heads, tokens, tokens); None for none.
        options: `scaling`, the factor on the products; the rest of transformers' interface is not used.

    Returns:
        (batch, tokens, heads, head size), and no weights.
    """
    scaling = options.get("scaling")
    assert isinstance(scaling, float)
    products = torch.matmul(query * scaling, key.transpose(2, 3))
    if attention_mask is not None:
        products = products + attention_mask.to(products.dtype)
    weights = products.softmax(-1, dtype=query.dtype)
    return torch.matmul(weights, value).transpose(1, 2).contiguous(), None
