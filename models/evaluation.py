"""The measures: nDCG, recall and reciprocal rank in TREC's convention, exact match and F1 in SQuAD 2.0's.

Sources: Järvelin and Kekäläinen 2002 as trec_eval computes it (gain = judgement, discount log2(rank + 1)); Rajpurkar
et al. 2018, section 4, for EM, F1 and the tuned no-answer threshold. A ranking is document ids, best first; judgements
map document id to grade, 0 and absent meaning not relevant.
"""

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray


def ndcg_at_k(ranking: Sequence[str], judgements: Mapping[str, int], k: int) -> float:
    """Return nDCG@k, 0 when nothing is judged relevant.

    Worked example: ranking [a, b, c], grades {b: 1, d: 1}, k 3: DCG = 1/log2(3) = .631, ideal = 1 + .631, nDCG = .387.
    """
    gains = [max(judgements.get(document, 0), 0) for document in ranking[:k]]
    ideal = sorted((grade for grade in judgements.values() if grade > 0), reverse=True)[:k]
    best = _discounted(ideal)
    return _discounted(gains) / best if best > 0 else 0.0


def _discounted(gains: Sequence[int]) -> float:
    return float(sum(gain / np.log2(rank + 1) for rank, gain in enumerate(gains, start=1)))


def recall_at_k(ranking: Sequence[str], judgements: Mapping[str, int], k: int) -> float:
    """Return the share of relevant documents among the first k, 0 when nothing is judged relevant."""
    relevant = {document for document, grade in judgements.items() if grade > 0}
    return len(relevant.intersection(ranking[:k])) / len(relevant) if relevant else 0.0


def reciprocal_rank_at_k(ranking: Sequence[str], judgements: Mapping[str, int], k: int) -> float:
    """Return 1 / rank of the first relevant document among the first k, else 0; its mean over queries is MRR@k."""
    for rank, document in enumerate(ranking[:k], start=1):
        if judgements.get(document, 0) > 0:
            return 1 / rank
    return 0.0


def normalise_answer(text: str) -> str:
    """Return text in lower case without ASCII punctuation, English articles and superfluous white space."""
    lowered = "".join(character for character in text.lower() if character not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", lowered).split())


def exact_match(prediction: str, answers: Sequence[str]) -> float:
    """Return 1.0 if the prediction equals an answer after normalisation; no answers means that "" is right."""
    return max(float(normalise_answer(prediction) == normalise_answer(answer)) for answer in answers or ("",))


def token_f1(prediction: str, answers: Sequence[str]) -> float:
    """Return the best F1 of shared tokens over the answers; no answers means that "" is right."""
    return max(
        _f1(normalise_answer(prediction).split(), normalise_answer(answer).split()) for answer in answers or ("",)
    )


def _f1(prediction: Sequence[str], answer: Sequence[str]) -> float:
    if not prediction or not answer:
        return float(list(prediction) == list(answer))
    shared = sum((Counter(prediction) & Counter(answer)).values())
    return 2 * shared / (len(prediction) + len(answer))


def best_threshold(
    margins: NDArray[np.float64], answered: NDArray[np.float64], unanswered: NDArray[np.float64]
) -> tuple[float, float]:
    """Return the threshold that maximises the mean measure, and that mean; the lowest such threshold on a tie.

    A question is answered when its margin is at least the threshold.

    Args:
        margins: (n,) null margin of each question's best span; -inf for none.
        answered: (n,) measure of each question when its best span is given as the answer.
        unanswered: (n,) measure when no answer is given.
    """
    if margins.size == 0:
        return 0.0, 0.0
    order = np.argsort(margins, kind="stable")
    sorted_margins = margins[order]
    gain = (unanswered - answered)[order]
    totals = np.concatenate([[0.0], np.cumsum(gain)]) + answered.sum()  # totals[i]: the i lowest margins unanswered
    possible = np.concatenate([[True], sorted_margins[1:] > sorted_margins[:-1], [True]])
    best = int(np.argmax(np.where(possible, totals, -np.inf)))
    return _between(sorted_margins, best), float(totals[best] / margins.size)


def _between(sorted_margins: NDArray[np.float64], n_below: int) -> float:
    """Return a finite threshold that leaves exactly the n_below lowest margins under it."""
    finite = sorted_margins[np.isfinite(sorted_margins)]
    if finite.size == 0:
        return 0.0
    if n_below == 0 or not np.isfinite(sorted_margins[n_below - 1]):
        return float(finite[0])
    if n_below == sorted_margins.size:
        return float(finite[-1] + 1.0)
    return float((sorted_margins[n_below - 1] + sorted_margins[n_below]) / 2)
