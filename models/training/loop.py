"""Train a model over token-budget batches: bf16 autocast, AdamW, linear warm-up and decay; resumable, best by dev.

Why a loop of our own (ADR 7): the trainers of transformers and sentence-transformers batch by example count. Batches
of equal token count, sorted by length, keep padding near zero.

Each step draws its randomness from the seed and the step's number alone, so a run that was killed and resumed ends as
one that was not.
"""

import json
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from models.checkpoint import not_finite
from models.errors import TrainingError
from models.training.batches import token_budget_batches
from models.training.digests import digest, weights_digest
from models.training.fast import seed_everything
from models.training.log import LOG_FILE, Progress, append_progress, start_log
from models.training.recipe import Recipe
from models.training.runs import RunFolder, RunState, writing

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """What is learned.

    summary says for people what one epoch holds; batch_loss returns the loss of the examples whose indices it is
    given; lengths (n,) are the padded tokens that each example costs; dev_measures returns measures by name, the first
    of which decides what is best (greater is better); save writes the model as a checkpoint into a folder; data are
    digests by name of what the loss and the measures come from; decoded are a few inputs as the model receives them.
    """

    model: nn.Module
    summary: str
    batch_loss: Callable[[NDArray[np.int64]], Tensor]
    lengths: NDArray[np.int64]
    dev_measures: Callable[[], Mapping[str, float]] | None
    save: Callable[[Path], None]
    data: Mapping[str, str]
    decoded: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Pace:
    """How often a run does what costs time and changes nothing.

    dev_checks is how often the dev measures are taken, evenly over the run, the last time at its end; save_seconds the
    most that a kill can cost; log_steps how often the log gets a line and report is called.
    """

    dev_checks: int = 4
    save_seconds: float = 300.0
    log_steps: int = 20


