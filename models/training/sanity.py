"""Check that a model can learn at all: over-fit a few examples before the hours are spent.

It tells of examples that contradict each other, inputs that lost what tells them apart, and bad learning rates. What is
wrong in all examples alike can be learned by heart like what is right.
"""

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from models.errors import TrainingError
from models.training.log import Progress
from models.training.loop import Pace, Task, train
from models.training.recipe import Recipe

N_EXAMPLES = 32
_STEPS = 120
_LEFT = 0.3


def overfit(
    task: Task, recipe: Recipe, report: Callable[[Progress], None] = lambda progress: None
) -> tuple[float, float]:
    """Train on N_EXAMPLES examples for some 120 steps, put the weights back, and return the first and the last loss.

    Raises:
        TrainingError: the last loss is not under 0.3 of the first: labels contradict each other, or inputs or learning
            rate are wrong.
    """
    before = copy.deepcopy(task.model.state_dict())
    few = np.argsort(task.lengths, kind="stable")[:: max(1, task.lengths.size // N_EXAMPLES)][:N_EXAMPLES]
    small = replace(
        task,
        batch_loss=lambda indices: task.batch_loss(few[indices]),
        lengths=task.lengths[few],
        dev_measures=None,
        save=lambda path: None,
    )
    losses: list[float] = []

    def note(progress: Progress) -> None:
        losses.append(progress.loss)
        report(progress)

    n_batches = max(1, -(-int(small.lengths.sum()) // recipe.batch_tokens))
    with TemporaryDirectory() as scratch:
        long = replace(recipe, epochs=-(-_STEPS // n_batches), dropout=0.0)
        train(small, long, Path(scratch), pace=Pace(1, float("inf"), 5), report=note)
    task.model.load_state_dict(before)
    if not losses[-1] < _LEFT * losses[0]:
        raise TrainingError(
            f"{N_EXAMPLES} examples could not be learned by heart: the loss went from {losses[0]:.3f} to "
            f"{losses[-1]:.3f}, not under {_LEFT} of it; look at the decoded inputs, the labels and the learning rate"
        )
    return losses[0], losses[-1]
