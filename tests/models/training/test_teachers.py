"""A student imitates its teachers, which see each input once and must read it as it does."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from models.errors import ModelError, TrainingError
from models.folder import Kind, open_model_folder
from models.reader import Reader, SpanLogits
from models.session import Runtime
from models.tokenization import ModelInput
from models.training.batches import padded_width
from models.training.data import LabelledQuestion
from models.training.loop import Task, train
from models.training.losses import distillation_loss
from models.training.reader import reader_task
from models.training.recipe import Lesson, NullSide, Recipe
from models.training.teachers import Teachers, open_teachers
from tests.conftest import TinyModels

RECIPE = Recipe(seed=1, epochs=30, batch_tokens=200, learning_rate=3e-3, head_learning_rate=3e-3)
QUESTIONS = [
    LabelledQuestion(f"q{n}", "t", f"{town} is the town of the sea" + " and the river" * n, "where is it", ((0, town),))
    for n, town in enumerate(["lima", "porto", "tower", "harbour"])
]


@pytest.fixture
def reader(tiny_models: TinyModels) -> Reader:
    return Reader(open_model_folder(str(tiny_models.reader), "reader"), Runtime(1))


def inputs_of(reader: Reader) -> list[ModelInput]:
    return [reader.prepare(each.query, [each.passage]).inputs[0] for each in QUESTIONS]


def test_logits_are_those_of_each_teacher_padded_as_a_batch_is(reader: Reader) -> None:
    inputs = inputs_of(reader)
    found = Teachers([reader, reader], inputs).logits([2, 0]).numpy()
    assert found.shape == (2, 2, 2, padded_width([inputs[2], inputs[0]]))
    for row, i in enumerate([2, 0]):
        [alone] = reader.run([inputs[i]])
        n_tokens = inputs[i].ids.size
        for teacher in range(2):
            np.testing.assert_allclose(found[0, teacher, row, :n_tokens], alone.start, atol=2e-3)  # in half precision
            np.testing.assert_allclose(found[1, teacher, row, :n_tokens], alone.end, atol=2e-3)
        assert not found[:, :, row, n_tokens:].any()


def test_an_input_is_read_once(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = inputs_of(reader)
    teachers = Teachers([reader], inputs)
    first = teachers.logits([0, 1])
    asked: list[int] = []
    run = reader.run

    def counted(inputs: Sequence[ModelInput]) -> list[SpanLogits]:
        asked.append(len(inputs))
        return run(inputs)

    monkeypatch.setattr(reader, "run", counted)
    again = teachers.logits([1, 3, 0])
    assert asked == [1]
    assert again[:, :, 2, : first.shape[3]].equal(first[:, :, 0])


def imitation(task: Task, teachers: Teachers) -> float:
    """Return how far the task's model is from the teachers on all its inputs."""
    model = task.model.eval()
    total = 0.0
    for i, item in enumerate(teachers._inputs):
        with torch.inference_mode():
            outputs = model(torch.tensor(item.ids[None]), token_type_ids=torch.tensor(item.token_types[None]))
        wanted = teachers.logits([i])[..., : item.ids.size]
        allowed = torch.ones(1, item.ids.size, dtype=torch.bool)
        for logits, each in zip((outputs.start_logits, outputs.end_logits), wanted, strict=True):
            total += float(distillation_loss(logits, allowed, each, temperature=1.0))
    return total


def test_a_student_comes_to_do_as_its_teacher(
    tmp_path: Path, tiny_models: TinyModels, tiny_checkpoint: Callable[[Kind], Path], reader: Reader
) -> None:
    teachers = Teachers([reader], inputs_of(reader))
    far = {}
    for names in ((), (str(tiny_models.reader),)):
        lesson = Lesson(NullSide(0, 0), names)
        task = reader_task(QUESTIONS, QUESTIONS, str(tiny_checkpoint("dual-encoder")), RECIPE, lesson)
        train(task, RECIPE, tmp_path / f"{len(names)} teachers")
        far[len(names)] = imitation(task, teachers)
    assert far[1] < 0.8 * far[0]  # the labels pull the other way


def test_a_run_does_not_go_on_with_other_teachers(
    tmp_path: Path, tiny_models: TinyModels, tiny_checkpoint: Callable[[Kind], Path]
) -> None:
    def task(*teachers: str) -> Task:
        lesson = Lesson(NullSide(0, 0), teachers)
        return reader_task(QUESTIONS, QUESTIONS, str(tiny_checkpoint("dual-encoder")), RECIPE, lesson)

    train(task(str(tiny_models.reader)), RECIPE, tmp_path)
    with pytest.raises(TrainingError, match="differs in its teachers"):
        train(task(), RECIPE, tmp_path)


def test_a_teacher_that_does_not_fit_is_refused(tmp_path: Path, tiny_models: TinyModels, reader: Reader) -> None:
    tokenizer = (tiny_models.reader / "tokenizer.json").read_bytes()
    short = shutil.copytree(tiny_models.reader, tmp_path / "short")
    settings = json.loads((short / "model.json").read_text())
    settings |= {"max_tokens": 40, "overlap_tokens": 4, "fingerprint": None}
    (short / "model.json").write_text(json.dumps(settings))
    long = [ModelInput(np.ones(41, np.int64), np.ones(41, np.int64))]
    for name, wanted, inputs, reason in [
        (tiny_models.reader, b"{}", inputs_of(reader), "has another tokenizer.json"),
        (short, tokenizer, long, "takes 40 tokens; the longest window has 41"),
        (tiny_models.cross_encoder, tokenizer, long, "cross-encoder"),
        (tmp_path / "nothing", tokenizer, long, "nothing"),
    ]:
        with pytest.raises(ModelError, match=reason):
            open_teachers([str(name)], wanted, inputs)
