"""The reader: the answer span of a query in passages, or the decision that there is none.

Rule (Devlin et al. 2019, section 4.3, extended to several windows and passages): a passage's null score is the minimum
over its windows of [CLS]'s start + end logit. A span's margin is its logit minus its passage's null score. The span
with the greatest margin of all passages is the answer, a tie going to the better-ranked passage; below the threshold
there is none. How many answers are listed never changes that decision.
"""

import unicodedata
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.calibration import sigmoid
from models.engines import open_session
from models.folder import TOKENIZER_FILE, ModelFolder
from models.session import Runtime, Session
from models.spans import TokenSpan, best_spans, without_overlaps
from models.tokenization import Lengths, ModelInput, TokenizedText, Tokenizer, Window

MAX_ANSWER_TOKENS = 40
_SPANS_PER_WINDOW = 20


@dataclass(frozen=True, slots=True)
class Answer:
    """A span [start, end) in code points of passage passage_index, text being that slice.

    null_margin is span_logit minus the passage's null score; score is the calibrated probability, in [0, 1], that the
    span answers the query.
    """

    passage_index: int
    start: int
    end: int
    text: str
    span_logit: float
    null_margin: float
    score: float


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether there is an answer, and why: margin is best_span_score minus null_score, both of the passage that won.

    The scores are None when no passage holds any token.
    """

    is_no_answer: bool
    null_score: float | None
    best_span_score: float | None
    margin: float | None
    threshold: float
    threshold_origin: str


@dataclass(frozen=True, slots=True)
class Reading:
    """Answers by null margin descending, then passage, then start; and the decision. query_cut counts tokens."""

    answers: list[Answer]
    decision: Decision
    query_cut: int


@dataclass(frozen=True, slots=True, eq=False)
class SpanLogits:
    """One window's start and end logits, each (window_tokens,)."""

    start: NDArray[np.float32]
    end: NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class ReaderTask:
    """A query over passages, cut into windows; owners[i] is the passage of windows[i]."""

    passages: tuple[str, ...]
    tokens: tuple[TokenizedText, ...]
    windows: tuple[Window, ...]
    owners: tuple[int, ...]

    @property
    def inputs(self) -> list[ModelInput]:
        """The model inputs, one per window."""
        return [window.input for window in self.windows]

    def first(self, n_passages: int) -> "ReaderTask":
        """Return the same for the first passages only."""
        n_windows = bisect_left(self.owners, n_passages)
        return ReaderTask(
            self.passages[:n_passages], self.tokens[:n_passages], self.windows[:n_windows], self.owners[:n_windows]
        )


