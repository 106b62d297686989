"""Choose answer spans from start and end logits: exact, vectorised, in a total order.

Source: Devlin et al. 2019, section 4.3 (span score = start logit + end logit; null score = that of [CLS]). Left out:
the n-best pruning by separate start and end maxima that many readers do, which can miss the best valid span.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class TokenSpan:
    """A span of tokens [start, end], inclusive, and its logit."""

    start: int
    end: int
    logit: float


def best_spans(
    start_logits: NDArray[np.float32],
    end_logits: NDArray[np.float32],
    *,
    max_answer_tokens: int,
    n_best: int,
) -> list[TokenSpan]:
    """Return the n_best highest-scoring spans of one window's passage tokens, best first.

    A span ends no earlier than it starts and has at most max_answer_tokens tokens. Ties go to the earlier start, then
    to the earlier end. Worked example: starts [0, 0, 0, 4, 1, -2], ends [0, 0, 0, 1, 5, -2], at most 3 tokens: the
    best is [3, 4] with 4 + 5 = 9.

    Args:
        start_logits: (n_tokens,) logits of the passage's tokens only.
        end_logits: (n_tokens,) likewise.
        max_answer_tokens: longest allowed span; at least 1.
        n_best: how many spans to return at most; at least 1.

    Returns:
        Fewer than n_best spans, or none, when the window holds fewer. Spans whose logit is not finite are left out.

    Raises:
        ValueError: the two arrays differ in shape.
    """
    if start_logits.shape != end_logits.shape:
        raise ValueError(f"shapes differ: {start_logits.shape}, {end_logits.shape}")
    if start_logits.size == 0:
        return []
    padding = np.full(max_answer_tokens - 1, -np.inf, np.float32)
    ends_ahead = np.lib.stride_tricks.sliding_window_view(np.concatenate([end_logits, padding]), max_answer_tokens)
    logits = (start_logits[:, None] + ends_ahead).ravel()  # row-major: earlier start first, then earlier end
    logits = np.where(np.isfinite(logits), logits, -np.inf)
    order = _top(logits, n_best)
    return [
        TokenSpan(int(i // max_answer_tokens), int(i // max_answer_tokens + i % max_answer_tokens), float(logits[i]))
        for i in order
        if np.isfinite(logits[i])
    ]


def _top(values: NDArray[np.float32], k: int) -> NDArray[np.intp]:
    """Return the indices of the k greatest values, best first, ties by index; without sorting all of them."""
    if k < values.size:
        bar = np.partition(values, values.size - k)[values.size - k]
        kept = np.flatnonzero(values >= bar)
    else:
        kept = np.arange(values.size)
    return kept[np.argsort(-values[kept], kind="stable")][:k]


def without_overlaps(spans: Sequence[TokenSpan], *, n_best: int) -> list[TokenSpan]:
    """Return the n_best spans, best first, leaving out each that shares a token with a better one.

    Ties go to the earlier start, then to the earlier end; a span that two windows found counts once.
    """
    kept: list[TokenSpan] = []
    for span in sorted(spans, key=lambda span: (-span.logit, span.start, span.end)):
        if len(kept) == n_best:
            break
        if all(span.end < other.start or span.start > other.end for other in kept):
            kept.append(span)
    return kept
