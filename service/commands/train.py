"""`tercet train reader|reranker|dual`: from labelled data to a checkpoint, ready for `tercet export`.

What needs torch, which takes seconds to load, is imported when the data have been read and found good.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from models.dual_encoder import DualEncoder
from models.errors import DataError
from models.folder import BEST_FOLDER, open_model_folder
from models.session import Runtime, available_cpus
from models.training.data import LabelledQuestion, read_questions
from models.training.log import LOG_FILE, Progress, read_log
from models.training.mining import Miner
from models.training.recipe import Lesson, Recipe
from models.training.records import Source
from models.training.runs import RunFolder
from models.training.sources import GroupSources, groups_of_sources, sample, split_by_title
from service.commands.data_sources import distinct_names
from service.commands.output import counted, say
from service.commands.progress import progress_display
from service.report.plots import training_plot
from service.settings import load_settings

if TYPE_CHECKING:
    from models.training.loop import Task

CURVES_FILE = "curves.svg"
_SHOWN_CHARACTERS = 400


@dataclass(frozen=True, slots=True)
class Run:
    """How to train, whatever the model; checks is how often the dev measures are taken."""

    init: str
    out: Path
    recipe: Recipe
    checks: int
    is_sane: bool

    def check_folder(self) -> None:
        """Return when the folder can be used, before the work on the data; raises TrainingError."""
        RunFolder(self.out).check(asdict(self.recipe))


def train_reader(data: Sequence[Source], dev: Source | None, lesson: Lesson, run: Run) -> None:
    """Train a reader.

    Raises:
        DataError: a file is malformed, with file, line and reason, or dev holds no question.
        TrainingError: the run cannot start, go on or converge, or a teacher does not fit.
        ModelFolderError: a teacher cannot be opened.
        ExportError: what it starts from is damaged.
    """
    run.check_folder()
    questions = [question for source in data for question in _questions(source, run)]
    if not questions:
        raise DataError("the data holds no question to learn from")
    if dev is None:
        questions, held_out = split_by_title(questions, run.recipe.seed)
    else:
        held_out = _questions(dev, run)
        if not held_out:
            raise DataError(f"{dev.path} holds no question to measure on")
    from models.training.reader import reader_task

    _run(reader_task(questions, held_out, run.init, run.recipe, lesson), run)


def _questions(source: Source, run: Run) -> list[LabelledQuestion]:
    return sample(read_questions(source.path), source.limit, run.recipe.seed)


def train_reranker(sources: GroupSources, dev: GroupSources | None, run: Run, *, retrieval_weight: float) -> None:
    """Train a cross-encoder; raises as `train_reader`."""
    run.check_folder()
    with _miner() as miner:
        groups, held_out = groups_of_sources(sources, dev, miner, run.recipe.seed, tell=say)
        from models.training.reranker import RetrievalTerm, reranker_task

        task = reranker_task(groups, held_out, RetrievalTerm(miner, retrieval_weight), run.init, run.recipe)
    _run(task, run)


def train_dual(sources: GroupSources, dev: GroupSources | None, run: Run) -> None:
    """Train a dual encoder; raises as `train_reader`."""
    run.check_folder()
    with _miner() as miner:
        groups, held_out = groups_of_sources(sources, dev, miner, run.recipe.seed, tell=say)
    from models.training.dual import dual_task

    _run(dual_task(groups, held_out, run.init, run.recipe), run)


def average_checkpoints(checkpoints: Sequence[Path], out: Path) -> None:
    """Write the mean of the checkpoints' weights.

    Raises:
        ExportError: one of them is no checkpoint.
        TrainingError: they do not fit together, or out holds files.
    """
    from models.training.average import average

    average(checkpoints, out)
    _draw_curves([run for run in checkpoints if (run / LOG_FILE).is_file()], out)
    say(f"The mean of {len(checkpoints)} checkpoints is in {out}.")
    say(f"Next: tercet export {out} --out MODEL_FOLDER, then tercet calibrate.")


@contextmanager
def _miner() -> Iterator[Miner]:
    """Give a miner with the dual encoder that serves; each time it encodes is a phase of its own on the display."""
    encoder = DualEncoder(open_model_folder(load_settings().dual_encoder, "dual-encoder"), Runtime(available_cpus()))
    round_ = 1
    with progress_display() as display:

        def show(done: int, total: int) -> None:
            nonlocal round_
            display.update(f"Encoding texts, round {round_}", done, total)
            round_ += done == total

        yield Miner(encoder, report=show)


def _run(task: "Task", run: Run) -> None:
    """Show what the model receives, check that it can learn, train, and say what to do next."""
    from models.training.loop import Pace, steps_taken, train
    from models.training.sanity import overfit

    say(f"{task.summary}, {task.lengths.sum():,} tokens an epoch.")
    say("What the model receives, for example:")
    for text in task.decoded:
        say(f"  {text[:_SHOWN_CHARACTERS]}{'…' if len(text) > _SHOWN_CHARACTERS else ''}")
    if task.dev_measures is None:
        say("There is nothing to measure on, so the last checkpoint counts as the best.")
    pace = Pace(run.checks)
    taken = steps_taken(task, run.recipe, run.out, pace=pace)
    if taken:
        say(f"The run in {run.out} has taken {counted(taken, 'step')} already.")
    with progress_display() as display:
        if run.is_sane and not taken:
            first, last = overfit(task, run.recipe, _shown(display.update, "Learning a few by heart"))
            say(f"Learned a few examples by heart: loss {first:.3f} to {last:.3f}.")
        best = train(task, run.recipe, run.out, pace=pace, report=_shown(display.update, "Training"))
    _draw_curves([run.out], run.out)
    say(f"The best checkpoint is in {run.out / BEST_FOLDER}{_of(best)}.")
    say(f"Next: tercet export {run.out} --out MODEL_FOLDER, then tercet calibrate.")


def _draw_curves(runs: Sequence[Path], out: Path) -> None:
    """Write how loss and dev measures went in the runs as a picture into out, unless there is no run."""
    if runs:
        logs = {name: read_log(run / LOG_FILE) for name, run in zip(distinct_names(runs), runs, strict=True)}
        (out / CURVES_FILE).write_text(training_plot(logs), encoding="utf-8")


def _shown(update: Callable[[str, int, int | None], None], phase: str) -> Callable[[Progress], None]:
    def show(progress: Progress) -> None:
        update(phase, progress.step, progress.n_steps)
        if progress.measures:
            say(f"Step {progress.step:,}: loss {progress.loss:.3f}{_of(progress.measures)}.")

    return show


def _of(measures: Mapping[str, float]) -> str:
    return "".join(f", {name} {value:.4f}" for name, value in measures.items())
