"""Learn from labelled dev questions what a reader's margins mean: the no-answer threshold, and the chance to be right.

The threshold is the one of best mean F1 over single passages (Rajpurkar et al. 2018, section 4), or the lowest one
whose answers are right often enough. An answer counts as right from an F1 of 1/2. Unless told otherwise, answerable and
unanswerable questions weigh the same in sum: their shares in a dev file are an accident of how it was made.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from models.calibration import (
    N_BINS,
    CurveQuality,
    Floats,
    Labels,
    OperatingPoint,
    ReliabilityBin,
    fit_logistic,
    held_out,
    isotonic,
    operating_points,
    platt,
    reliability_bins,
)
from models.errors import DataError
from models.evaluation import best_threshold, token_f1
from models.folder import AnswerCalibration
from models.reader import Reader
from models.training.data import LabelledQuestion

_RIGHT_F1 = 0.5
_FEWEST_ANSWERS = 10  # the precision of fewer is chance
_FEWEST_MARGINS = 2  # one to learn from, one to measure on
_QUESTIONS_AT_ONCE = 64  # enough windows for every thread; bounds the memory of their logits


@dataclass(frozen=True, slots=True, eq=False)
class ReadQuestions:
    """What a reader made of labelled questions, each array (n,).

    margins are null margins, -inf where a passage has no span; f1 is that of the best span, given as the answer.
    """

    margins: Floats
    f1: Floats
    is_answerable: Labels


@dataclass(frozen=True, slots=True)
class AnswerFit:
    """What was learned, and how good it is on these questions.

    f1, coverage and precision are at the threshold; precision is None where it answers nothing.
    """

    calibration: AnswerCalibration
    n_questions: int
    n_answerable: int
    f1: float
    coverage: float
    precision: float | None
    platt: CurveQuality
    isotonic: CurveQuality
    reliability: list[ReliabilityBin]


def read_all(
    reader: Reader, questions: Sequence[LabelledQuestion], on_done: Callable[[int], None] = lambda n: None
) -> ReadQuestions:
    """Read each question on its own passage; on_done learns how many are done."""
    margins: list[float] = []
    f1: list[float] = []
    for start in range(0, len(questions), _QUESTIONS_AT_ONCE):
        group = questions[start : start + _QUESTIONS_AT_ONCE]
        tasks = [reader.prepare(question.query, [question.passage]) for question in group]
        logits = iter(reader.run([item for task in tasks for item in task.inputs]))
        for question, task in zip(group, tasks, strict=True):
            reading = reader.decide(task, [next(logits) for _ in task.windows], n_best=1)
            best = reading.answers[0] if reading.answers else None
            margins.append(-np.inf if best is None else best.null_margin)
            f1.append(0.0 if best is None else token_f1(best.text, [text for _, text in question.answers]))
        on_done(len(margins))
    answerable = np.array([bool(question.answers) for question in questions], np.bool_)
    return ReadQuestions(np.array(margins), np.array(f1) * answerable, answerable)


def fit_answer(read: ReadQuestions, *, origin: str, precision: float | None = None, balances: bool = True) -> AnswerFit:
    """Return the threshold and the Platt weights that fit the questions.

    Args:
        origin: names the data in model.json.
        precision: the share of answers that shall be right; None for the best F1.
        balances: whether answerable and unanswerable questions weigh the same in sum.

    Raises:
        DataError: there is no answerable or no unanswerable question, so that nothing weighs against answering or
            against silence; fewer than two have a span; the precision is out of reach; or the margin does not tell
            right answers from wrong ones.
    """
    weights = _weights(read, origin, balances=balances)
    known = np.isfinite(read.margins)
    if known.sum() < _FEWEST_MARGINS:
        raise DataError(f"in {origin}, {known.sum()} of {known.size} passages hold a span; at least 2 are needed")
    is_right = read.f1 >= _RIGHT_F1
    points = operating_points(read.margins, is_right, weights=weights)
    threshold = _best_f1_threshold(read, weights) if precision is None else _reaching(points, precision, origin)
    curve = _fit_curve(read.margins[known], is_right[known], weights[known], origin)
    calibration = AnswerCalibration(
        threshold=threshold,
        margin_weight=curve.weight,
        margin_bias=curve.bias,
        origin=origin,
        n_examples=read.margins.size,
        calibration_error=round(curve.platt.calibration_error, 4),
    )
    at = next((point for point in points if point.threshold >= threshold), None)
    decided = np.where(read.margins >= threshold, read.f1, ~read.is_answerable)
    return AnswerFit(
        calibration,
        n_questions=read.margins.size,
        n_answerable=int(read.is_answerable.sum()),
        f1=float(np.average(decided, weights=weights)),
        coverage=0.0 if at is None else at.coverage,
        precision=None if at is None else at.precision,
        platt=curve.platt,
        isotonic=curve.isotonic,
        reliability=curve.reliability,
    )


def _weights(read: ReadQuestions, origin: str, *, balances: bool) -> Floats:
    """Return how much each question counts, 1 in the mean."""
    n, n_answerable = read.margins.size, int(read.is_answerable.sum())
    if n_answerable in (0, n):
        lacking = "unanswerable" if n_answerable else "answerable"
        raise DataError(f"{origin} holds no {lacking} question, so no threshold can be learned from it")
    if not balances:
        return np.ones(n)
    return np.where(read.is_answerable, n / (2 * n_answerable), n / (2 * (n - n_answerable)))


def _best_f1_threshold(read: ReadQuestions, weights: Floats) -> float:
    unanswered = np.where(read.is_answerable, 0.0, 1.0)
    return best_threshold(read.margins, read.f1 * weights, unanswered * weights)[0]


def _reaching(points: Sequence[OperatingPoint], precision: float, origin: str) -> float:
    """Return the lowest threshold of a precision, by points with enough answers to tell."""
    telling = [point for point in points if point.n_answered >= _FEWEST_ANSWERS]
    if not telling:
        raise DataError(f"{origin} holds too few questions to tell a precision: fewer than {_FEWEST_ANSWERS} answers")
    for point in telling:
        if point.precision >= precision:
            return point.threshold
    best = max(telling, key=lambda point: (point.precision, point.coverage))
    raise DataError(
        f"no threshold reaches a precision of {precision:g} on {origin}; the best is {best.precision:.3f}, "
        f"at {best.threshold:.3f}, where {best.coverage:.1%} of the questions are answered"
    )


@dataclass(frozen=True, slots=True)
class _Curve:
    """The Platt weights on the margin, and how they and isotonic regression do on questions that were held out."""

    weight: float
    bias: float
    platt: CurveQuality
    isotonic: CurveQuality
    reliability: list[ReliabilityBin]


def _fit_curve(margins: Floats, is_right: Labels, weights: Floats, origin: str) -> _Curve:
    weight, bias = fit_logistic(margins[:, None], is_right, weights=weights)
    if not weight > 0:
        raise DataError(f"on {origin}, answers of a greater margin are not right more often; nothing was learned")
    by_platt, by_isotonic = (
        held_out(fit, margins, is_right, groups=np.arange(margins.size), weights=weights) for fit in (platt, isotonic)
    )
    return _Curve(
        float(weight),
        float(bias),
        CurveQuality.of(by_platt, is_right, weights),
        CurveQuality.of(by_isotonic, is_right, weights),
        reliability_bins(by_platt, is_right, N_BINS, weights=weights),
    )
