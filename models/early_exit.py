"""When a cross-encoder may stop reading: no candidate that it did not read can enter the best k any more.

Candidates are read best prior first, where the prior is their relevance logit without the rerank logit. Those unread
are held to be able to gain, by a rerank logit, the mean of those read and some standard deviations of them: of the
query's own, since the scale differs between kinds of text. How many deviations is learned from dev queries that were
read to the end, as the quantile of split conformal prediction (Vovk et al. 2005; Lei et al. 2018, section 2.2): a
query of the same kind keeps its best k with that confidence.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from models.calibration import Floats

FIRST = 16  # candidates that are read before the first look
STEP = 8  # and between two looks


def looks(n: int) -> Iterator[int]:
    """Yield how many of n candidates have been read at each look but the last, when all are."""
    yield from range(FIRST, n, STEP)


def best_possible(priors: Floats, rerank_logits: Floats, *, logit_weight: float, deviations: float) -> float:
    """Return the relevance logit that no unread candidate is held to exceed, -inf if all were read.

    Worked example: priors 2, 1, 0 with two read, logits 3 and 1, weight .5, 2 deviations: the mean is 2, the deviation
    1, so the third may gain .5 * (2 + 2 * 1) = 2.

    Args:
        priors: (n,) of all candidates in reading order, so descending.
        rerank_logits: (n_read,) of the first; those that are not finite count for nothing.
    """
    n_read = rerank_logits.size
    finite = rerank_logits[np.isfinite(rerank_logits)]
    if n_read >= priors.size:
        return -math.inf
    if not finite.size:
        return math.inf
    return float(priors[n_read] + logit_weight * (finite.mean() + deviations * finite.std()))


def kth_best(relevance_logits: Floats, k: int) -> float:
    """Return the kth greatest finite logit, -inf if there are fewer."""
    finite = relevance_logits[np.isfinite(relevance_logits)]
    return float(np.partition(finite, -k)[-k]) if finite.size >= k else -math.inf


def needed_deviations(priors: Floats, rerank_logits: Floats, *, logit_weight: float, k: int) -> float:
    """Return how many deviations keep a query from every stop that loses one of its best k; -inf if none does.

    With as many it might still stop there, with any more it would not. A stop is after any number of candidates, at
    least k, so what is learned holds however often one looks.

    Args:
        priors: (n,) of all candidates, descending.
        rerank_logits: (n,) of all of them, finite.
    """
    relevance = priors + logit_weight * rerank_logits
    last = int(np.argsort(-relevance, kind="stable")[:k].max(initial=0))  # of the best k, in reading order
    needed = -math.inf
    for n_read in range(k, last + 1):
        read = rerank_logits[:n_read]
        gain = (kth_best(relevance[:n_read], k) - priors[n_read]) / logit_weight
        needed = max(needed, float((gain - read.mean()) / max(read.std(), 1e-9)))
    return needed


def queries_needed(confidence: float) -> int:
    """Return the fewest queries from which `learn_deviations` can be so sure."""
    return math.ceil(confidence / (1 - confidence) - 1e-9)


def learn_deviations(needed: Sequence[float], *, confidence: float) -> float:
    """Return the deviations that a further query of this kind stays within, with a confidence in (0, 1).

    Worked example: of 1, 2, 3 and 4 deviations needed, 3 are enough for a fifth query with a confidence of .6.

    Args:
        needed: of at least `queries_needed` queries.
        confidence: in (0, 1).
    """
    assert len(needed) >= queries_needed(confidence), "too few queries to be so sure"
    return sorted(needed)[math.ceil((len(needed) + 1) * confidence - 1e-9) - 1]
