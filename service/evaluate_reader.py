"""Measure the reader on labelled questions, each over its one passage.

Conventions: SQuAD 2.0's (Rajpurkar et al. 2018). EM and F1 count every question, an unanswerable one with 1 if the
reader gives no answer and else with 0. HasAns figures are over answerable questions, NoAns ones over the others. Those
"without null" make the reader answer always. The best F1 is at the threshold that suits this very file best: it is an
upper bound, not what a user gets. The 95% bootstrap intervals take questions for independent; those that share a
passage are not quite, so the truth is a little wider.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from models.bootstrap import Interval, mean_interval
from models.evaluation import best_threshold, exact_match, token_f1
from models.reader import Reader, ReaderTask, Reading
from models.training.data import LabelledQuestion

_QUESTIONS_AT_ONCE = 64  # enough windows for every thread; bounds the memory of their logits


@dataclass(frozen=True, slots=True)
class ReadQuestion:
    """One question's figures: margin is -inf and answered 0 where the passage has no span at all.

    answered_* are those of the best span given as the answer, unanswered 1 if there is none to give and else 0.
    """

    is_answerable: bool
    is_answered: bool
    margin: float
    answered_exact_match: float
    answered_f1: float

    @property
    def unanswered(self) -> float:
        """EM and F1 of giving no answer."""
        return 0.0 if self.is_answerable else 1.0

    @property
    def exact_match(self) -> float:
        """EM of what the reader decided."""
        return self.answered_exact_match if self.is_answered else self.unanswered

    @property
    def f1(self) -> float:
        """F1 of what the reader decided."""
        return self.answered_f1 if self.is_answered else self.unanswered


@dataclass(frozen=True, slots=True)
class QuestionRead:
    """A labelled question, what the reader made of its passage, in how many windows, and what that is worth."""

    question: LabelledQuestion
    reading: Reading
    n_windows: int
    figures: ReadQuestion


@dataclass(frozen=True, slots=True)
class ReadingQuality:
    """Means in [0, 1]; None where there is no such question. Thresholds are null margins."""

    n_questions: int
    n_answerable: int
    threshold: float
    threshold_origin: str
    exact_match: float
    f1: float
    best_threshold: float
    best_threshold_f1: float
    has_answer_exact_match: float | None
    has_answer_f1: float | None
    has_answer_exact_match_without_null: float | None
    has_answer_f1_without_null: float | None
    no_answer_accuracy: float | None


def measure_reader(
    reader: Reader, questions: Sequence[LabelledQuestion], on_done: Callable[[int], None] = lambda n: None
) -> list[QuestionRead]:
    """Read every question's passage and decide by the reader's own threshold; on_done learns how many are done."""
    read: list[QuestionRead] = []
    for start in range(0, len(questions), _QUESTIONS_AT_ONCE):
        group = questions[start : start + _QUESTIONS_AT_ONCE]
        tasks = [reader.prepare(question.query, [question.passage]) for question in group]
        for question, task, reading in zip(group, tasks, _readings(reader, tasks), strict=True):
            read.append(QuestionRead(question, reading, len(task.windows), judge(question, reading)))
        on_done(len(read))
    return read


def _readings(reader: Reader, tasks: Sequence[ReaderTask]) -> list[Reading]:
    """Return one reading a task; the windows of all run together, so that every thread has work."""
    logits = iter(reader.run([item for task in tasks for item in task.inputs]))
    return [reader.decide(task, [next(logits) for _ in task.windows], n_best=1) for task in tasks]


def reading_seconds(reader: Reader, questions: Sequence[LabelledQuestion]) -> list[float]:
    """Return how long each question takes when it is read alone, as a request is."""
    seconds = []
    for question in questions:
        started = time.perf_counter()
        reader.read(question.query, [question.passage], n_best=1)
        seconds.append(time.perf_counter() - started)
    return seconds


def judge(question: LabelledQuestion, reading: Reading) -> ReadQuestion:
    """Compare a reading with the labels."""
    texts = [text for _, text in question.answers]
    if not reading.answers:
        return ReadQuestion(bool(texts), False, -np.inf, 0.0, 0.0)
    best = reading.answers[0]
    return ReadQuestion(
        is_answerable=bool(texts),
        is_answered=not reading.decision.is_no_answer,
        margin=best.null_margin,
        answered_exact_match=exact_match(best.text, texts),
        answered_f1=token_f1(best.text, texts),
    )


def quality(read: Sequence[ReadQuestion], *, threshold: float, origin: str) -> ReadingQuality:
    """Return the means over read questions, at least one."""
    answerable = [each for each in read if each.is_answerable]
    unanswerable = [each for each in read if not each.is_answerable]
    best, best_f1 = best_threshold(
        np.array([each.margin for each in read], np.float64),
        np.array([each.answered_f1 for each in read], np.float64),
        np.array([each.unanswered for each in read], np.float64),
    )
    return ReadingQuality(
        n_questions=len(read),
        n_answerable=len(answerable),
        threshold=threshold,
        threshold_origin=origin,
        exact_match=float(np.mean([each.exact_match for each in read])),
        f1=float(np.mean([each.f1 for each in read])),
        best_threshold=best,
        best_threshold_f1=best_f1,
        has_answer_exact_match=_mean([each.exact_match for each in answerable]),
        has_answer_f1=_mean([each.f1 for each in answerable]),
        has_answer_exact_match_without_null=_mean([each.answered_exact_match for each in answerable]),
        has_answer_f1_without_null=_mean([each.answered_f1 for each in answerable]),
        no_answer_accuracy=_mean([float(not each.is_answered) for each in unanswerable]),
    )


def quality_of(read: Sequence[QuestionRead]) -> ReadingQuality:
    """Return the means at the threshold by which the reader decided, over at least one question."""
    decision = read[0].reading.decision
    figures = [each.figures for each in read]
    return quality(figures, threshold=decision.threshold, origin=decision.threshold_origin)


def intervals(read: Sequence[ReadQuestion]) -> dict[str, Interval | None]:
    """Return the 95% interval of each mean of `quality`, by its name; None where there is no such question."""
    answerable = [each for each in read if each.is_answerable]
    values = {
        "exact_match": [each.exact_match for each in read],
        "f1": [each.f1 for each in read],
        "has_answer_exact_match": [each.exact_match for each in answerable],
        "has_answer_f1": [each.f1 for each in answerable],
        "has_answer_exact_match_without_null": [each.answered_exact_match for each in answerable],
        "has_answer_f1_without_null": [each.answered_f1 for each in answerable],
        "no_answer_accuracy": [float(not each.is_answered) for each in read if not each.is_answerable],
    }
    return {name: mean_interval(np.array(own, np.float64)) if own else None for name, own in values.items()}


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None
