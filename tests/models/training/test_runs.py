"""A run goes on only where it is the same, and survives kills, full disks and damaged files."""

import contextlib
import json
import math
import resource
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from models.dual_encoder import DualEncoder
from models.errors import TrainingError
from models.folder import Kind, open_model_folder
from models.session import Runtime
from models.training.data import LabelledQuestion
from models.training.digests import digest
from models.training.groups import Group
from models.training.log import LOG_FILE, Progress, read_log, start_log
from models.training.loop import Pace, Task, steps_taken, train
from models.training.mining import Miner
from models.training.reader import reader_task
from models.training.recipe import Lesson, NullSide, Recipe
from models.training.reranker import RetrievalTerm, reranker_task
from models.training.runs import RunFolder
from tests.conftest import TinyModels

RECIPE = Recipe(seed=1, epochs=3, batch_tokens=40, learning_rate=1e-3, head_learning_rate=1e-3)
EVERY_STEP = Pace(dev_checks=3, save_seconds=0, log_steps=1)
QUESTIONS = [
    LabelledQuestion(f"q{n}", "t", f"{town} is the town of the sea", "where is it", ((0, town),))
    for n, town in enumerate(["lima", "porto", "tower", "harbour"])
]


class KilledError(Exception):
    """Stands for the end of the process."""


@pytest.fixture
def make(tiny_checkpoint: Callable[[Kind], Path]) -> Callable[..., Task]:
    def task(
        questions: list[LabelledQuestion] = QUESTIONS, dev: list[LabelledQuestion] = QUESTIONS, kind: Kind = "reader"
    ) -> Task:
        return reader_task(questions, dev, str(tiny_checkpoint(kind)), RECIPE, Lesson(NullSide(0, 0)))

    return task


@pytest.fixture
def finished(tmp_path: Path, make: Callable[..., Task]) -> Path:
    """Return the folder of a run that ended."""
    train(make(), RECIPE, tmp_path / "run", pace=EVERY_STEP)
    return tmp_path / "run"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@contextlib.contextmanager
