"""What every no-answer threshold would give: SQuAD 2.0's measures, and how many answers are right against how many.

Source: Rajpurkar et al. 2018, section 4, for the measures; El-Yaniv and Wiener 2010 for coverage. A question is
answered when its margin is at least the threshold; its answer is right when its F1 is at least .5, as in calibration.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.evaluate_reader import ReadQuestion

RIGHT_F1 = 0.5
_MAX_POINTS = 400  # more than a plot can show


@dataclass(frozen=True, slots=True, eq=False)
class ThresholdCurve:
    """Arrays (n_thresholds,), thresholds ascending; nan where a mean is over no question."""

    thresholds: NDArray[np.float64]
    f1: NDArray[np.float64]
    exact_match: NDArray[np.float64]
    has_answer_f1: NDArray[np.float64]
    no_answer_accuracy: NDArray[np.float64]
    coverage: NDArray[np.float64]
    precision: NDArray[np.float64]


def threshold_curve(read: Sequence[ReadQuestion], *, max_points: int = _MAX_POINTS) -> ThresholdCurve:
    """Return the measures at the margins that occur, at most max_points of them evenly by rank, and above all of them.

    Worked example: margins 3 and 1 of answerable questions with F1 1 and .4, and 2 of an unanswerable one. At 3, one of
    three is answered and right: F1 (1 + 0 + 1) / 3, HasAns F1 .5, NoAns accuracy 1, coverage 1/3, precision 1. At 1 all
    are: F1 1.4 / 3, HasAns F1 .7, NoAns accuracy 0, coverage 1, precision 1/3.
    """
    margins = np.array([each.margin for each in read], np.float64)
    found = np.unique(margins[np.isfinite(margins)])
    if not found.size:
        found = np.zeros(1)
    places = np.unique(np.linspace(0, found.size - 1, min(max_points, found.size)).round().astype(np.int64))
    thresholds = np.append(found[places], found[-1] + 1)
    is_answered = margins[None, :] >= thresholds[:, None]  # (thresholds, questions)
    is_answerable = np.array([each.is_answerable for each in read])
    unanswered = np.array([each.unanswered for each in read], np.float64)
    f1 = np.where(is_answered, np.array([each.answered_f1 for each in read]), unanswered)
    exact_match = np.where(is_answered, np.array([each.answered_exact_match for each in read]), unanswered)
    is_right = is_answered & np.array([each.answered_f1 >= RIGHT_F1 for each in read])
    return ThresholdCurve(
        thresholds=thresholds,
        f1=f1.mean(axis=1),
        exact_match=exact_match.mean(axis=1),
        has_answer_f1=_share(f1[:, is_answerable].sum(axis=1), is_answerable.sum()),
        no_answer_accuracy=_share((~is_answered[:, ~is_answerable]).sum(axis=1), (~is_answerable).sum()),
        coverage=is_answered.mean(axis=1),
        precision=_share(is_right.sum(axis=1), is_answered.sum(axis=1)),
    )


def _share(parts: NDArray[np.generic], wholes: NDArray[np.generic] | np.generic) -> NDArray[np.float64]:
    """Return parts / wholes, nan where a whole is 0."""
    whole = np.broadcast_to(np.asarray(wholes, np.float64), parts.shape)
    shares = np.full(parts.shape, np.nan, np.float64)
    np.divide(parts.astype(np.float64), whole, out=shares, where=whole > 0)
    return shares