def train(
    task: Task,
    recipe: Recipe,
    out: Path,
    *,
    pace: Pace = Pace(),  # frozen
    report: Callable[[Progress], None] = lambda progress: None,
) -> Mapping[str, float]:
    """Train the task's model, or go on with the run in out, and return the dev measures of its best checkpoint.

    Without dev measures the last checkpoint is the best one and the mapping is empty.

    Raises:
        TrainingError: out cannot be used, or holds another run; or a loss, a weight or a measure is no finite number.
    """
    batches = _all_batches(task.lengths, recipe)
    run = _Run(task, recipe, out, batches)
    run.start(_identity(task, recipe, batches, pace))
    checks = {len(batches) * (i + 1) // pace.dev_checks for i in range(pace.dev_checks)}
    saved = since = time.monotonic()
    losses: list[float] = []
    tokens = 0
    while run.step < len(batches):
        batch = batches[run.step]
        losses.append(run.learn(batch))
        tokens += int(task.lengths[batch].sum())
        is_check = run.step in checks
        if run.step % pace.log_steps == 0 or is_check:
            speed = tokens / (time.monotonic() - since)
            measures = run.check() if is_check else {}
            progress = Progress(run.step, len(batches), float(np.mean(losses)), speed, measures)
            run.log(progress)
            report(progress)
            losses, tokens, since = [], 0, time.monotonic()
        if is_check or time.monotonic() - saved > pace.save_seconds:
            run.save()
            saved = time.monotonic()
    return run.best


def steps_taken(task: Task, recipe: Recipe, out: Path, *, pace: Pace = Pace()) -> int:
    """Return how many steps the task's run in out has taken, 0 for none; raises as `train`."""
    identity = _identity(task, recipe, _all_batches(task.lengths, recipe), pace)
    state = RunFolder(out).read(identity, reads_tensors=False)
    return 0 if state is None else state.step


def _identity(task: Task, recipe: Recipe, batches: Sequence[NDArray[np.int64]], pace: Pace) -> dict[str, str]:
    """Return by name all that decides how a run ends; the task's model must have its initial weights."""
    return {
        "recipe": digest(json.dumps(asdict(recipe))),
        "starting weights": weights_digest(task.model),
        **task.data,
        "batches": digest(*batches),
        "number of checks": str(pace.dev_checks),
    }


def _all_batches(lengths: NDArray[np.int64], recipe: Recipe) -> list[NDArray[np.int64]]:
    """Return the batches of all epochs; a last, partial epoch is the beginning of a whole one."""
    batches: list[NDArray[np.int64]] = []
    whole = int(np.ceil(recipe.epochs))
    for epoch in range(whole):
        of_epoch = token_budget_batches(lengths, batch_tokens=recipe.batch_tokens, seed=recipe.seed + epoch)
        share = min(1.0, recipe.epochs - epoch)
        batches += of_epoch[: max(1, round(len(of_epoch) * share))]
    return batches


class _Run:
    """A run's mutable state, and its folder."""

    def __init__(self, task: Task, recipe: Recipe, out: Path, batches: Sequence[NDArray[np.int64]]) -> None:
        self.task = task
        self.recipe = recipe
        self.folder = RunFolder(out)
        self.step = 0
        self.best: Mapping[str, float] = {}
        self._best_step: int | None = None
        self._identity: Mapping[str, str] = {}
        self._optimizer = _optimizer(task.model, recipe)
        n_steps = len(batches)
        warmup = max(1, int(recipe.warmup_share * n_steps))
        self._schedule = torch.optim.lr_scheduler.LambdaLR(
            self._optimizer, lambda step: min((step + 1) / warmup, (n_steps - step) / max(1, n_steps - warmup))
        )

    def start(self, identity: Mapping[str, str]) -> None:
        """Go on from the folder's state, or make the folder."""
        self._identity = identity
        self.folder.check(asdict(self.recipe))
        state = self.folder.read(identity)
        if state is None:
            self.save()
        else:
            self._restore(state)
            logger.info("resumed at step %d", self.step)
        self.folder.note(asdict(self.recipe))
        with writing(self.folder.path / LOG_FILE):
            start_log(self.folder.path / LOG_FILE, self.step)

    def _restore(self, state: RunState) -> None:
        with self.folder.intact():
            self.task.model.load_state_dict(state.model)
            self._optimizer.load_state_dict(dict(state.optimizer))
            self._schedule.load_state_dict(dict(state.schedule))
            self.step, self.best, self._best_step = state.step, state.best, state.best_step

    def learn(self, batch: NDArray[np.int64]) -> float:
        """Take one step and return its loss."""
        model = self.task.model
        model.train()
        seed_everything(model, self.recipe.seed * 1_000_003 + self.step)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = self.task.batch_loss(batch)
        if not torch.isfinite(loss):
            raise TrainingError(f"the loss at step {self.step + 1} is {float(loss.detach())}; lower the learning rate")
        loss.backward()  # type: ignore[no-untyped-call]  # torch declares it without types
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        self._optimizer.step()
        self._schedule.step()
        self._optimizer.zero_grad()
        self.step += 1
        return float(loss.detach())

    def check(self) -> Mapping[str, float]:
        """Measure on dev, and keep the checkpoint if it is the best so far."""
        self._check_weights()
        self.task.model.eval()
        measures = dict(self.task.dev_measures()) if self.task.dev_measures is not None else {}
        if not all(map(math.isfinite, measures.values())):
            raise TrainingError(f"the dev measures at step {self.step} are not finite; lower the learning rate")
        if not self.best or next(iter(measures.values())) > next(iter(self.best.values())):
            self.best, self._best_step = measures, self.step
            self.folder.keep(self.task.save)
        return measures

    def _check_weights(self) -> None:
        """Refuse weights that are no numbers, of which the loss tells a step too late."""
        name = not_finite(self.task.model)
        if name is not None:
            raise TrainingError(f"after step {self.step}, {name} is not finite; lower the learning rate")

    def log(self, progress: Progress) -> None:
        """Append a line to the log."""
        path = self.folder.path / LOG_FILE
        with writing(path):
            append_progress(path, progress, learning_rate=float(self._schedule.get_last_lr()[0]))
        logger.info(
            "step %d of %d: loss %.4f %s", progress.step, progress.n_steps, progress.loss, dict(progress.measures)
        )

    def save(self) -> None:
        """Replace the state in the folder."""
        self._check_weights()
        self.folder.write(
            RunState(
                identity=self._identity,
                model=self.task.model.state_dict(),
                optimizer=self._optimizer.state_dict(),
                schedule=self._schedule.state_dict(),
                step=self.step,
                best=self.best,
                best_step=self._best_step,
            )
        )


def _optimizer(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """No decay on biases and layer norms; what is not part of the pretrained encoder learns at the head's rate."""
    groups: dict[tuple[bool, bool], list[nn.Parameter]] = {}
    encoder = str(getattr(model, "base_model_prefix", ""))
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
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
