"""Train a model over token-budget batches: bf16 autocast, AdamW, linear warm-up and decay.

Why a loop of our own: the trainers of transformers and sentence-transformers batch by example count. Batches of
equal token count, sorted by length, keep padding near zero, and attention dropout 0 lets the fused attention kernel
run; together that is what makes one epoch fit an hour of two CPU cores.
"""

import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from models.tokenization import ModelInput

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Recipe:
    """What decides a training run besides its data; written next to the checkpoint."""

    seed: int
    epochs: int
    batch_tokens: int
    learning_rate: float
    head_learning_rate: float
    warmup_share: float = 0.1
    weight_decay: float = 0.01


def token_budget_batches(lengths: NDArray[np.int64], *, batch_tokens: int, seed: int) -> list[NDArray[np.int64]]:
    """Return batches of indices whose padded size stays within batch_tokens, in random order.

    Every index comes exactly once. Items of like length share a batch; an item longer than the budget is a batch
    of its own. Lengths are jittered by up to 8 tokens so that batches differ between seeds.

    Args:
        lengths: (n,) padded tokens that each item costs.
    """
    generator = np.random.default_rng(seed)
    order = np.argsort(lengths + generator.integers(0, 8, lengths.size), kind="stable")
    batches: list[NDArray[np.int64]] = []
    start = 0
    longest = 0
    for position, index in enumerate(order):
        longest = max(longest, int(lengths[index]))
        if position > start and longest * (position - start + 1) > batch_tokens:
            batches.append(order[start:position])
            start, longest = position, int(lengths[index])
    if start < order.size:
        batches.append(order[start:])
    generator.shuffle(batches)
    return batches


def padded_batch(inputs: Sequence[ModelInput]) -> dict[str, Tensor]:
    """Return what a transformers model takes, as int64 tensors (n_inputs, longest)."""
    return {
        "input_ids": pad([item.ids for item in inputs]),
        "attention_mask": pad([np.ones_like(item.ids) for item in inputs]),
        "token_type_ids": pad([item.token_types for item in inputs]),
    }


def pad(rows: Sequence[NDArray[np.int64]]) -> Tensor:
    """Return rows as one (n_rows, longest) int64 tensor, padded with 0 at the end."""
    out = np.zeros((len(rows), max(row.size for row in rows)), np.int64)
    for i, row in enumerate(rows):
        out[i, : row.size] = row
    return torch.from_numpy(out)


def train(
    model: nn.Module,
    batch_loss: Callable[[NDArray[np.int64]], Tensor],
    lengths: NDArray[np.int64],
    recipe: Recipe,
    log_path: Path,
) -> None:
    """Train model in place; batch_loss returns the loss of the examples whose indices it is given.

    Writes one JSON line to log_path for every 20 steps: step, loss (mean since the last line), tokens per second.
    """
    batches = [
        batch
        for epoch in range(recipe.epochs)
        for batch in token_budget_batches(lengths, batch_tokens=recipe.batch_tokens, seed=recipe.seed + epoch)
    ]
    optimizer = _optimizer(model, recipe)
    warmup = max(1, int(recipe.warmup_share * len(batches)))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warmup, (len(batches) - step) / max(1, len(batches) - warmup))
    )
    model.train()
    with log_path.open("w") as log:
        log.write(json.dumps({"recipe": asdict(recipe), "steps": len(batches), "tokens": int(lengths.sum())}) + "\n")
        for line in _steps(_Run(model, batch_loss, optimizer, schedule), batches, lengths):
            log.write(json.dumps(line) + "\n")
            log.flush()
    model.eval()


@dataclass(frozen=True, slots=True)
class _Run:
    """What one run steps with."""

    model: nn.Module
    batch_loss: Callable[[NDArray[np.int64]], Tensor]
    optimizer: torch.optim.Optimizer
    schedule: torch.optim.lr_scheduler.LRScheduler

    def step(self, batch: NDArray[np.int64]) -> float:
        """Learn from one batch and return its loss."""
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = self.batch_loss(batch)
        loss.backward()  # type: ignore[no-untyped-call]  # torch declares it without types
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad()
        return float(loss.detach())


def _steps(run: _Run, batches: Sequence[NDArray[np.int64]], lengths: NDArray[np.int64]) -> Iterator[dict[str, float]]:
    losses: list[float] = []
    tokens, since = 0, time.monotonic()
    for step, batch in enumerate(batches, start=1):
        losses.append(run.step(batch))
        tokens += int(lengths[batch].sum())
        if step % 20 == 0 or step == len(batches):
            rate = tokens / (time.monotonic() - since)
            logger.info("step %d of %d: loss %.4f, %.0f tokens/s", step, len(batches), np.mean(losses), rate)
            yield {"step": step, "loss": float(np.mean(losses)), "tokens_per_second": rate}
            losses, tokens, since = [], 0, time.monotonic()


def _optimizer(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """No decay on biases and layer norms; what is not part of the pretrained encoder learns at the head's rate."""
    groups: dict[tuple[bool, bool], list[nn.Parameter]] = {}
    encoder = str(getattr(model, "base_model_prefix", ""))
    for name, parameter in model.named_parameters():
        is_head = not name.startswith(encoder)
        groups.setdefault((is_head, parameter.ndim > 1), []).append(parameter)
    return torch.optim.AdamW(
        [
            {
                "params": parameters,
                "lr": recipe.head_learning_rate if is_head else recipe.learning_rate,
                "weight_decay": recipe.weight_decay if decays else 0.0,
            }
            for (is_head, decays), parameters in groups.items()
        ],
        fused=True,
    )