def files_of_at_most(n_bytes: int) -> Iterator[None]:
    """Let every write beyond a size fail, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_run_with_other_labels_dev_start_or_checks_is_refused(finished: Path, make: Callable[..., Task]) -> None:
    other = [replace(each, answers=((len(each.passage) - 3, "sea"),)) for each in QUESTIONS]
    cases: list[tuple[Task, Pace, str]] = [
        (make(questions=other), EVERY_STEP, "its training data"),
        (make(dev=QUESTIONS[:2]), EVERY_STEP, "its dev data"),
        (make(dev=[]), EVERY_STEP, "its dev data"),
        (make(kind="dual-encoder"), EVERY_STEP, "its starting weights"),
        (make(), replace(EVERY_STEP, dev_checks=2), "its number of checks"),
        (make(questions=QUESTIONS[:3]), EVERY_STEP, "its training data, its batches"),
    ]
    before = contents(finished)
    for task, pace, part in cases:
        with pytest.raises(TrainingError) as caught:
            train(task, RECIPE, finished, pace=pace)
        assert str(caught.value) == (
            f"{finished} holds a run that differs in {part}; name another folder or remove this one"
        )
        with pytest.raises(TrainingError, match=part):
            steps_taken(task, RECIPE, finished, pace=pace)
    assert contents(finished) == before
    n_steps = read_log(finished / LOG_FILE)[-1].n_steps
    assert steps_taken(make(), RECIPE, finished, pace=EVERY_STEP) == n_steps
    assert train(make(), RECIPE, finished, pace=replace(EVERY_STEP, log_steps=7))["has_answer_f1"] >= 0


def test_a_reranker_of_another_retrieval_weight_is_another_run(
    tiny_models: TinyModels, tiny_checkpoint: Callable[[Kind], Path], tmp_path: Path
) -> None:
    miner = Miner(DualEncoder(open_model_folder(str(tiny_models.dual_encoder), "dual-encoder"), Runtime(1)))
    groups = [Group(f"where is {town}", f"the {town}", ("the lamp", "the map")) for town in ("lima", "porto")]
    init = str(tiny_checkpoint("cross-encoder"))
    for weight in (15.0, 0.0):
        task = reranker_task(groups, groups, RetrievalTerm(miner, weight), init, RECIPE)
        if weight:
            train(task, RECIPE, tmp_path / "run")
    with pytest.raises(TrainingError, match="differs in its training data, its dev data"):
        train(task, RECIPE, tmp_path / "run")


def test_another_recipe_is_refused_before_the_data_are_read(finished: Path) -> None:
    RunFolder(finished).check(asdict(RECIPE))
    with pytest.raises(TrainingError, match="differs in its learning rate, its freeze embeddings"):
        RunFolder(finished).check(asdict(replace(RECIPE, learning_rate=2e-3, freeze_embeddings=True)))
    (finished / "recipe.json").write_text("{")
    RunFolder(finished).check(asdict(RECIPE))  # the state has the last word


def test_a_folder_that_is_no_runs_is_left_as_it_is(tmp_path: Path, make: Callable[..., Task]) -> None:
    for name in ("log.csv", "recipe.json", "notes.txt"):
        folder = tmp_path / name.partition(".")[0]
        folder.mkdir()
        (folder / name).write_text("mine")
        with pytest.raises(TrainingError, match=f"holds {name} but no training run"):
            train(make(), RECIPE, folder)
        assert contents(folder) == {name: b"mine"}
    (tmp_path / "file").write_text("")
    for path, reason in (("file", "is not a folder"), ("file/run", "cannot be written"), ("/proc/run", "cannot be")):
        with pytest.raises(TrainingError, match=reason):
            RunFolder(tmp_path / path).check({})
    (tmp_path / "killed").mkdir()
    (tmp_path / "killed" / "state.pt.partial").write_bytes(b"cut")
    train(make(), RECIPE, tmp_path / "killed")
    assert sorted(each.name for each in (tmp_path / "killed").iterdir()) == [
        "best",
        "log.csv",
        "recipe.json",
        "state.pt",
    ]


def test_a_run_can_be_killed_before_its_first_step(tmp_path: Path, make: Callable[..., Task]) -> None:
    task = make()

    def die(indices: object) -> torch.Tensor:
        raise KilledError

    with pytest.raises(KilledError):
        train(replace(task, batch_loss=die), RECIPE, tmp_path / "run")
    assert steps_taken(make(), RECIPE, tmp_path / "run") == 0
    assert train(make(), RECIPE, tmp_path / "run")


def test_a_damaged_state_is_one_sentence(finished: Path, make: Callable[..., Task]) -> None:
    state = finished / "state.pt"
    whole = state.read_bytes()

    def damage(content: object) -> None:
        torch.save(content, state)

    damages: dict[str, Callable[[], object]] = {
        "cut": lambda: state.write_bytes(whole[: len(whole) // 2]),
        "empty": lambda: state.write_bytes(b""),
        "garbage": lambda: state.write_bytes(b"hello" * 100),
        "object": lambda: damage({"x": 1}),
        "list": lambda: damage([1]),
        "older": lambda: damage({"fingerprint": "0", "model": {}, "optimizer": {}, "schedule": {}, "step": 3}),
        "weights": lambda: damage(torch.load(finished / "whole.pt") | {"model": {}}),
    }
    (finished / "whole.pt").write_bytes(whole)
    for name, change in damages.items():
        change()
        before = contents(finished)
        with pytest.raises(TrainingError, match=r"state\.pt is damaged or of another version \(.*remove .*run or"):
            train(make(), RECIPE, finished, pace=EVERY_STEP)
        assert contents(finished) == before, name


def test_a_full_disk_leaves_the_state_before_and_the_run_goes_on_from_it(
    tmp_path: Path, finished: Path, make: Callable[..., Task]
) -> None:
    out = tmp_path / "full"
    with files_of_at_most(50_000), pytest.raises(TrainingError, match=r"state\.pt cannot be written: File too large"):
        train(make(), RECIPE, out, pace=EVERY_STEP)
    assert contents(out) == {}
    limited = contextlib.ExitStack()

    def fill(progress: Progress) -> None:
        if progress.step == 3:
            limited.enter_context(files_of_at_most(50_000))

    with limited, pytest.raises(TrainingError, match=r"state\.pt cannot be written: File too large"):
        train(make(), RECIPE, out, pace=EVERY_STEP, report=fill)
    assert steps_taken(make(), RECIPE, out, pace=EVERY_STEP) == 2
    assert not (out / "state.pt.partial").exists()
    train(make(), RECIPE, out, pace=EVERY_STEP)
    assert [each.loss for each in read_log(out / LOG_FILE)] == [each.loss for each in read_log(finished / LOG_FILE)]


def test_a_save_that_fails_leaves_the_best_checkpoint_before(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)

    def saving(text: str, error: Exception | None = None) -> Callable[[Path], None]:
        def save(path: Path) -> None:
            (path / "config.json").write_text("{}")
            (path / "model.safetensors").write_text(text)
            if error is not None:
                raise error

        return save

    folder.keep(saving("old"))
    assert contents(tmp_path) == {"best/config.json": b"{}", "best/model.safetensors": b"old"}
    with pytest.raises(TrainingError, match="best cannot be written: no space"):
        folder.keep(saving("new", RuntimeError("no space")))
    with pytest.raises(KilledError):
        folder.keep(saving("new", KilledError()))
    with files_of_at_most(3), pytest.raises(TrainingError, match="best cannot be written: File too large"):
        folder.keep(saving("longer"))
    assert contents(tmp_path) == {"best/config.json": b"{}", "best/model.safetensors": b"old"}
    folder.keep(saving("new"))
    assert contents(tmp_path) == {"best/config.json": b"{}", "best/model.safetensors": b"new"}


def test_a_best_checkpoint_that_is_gone_is_told(finished: Path, make: Callable[..., Task]) -> None:
    shutil.rmtree(finished / "best")
    for act in (train, steps_taken):
        with pytest.raises(TrainingError, match=r"best, the best checkpoint, of step \d+, is gone, and the run cannot"):
            act(make(), RECIPE, finished, pace=EVERY_STEP)


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text + "17,1",
        lambda text: text + '17,16,5.2,684,0.1,"{""f1',
        lambda text: text + "17,16,5.2,684,0.1,5\n17,16,5.2,684,0.1,{}\n".replace("{}", "[1]"),
        lambda text: text.replace("\n", "\n\nx,y\n\0\n", 1),
        lambda text: text + "x" * 200_000 + "\n",
    ],
)
def test_lines_of_a_log_that_cannot_be_read_are_left_out(finished: Path, damage: Callable[[str], str]) -> None:
    log = finished / LOG_FILE
    whole = log.read_text()
    lines = read_log(log)
    log.write_text(damage(whole))
    assert read_log(log) == lines
    start_log(log, lines[-1].step)
    assert log.read_text() == whole
    start_log(log, 1)
    assert log.read_text().splitlines() == whole.splitlines()[:2]


def test_a_log_that_is_gone_begins_with_its_header(tmp_path: Path, make: Callable[..., Task]) -> None:
    def die(progress: Progress) -> None:
        if progress.step == 2:
            raise KilledError

    with pytest.raises(KilledError):
        train(make(), RECIPE, tmp_path / "run", pace=EVERY_STEP, report=die)
    (tmp_path / "run" / LOG_FILE).unlink()
    (tmp_path / "run" / "recipe.json").unlink()
    train(make(), RECIPE, tmp_path / "run", pace=EVERY_STEP)
    assert (tmp_path / "run" / LOG_FILE).read_text().startswith("step,n_steps,loss,")
    assert read_log(tmp_path / "run" / LOG_FILE)[0].step == 2
    assert json.loads((tmp_path / "run" / "recipe.json").read_text()) == asdict(RECIPE)


def test_weights_that_are_no_numbers_are_never_the_best(tmp_path: Path, make: Callable[..., Task]) -> None:
    recipe = replace(RECIPE, learning_rate=math.inf)
    with pytest.raises(TrainingError, match=r"after step 1, .* is not finite; lower the learning rate"):
        train(make(), recipe, tmp_path / "run", pace=replace(EVERY_STEP, dev_checks=100))
    assert not (tmp_path / "run" / "best").exists()


def test_measures_that_are_no_numbers_stop_the_run(tmp_path: Path, make: Callable[..., Task]) -> None:
    task = replace(make(), dev_measures=lambda: {"f1": math.nan})
    with pytest.raises(TrainingError, match="the dev measures at step 1 are not finite"):
        train(task, RECIPE, tmp_path / "run", pace=replace(EVERY_STEP, dev_checks=100))


def test_digests_tell_order_shape_type_and_place_apart() -> None:
    numbers = np.arange(6)
    digests = [
        digest(numbers),
        digest(numbers.reshape(2, 3)),
        digest(numbers[::-1]),
        digest(numbers.astype(np.int32)),
        digest(numbers[:3], numbers[3:]),
        digest("ab", "c"),
        digest("a", "bc"),
        digest("a\ud800"),
    ]
    assert len(set(digests)) == len(digests)
    assert digest(numbers) == digest(np.arange(12)[:6])
