"""How near the scores of one engine are to those of another, which counts as exact."""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Logits: TypeAlias = NDArray[np.float32]  # (n_requests, n_candidates)


@dataclass(frozen=True, slots=True)
class Fidelity:
    """Differences of logits, and means over requests of the share of the exact top 10 that is kept and of tau."""

    difference_mean: float
    difference_max: float
    top_10_kept: float
    tau: float


def fidelity(logits: Logits, exact: Logits) -> Fidelity:
    """Return how near logits (n_requests, n_candidates) are to the exact ones."""
    differences = np.abs(logits - exact)
    best = [set(np.argsort(-each)[:10]) for each in exact]
    kept = [len(top & set(np.argsort(-each)[:10])) / len(top) for top, each in zip(best, logits, strict=True)]
    taus = [kendall_tau(one, other) for one, other in zip(logits, exact, strict=True)]
    return Fidelity(float(differences.mean()), float(differences.max()), float(np.mean(kept)), float(np.mean(taus)))


def kendall_tau(one: NDArray[np.float32], other: NDArray[np.float32]) -> float:
    """Return the share of pairs of candidates in the same order less that in the other (Kendall's tau-a).

    Worked example: [3, 2, 1] and [3, 1, 2] order two pairs alike and one the other way: 1/3.
    """
    first, second = np.triu_indices(one.size, 1)
    return float((np.sign(one[first] - one[second]) * np.sign(other[first] - other[second])).mean())
