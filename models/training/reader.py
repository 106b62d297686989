"""Train the reader: BERT with a start and an end logit per token (Devlin et al. 2019, section 4.2 and 4.3).

An example without an answer points both at [CLS]. Real unanswerable questions are rare in the data, so more are made,
see `models.training.unanswerable`.
"""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.errors import DataError
from models.evaluation import best_threshold
from models.reader import Reader
from models.tokenization import Lengths, ModelInput, TokenizedText, Tokenizer, Window
from models.training.batches import outputs_of
from models.training.calibrate import read_all
from models.training.checkpoints import load_start
from models.training.data import LabelledQuestion
from models.training.digests import digest
from models.training.loop import Task
from models.training.losses import distillation_loss, span_loss
from models.training.recipe import Lesson, NullSide, Recipe
from models.training.teachers import Teachers, open_teachers
from models.training.torch_session import TorchSession
from models.training.unanswerable import edited_questions, moved_questions

LENGTHS = Lengths(max_tokens=384, max_query_tokens=64, overlap_tokens=128)
_SHOWN = 4  # windows
_TEMPERATURE = 2.0
_TEACHERS_SHARE = 0.5  # of the loss, where there are any


@dataclass(frozen=True, slots=True)
class SpanExample:
    """One window and its target: first and last answer token in the input, both 0 ([CLS]) for none."""

    input: ModelInput
    passage_start: int
    start: int
    end: int


def with_null_side(questions: Sequence[LabelledQuestion], null_side: NullSide, *, seed: int) -> list[LabelledQuestion]:
    """Return the questions, the real unanswerable ones repeated, and those that are made."""
    real = [question for question in questions if not question.answers]
    return [
        *questions,
        *real * (null_side.real_repeats - 1),
        *moved_questions(questions, n_questions=null_side.n_moved, seed=seed),
        *edited_questions(questions, n_questions=null_side.n_edited, seed=seed),
    ]


def span_examples(
    questions: Sequence[LabelledQuestion],
    tokenizer: Tokenizer,
    *,
    null_windows: int,
    seed: int,
    lengths: Lengths = LENGTHS,
) -> list[SpanExample]:
    """Return the windows to train on: all that hold the answer whole, and at most null_windows others a question."""
    generator = random.Random(seed)
    queries = tokenizer.encode_batch([question.query for question in questions])
    texts = list({question.passage: None for question in questions})
    passages = dict(zip(texts, tokenizer.encode_batch(texts), strict=True))
    examples: list[SpanExample] = []
    for question, query in zip(questions, queries, strict=True):
        passage = passages[question.passage]
        windows = tokenizer.windows(
            query.ids,
            passage.ids,
            max_window_tokens=lengths.max_tokens,
            max_query_tokens=lengths.max_query_tokens,
            overlap_tokens=lengths.overlap_tokens,
        )
        own = [_example(window, _answer_tokens(question, passage)) for window in windows]
        held = [example for example in own if example.start > 0]
        null = [example for example in own if example.start == 0]
        if question.answers and not held:
            continue
        examples += held + generator.sample(null, min(len(null), null_windows))
    return examples


def _answer_tokens(question: LabelledQuestion, passage: TokenizedText) -> tuple[int, int] | None:
    """Return the first answer's tokens as [first, last], None when the question has no answer."""
    if not question.answers:
        return None
    start, text = question.answers[0]
    inside = np.flatnonzero((passage.offsets[:, 0] < start + len(text)) & (passage.offsets[:, 1] > start))
    return (int(inside[0]), int(inside[-1])) if inside.size else None


def _example(window: Window, answer: tuple[int, int] | None) -> SpanExample:
    if answer is None or answer[0] < window.passage_start or answer[1] >= window.passage_end:
        return SpanExample(window.input, window.input_start, 0, 0)
    shift = window.input_start - window.passage_start
    return SpanExample(window.input, window.input_start, answer[0] + shift, answer[1] + shift)