class Reader:
    """Reads passages; thread-safe."""

    def __init__(self, folder: ModelFolder, runtime: Runtime | Session) -> None:
        """Open the folder's graph in a runtime, unless a session is given to run instead of it."""
        self.folder = folder
        self.fingerprint = folder.fingerprint
        self.tokenizer = Tokenizer(folder.path / TOKENIZER_FILE)
        self._session = open_session(folder, runtime) if isinstance(runtime, Runtime) else runtime
        self.engine = self._session.engine

    @property
    def lengths(self) -> Lengths:
        """How much of a query and a passage one window holds."""
        settings = self.folder.settings
        return Lengths(settings.max_tokens, settings.max_query_tokens, settings.overlap_tokens)

    def prepare(self, query: str, passages: Sequence[str]) -> ReaderTask:
        """Return the windows of every passage, passages in order; no token of a passage is left out."""
        lengths = self.lengths
        query_ids = self.tokenizer.encode(query).ids
        tokens = self.tokenizer.encode_batch(passages)
        windows: list[Window] = []
        owners: list[int] = []
        for index, passage in enumerate(tokens):
            own = self.tokenizer.windows(
                query_ids,
                passage.ids,
                max_window_tokens=lengths.max_tokens,
                max_query_tokens=lengths.max_query_tokens,
                overlap_tokens=lengths.overlap_tokens,
            )
            windows += own
            owners += [index] * len(own)
        return ReaderTask(tuple(passages), tuple(tokens), tuple(windows), tuple(owners))

    def run(self, inputs: Sequence[ModelInput]) -> list[SpanLogits]:
        """Return the logits of each window, in order."""
        return [SpanLogits(start, end) for start, end in self._session.run(inputs)]

    def decide(
        self, task: ReaderTask, logits: Sequence[SpanLogits], *, n_best: int, threshold: float | None = None
    ) -> Reading:
        """Return the n_best answers and the decision, by the given threshold or else by the model's own."""
        spans: list[list[TokenSpan]] = [[] for _ in task.passages]
        null_scores = [np.inf] * len(task.passages)
        for window, owner, window_logits in zip(task.windows, task.owners, logits, strict=True):
            null_scores[owner] = min(null_scores[owner], float(window_logits.start[0] + window_logits.end[0]))
            spans[owner] += _window_spans(window, window_logits)
        answers = [
            self._answer(task, index, span, null_scores[index])
            for index, own in enumerate(spans)
            for span in without_overlaps(own, n_best=n_best)
        ]
        answers.sort(key=lambda answer: (-answer.null_margin, answer.passage_index, answer.start, answer.end))
        query_cut = max((window.input.query_cut for window in task.windows), default=0)
        return Reading(answers[:n_best], self._decision(answers, null_scores, threshold), query_cut)

    def read(self, query: str, passages: Sequence[str], *, n_best: int = 5, threshold: float | None = None) -> Reading:
        """Prepare, run and decide in one call."""
        task = self.prepare(query, passages)
        return self.decide(task, self.run(task.inputs), n_best=n_best, threshold=threshold)

    def _answer(self, task: ReaderTask, index: int, span: TokenSpan, null_score: float) -> Answer:
        offsets = task.tokens[index].offsets
        start, end = without_edge_symbols(task.passages[index], int(offsets[span.start, 0]), int(offsets[span.end, 1]))
        margin = span.logit - null_score
        calibration = self.folder.settings.answer
        weight, bias = (1.0, 0.0) if calibration is None else (calibration.margin_weight, calibration.margin_bias)
        score = float(sigmoid(np.array(weight * margin + bias, np.float64)))
        return Answer(index, start, end, task.passages[index][start:end], span.logit, margin, score)

    def _decision(self, answers: Sequence[Answer], null_scores: Sequence[float], threshold: float | None) -> Decision:
        calibration = self.folder.settings.answer
        own, origin = (0.0, "uncalibrated") if calibration is None else (calibration.threshold, calibration.origin)
        used, origin = (own, origin) if threshold is None else (threshold, "request")
        if not answers:
            lowest = min(null_scores, default=np.inf)
            return Decision(True, float(lowest) if np.isfinite(lowest) else None, None, None, used, origin)
        best = answers[0]
        null_score = null_scores[best.passage_index]
        return Decision(best.null_margin < used, null_score, best.span_logit, best.null_margin, used, origin)


def without_edge_symbols(text: str, start: int, end: int) -> tuple[int, int]:
    """Return [start, end) without pictographs, joiners and blanks at its edges, or as it was if nothing else is left.

    The vocabulary knows no pictographs, so whether a span takes one in is chance. Signs below U+2000 (°, ©) stay.
    """
    inside = [at for at in range(start, end) if not _is_pictograph(text[at])]
    return (inside[0], inside[-1] + 1) if inside else (start, end)


def _is_pictograph(character: str) -> bool:
    if character.isspace():
        return True
    return character >= "\u2000" and unicodedata.category(character) in ("So", "Sk", "Cf", "Mn", "Cn")


def _window_spans(window: Window, logits: SpanLogits) -> list[TokenSpan]:
    """Return the window's best spans in token positions of its passage."""
    inside = slice(window.input_start, window.input_start + window.passage_end - window.passage_start)
    spans = best_spans(
        logits.start[inside], logits.end[inside], max_answer_tokens=MAX_ANSWER_TOKENS, n_best=_SPANS_PER_WINDOW
    )
    shift = window.passage_start
    return [TokenSpan(span.start + shift, span.end + shift, span.logit) for span in spans]
