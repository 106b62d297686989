"""How far a mean over queries can be trusted: percentile intervals and paired tests by the bootstrap.

Sources: Efron and Tibshirani 1993, chapter 13 (percentile interval of a mean); Sakai 2006, "Evaluating evaluation
metrics based on the bootstrap", figure 1 (paired, studentised test); Davison and Hinkley 1997, section 4.2 (a p-value
that is never 0). Left out: BCa intervals, and any correction for making many comparisons. What is resampled must be
independent; with fewer than about twenty values the intervals are too narrow.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

N_RESAMPLES = 10_000
SEED = 1
CONFIDENCE = 0.95
_ROUNDING = 1e-12  # measures lie in [0, 1]; differences closer than this are equal
_DRAWS_AT_ONCE = 2_000_000  # bounds the memory: 16 MB of them, and as much again in counts


@dataclass(frozen=True, slots=True)
class Interval:
    """A confidence interval [low, high]."""

    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half the distance of its ends."""
        return (self.high - self.low) / 2


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """The mean of paired differences, its interval, and the two-sided p-value of "they do not differ"."""

    mean: float
    interval: Interval
    p_value: float


def resampled_means(
    values: NDArray[np.float64], *, n_resamples: int = N_RESAMPLES, seed: int = SEED
) -> NDArray[np.float64]:
    """Return the means of n_resamples resamples, with replacement, of the rows.

    All columns share their resamples, and so do two arrays of equally many rows under one seed: the difference of what
    this returns for two systems is what it returns for their difference. Worked example: rows 0 and 1 give the means
    0, .5 and 1 in a quarter, half and a quarter of the resamples.

    Args:
        values: (n, n_columns), n at least 1.
        n_resamples: at least 1.
        seed: of numpy's default generator.

    Returns:
        (n_resamples, n_columns).

    Raises:
        ValueError: there are no rows.
    """
    n = len(values)
    if n == 0:
        raise ValueError("there is nothing to resample")
    generator = np.random.default_rng(seed)
    means = []
    for size in _portions(n_resamples, max(1, _DRAWS_AT_ONCE // n)):
        drawn = generator.integers(n, size=(size, n)) + n * np.arange(size)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=size * n).reshape(size, n)
        means.append(counts @ values / n)
    return np.concatenate(means)


def _portions(total: int, largest: int) -> list[int]:
    return [min(largest, total - start) for start in range(0, total, largest)]


def percentile_interval(means: NDArray[np.float64], *, confidence: float = CONFIDENCE) -> Interval:
    """Return the interval that holds the middle share `confidence` of resampled means (n_resamples,)."""
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(low), float(high))


def mean_interval(values: NDArray[np.float64], *, n_resamples: int = N_RESAMPLES, seed: int = SEED) -> Interval:
    """Return the 95% interval of the mean of independent values (n,), n at least 1; one value gives no width."""
    return percentile_interval(resampled_means(values[:, None], n_resamples=n_resamples, seed=seed)[:, 0])


def paired_difference(
    first: NDArray[np.float64], second: NDArray[np.float64], *, n_resamples: int = N_RESAMPLES, seed: int = SEED
) -> PairedDifference:
    """Return the mean of first - second over the same queries, with its 95% interval and p-value.

    Worked example: .9, .8 and .7 against .7, .8 and .4 differ by .2, 0 and .3, on average by .167.

    Args:
        first: (n,) one system's measure of each query, n at least 1.
        second: (n,) the other's.
        n_resamples: at least 1.
        seed: of numpy's default generator.

    Raises:
        ValueError: the shapes differ, or there is no query.
    """
    if first.shape != second.shape:
        raise ValueError(f"shapes differ: {first.shape}, {second.shape}")
    differences = first - second
    interval = mean_interval(differences, n_resamples=n_resamples, seed=seed)
    p_value = _p_value(differences, n_resamples=n_resamples, seed=seed)
    return PairedDifference(float(differences.mean()), interval, p_value)


def _p_value(differences: NDArray[np.float64], *, n_resamples: int, seed: int) -> float:
    """Return the share of resamples, under no difference, whose |t| reaches the one that was found.

    t compares the mean with its standard error; both sides are multiplied out, so that a resample without variance
    divides by nothing. A single query, or no difference in any, says nothing: 1. The same difference in all is as sure
    as n_resamples can tell.
    """
    if differences.size < 2 or not differences.any():
        return 1.0
    if np.ptp(differences) < _ROUNDING:
        return 1 / (n_resamples + 1)
    centred = differences - differences.mean()
    found_mean, found_deviation = abs(differences.mean()), centred.std()
    moments = resampled_means(np.column_stack([centred, centred**2]), n_resamples=n_resamples, seed=seed)
    means, deviations = np.abs(moments[:, 0]), np.sqrt(np.maximum(moments[:, 1] - moments[:, 0] ** 2, 0))
    n_as_extreme = int((means * found_deviation >= found_mean * deviations).sum())
    return (n_as_extreme + 1) / (n_resamples + 1)