def batch_span_loss(model: torch.nn.Module, examples: Sequence[SpanExample], teachers: Tensor | None) -> Tensor:
    """Return the loss of the examples, padded into one batch.

    Args:
        teachers: (2, teachers, batch, width) start and end logits, of which the mean is half of what is learned; None
            for the labels alone.
    """
    outputs = outputs_of(model, [example.input for example in examples])
    lengths = torch.tensor([example.input.ids.size for example in examples])
    positions = torch.arange(outputs.start_logits.shape[1])
    passage_starts = torch.tensor([example.passage_start for example in examples])
    in_passage = (positions[None, :] >= passage_starts[:, None]) & (positions[None, :] < lengths[:, None] - 1)
    allowed = in_passage | (positions[None, :] == 0)
    both = (outputs.start_logits, outputs.end_logits)
    starts = torch.tensor([example.start for example in examples])
    ends = torch.tensor([example.end for example in examples])
    loss = span_loss(*both, allowed, starts, ends)
    if teachers is None:
        return loss
    imitation = [
        distillation_loss(logits, allowed, wanted, temperature=_TEMPERATURE)
        for logits, wanted in zip(both, teachers, strict=True)
    ]
    return (1 - _TEACHERS_SHARE) * loss + _TEACHERS_SHARE * (imitation[0] + imitation[1]) / 2


def reader_measures(reader: Reader, questions: Sequence[LabelledQuestion]) -> dict[str, float]:
    """Return F1 in [0, 1] at the best threshold, and F1 of the answerable ones without null, on single passages.

    Answerable and unanswerable questions weigh the same in the former.
    """
    read = read_all(reader, questions)
    f1, has_answer = read.f1, read.is_answerable
    weights = np.where(has_answer, 0.5 / max(1, has_answer.sum()), 0.5 / max(1, (~has_answer).sum()))
    _, best = best_threshold(read.margins, f1 * weights, ~has_answer * weights)
    total = best * len(questions) / weights.sum()
    return {"f1_balanced": float(total), "has_answer_f1": float(f1[has_answer].mean()) if has_answer.any() else 0.0}


def reader_task(
    questions: Sequence[LabelledQuestion],
    dev: Sequence[LabelledQuestion],
    init: str,
    recipe: Recipe,
    lesson: Lesson,
) -> Task:
    """Return what a reader learns from the questions, starting from the encoder (or the reader) init names.

    Raises:
        DataError: there is no question to learn from.
        TrainingError: a teacher does not fit.
        ModelFolderError: a teacher cannot be opened.
    """
    start = load_start("reader", init, recipe, LENGTHS)
    model, tokenizer = start.model, Tokenizer(start.tokenizer)
    asked = with_null_side(questions, lesson.null_side, seed=recipe.seed)
    examples = span_examples(asked, tokenizer, null_windows=1, seed=recipe.seed, lengths=start.lengths)
    if not examples:
        raise DataError("the data holds no question to learn from")
    inputs = [example.input for example in examples]
    teachers = open_teachers(lesson.teachers, start.tokenizer.read_bytes(), inputs) if lesson.teachers else None
    folder = start.folder("reader")
    reader = Reader(folder, TorchSession(model, folder.settings.outputs))

    def batch_loss(indices: NDArray[np.int64]) -> Tensor:
        wanted = None if teachers is None else teachers.logits(indices.tolist())
        return batch_span_loss(model, [examples[i] for i in indices], wanted)

    def dev_measures() -> Mapping[str, float]:
        return reader_measures(reader, dev)

    return Task(
        model=model,
        summary=_summary(examples) + start.note,
        batch_loss=batch_loss,
        lengths=np.array([each.ids.size for each in inputs], np.int64),
        dev_measures=dev_measures if dev else None,
        save=start.save,
        data=_digests(examples, dev, teachers),
        decoded=[_shown(example, tokenizer) for example in examples[:: len(examples) // _SHOWN + 1]],
    )


def _summary(examples: Sequence[SpanExample]) -> str:
    n_null = sum(example.start == 0 for example in examples)
    return f"{len(examples):,} windows, {n_null:,} of them without an answer"


def _digests(
    examples: Sequence[SpanExample], dev: Sequence[LabelledQuestion], teachers: Teachers | None
) -> dict[str, str]:
    targets = [(each.input.ids.size, each.passage_start, each.start, each.end) for each in examples]
    return {
        "training data": digest(np.concatenate([each.input.ids for each in examples]), np.array(targets, np.int64)),
        "dev data": digest(json.dumps([astuple(each) for each in dev])),
        "teachers": digest(*([] if teachers is None else teachers.fingerprints)),
    }


def _shown(example: SpanExample, tokenizer: Tokenizer) -> str:
    """Return a window for people, its target before it."""
    answer = tokenizer.decode(example.input.ids[example.start : example.end + 1].tolist())
    return f"{repr(answer) if example.start else 'no answer'} in {tokenizer.decode(example.input.ids.tolist())}"
