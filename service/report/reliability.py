"""Whether scores are probabilities: bins of a reliability diagram and the expected calibration error.

Source: Guo et al. 2017, "On calibration of modern neural networks", section 2 (bins of equal width). Left out: bins of
equal size, and the maximum calibration error.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

N_BINS = 10


@dataclass(frozen=True, slots=True)
class Bin:
    """The n scores in [low, high), the last bin with its upper end: their mean, and the share that is right."""

    low: float
    high: float
    n: int
    mean_score: float
    share_right: float


def reliability_bins(scores: NDArray[np.float64], is_right: NDArray[np.bool_], *, n_bins: int = N_BINS) -> list[Bin]:
    """Return the bins that hold a score, in order.

    Worked example: scores .05 and .09, the second of them right, and 1.0, right, in ten bins: [0, .1) with mean .07
    and share .5, and [.9, 1] with mean 1 and share 1.

    Args:
        scores: (n,) in [0, 1].
        is_right: (n,).
        n_bins: of equal width; at least 1.
    """
    places = np.minimum((scores * n_bins).astype(np.int64), n_bins - 1)
    return [
        Bin(
            low=place / n_bins,
            high=(place + 1) / n_bins,
            n=int((places == place).sum()),
            mean_score=float(scores[places == place].mean()),
            share_right=float(is_right[places == place].mean()),
        )
        for place in np.unique(places).tolist()
    ]


def expected_calibration_error(bins: Sequence[Bin]) -> float:
    """Return the mean distance of mean score and share over all scores, in [0, 1]; 0 without any.

    Worked example, of the bins above: (2 * |.07 - .5| + 1 * |1 - 1|) / 3 = .287.
    """
    total = sum(each.n for each in bins)
    return sum(each.n * abs(each.mean_score - each.share_right) for each in bins) / total if total else 0.0


def error_above_first_bin(bins: Sequence[Bin]) -> float | None:
    """Return the calibration error of all scores outside the lowest bin, None if there are none.

    Where nearly all scores are near 0, as those of a ranking's tail are, they would hide what the others do.
    """
    others = [each for each in bins if each.low > 0]
    return expected_calibration_error(others) if others else None
