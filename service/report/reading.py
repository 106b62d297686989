"""The report on the reader: measures, what other thresholds would give, calibration, and the most confident errors.

An answer is right when its F1 is at least .5, as where its score was calibrated. Errors are ordered by how far the
margin lies on the wrong side of the threshold.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from models.bootstrap import Interval
from service.commands.measures import LABELS
from service.evaluate_reader import QuestionRead, ReadingQuality, intervals, quality, quality_of
from service.report.curves import RIGHT_F1, threshold_curve
from service.report.page import Fact, render
from service.report.plots import coverage_plot, reliability_plot, threshold_plot
from service.report.rankings import Reliability, clipped
from service.report.reliability import error_above_first_bin, expected_calibration_error, reliability_bins

_N_WRONG, _N_WITHHELD = 20, 10
_CONTEXT_CHARACTERS = 180
_QUESTION_WORDS = ("who", "what", "when", "where", "which", "why", "how")


@dataclass(frozen=True, slots=True)
class MeasureRow:
    """A measure in [0, 1]; None where there is no such question, or no interval."""

    label: str
    value: float | None
    interval: Interval | None


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A piece of a passage around the span that the reader found best, which is `marked`."""

    before: str
    marked: str
    after: str


@dataclass(frozen=True, slots=True)
class ReadingError:
    """A question that went wrong; expected is empty where the passage holds no answer."""

    question_id: str
    title: str
    query: str
    excerpt: Excerpt
    expected: list[str]
    margin: float
    score: float


@dataclass(frozen=True, slots=True)
class Subgroup:
    """The questions that share a property."""

    label: str
    quality: ReadingQuality


@dataclass(frozen=True, slots=True)
class Grouping:
    """All questions by one property."""

    name: str
    subgroups: list[Subgroup]


@dataclass(frozen=True, slots=True)
class Latency:
    """Quantiles over n questions that were read alone, in seconds."""

    n: int
    p50: float
    p95: float


def reading_report(facts: Sequence[Fact], read: Sequence[QuestionRead], seconds: Sequence[float]) -> str:
    """Return the page about at least one question; seconds are of questions that were read alone, at least one."""
    found = quality_of(read)
    figures = [each.figures for each in read]
    ranges = intervals(figures)
    curve = threshold_curve(figures)
    wrong, withheld = confident_errors(read)
    p50, p95 = np.quantile(seconds, [0.5, 0.95])
    values = {
        "facts": [*facts, Fact("questions", f"{len(read):,}, {found.n_answerable:,} of them answerable")],
        "quality": found,
        "measures": [MeasureRow(label, getattr(found, name), ranges.get(name)) for name, label in LABELS.items()],
        "threshold_plot": threshold_plot(curve, threshold=found.threshold),
        "coverage_plot": coverage_plot(curve, threshold=found.threshold),
        "reliability": _reliability(read),
        "wrong": [_error(each) for each in wrong[:_N_WRONG]],
        "n_wrong": len(wrong),
        "withheld": [_error(each) for each in withheld[:_N_WITHHELD]],
        "n_withheld": len(withheld),
        "groupings": [_grouping(read, name, label_of) for name, label_of in _GROUPINGS.items()],
        "n_windows": sum(each.n_windows for each in read),
        "n_several_windows": sum(each.n_windows > 1 for each in read),
        "n_queries_cut": sum(each.reading.query_cut > 0 for each in read),
        "n_query_tokens_cut": sum(each.reading.query_cut for each in read),
        "latency": Latency(len(seconds), float(p50), float(p95)),
    }
    return render("reading.html", values)


def confident_errors(read: Sequence[QuestionRead]) -> tuple[list[QuestionRead], list[QuestionRead]]:
    """Return the wrong answers that were given, and the right ones that were withheld, the most confident first."""
    wrong = [each for each in read if each.figures.is_answered and each.figures.answered_f1 < RIGHT_F1]
    withheld = [each for each in read if not each.figures.is_answered and each.figures.answered_f1 >= RIGHT_F1]
    wrong.sort(key=lambda each: -each.figures.margin)
    withheld.sort(key=lambda each: each.figures.margin)
    return wrong, withheld


def _error(read: QuestionRead) -> ReadingError:
    best = read.reading.answers[0]
    passage = read.question.passage
    start, end = max(0, best.start - _CONTEXT_CHARACTERS), best.end + _CONTEXT_CHARACTERS
    excerpt = Excerpt(
        before=("… " if start else "") + passage[start : best.start],
        marked=best.text,
        after=passage[best.end : end] + (" …" if end < len(passage) else ""),
    )
    return ReadingError(
        question_id=read.question.question_id,
        title=read.question.title,
        query=clipped(read.question.query),
        excerpt=excerpt,
        expected=list(dict.fromkeys(text for _, text in read.question.answers)),
        margin=best.null_margin,
        score=best.score,
    )


def _reliability(read: Sequence[QuestionRead]) -> Reliability | None:
    """Judge the score of every best span, given or withheld."""
    found = [(each.reading.answers[0].score, each.figures.answered_f1) for each in read if each.reading.answers]
    if not found:
        return None
    scores, f1 = np.array(found, np.float64).T
    bins = reliability_bins(scores, f1 >= RIGHT_F1)
    plot = reliability_plot(bins, name="reliability", score="score of the answer", right="share right (F1 ≥ .5)")
    return Reliability(bins, expected_calibration_error(bins), error_above_first_bin(bins), plot)


def question_word(query: str) -> str:
    """Return the first question word of a query, in lower case, or `other`."""
    words = re.findall(r"[a-z]+", query.lower())
    return next((word for word in words if word in _QUESTION_WORDS), "other")


def answer_length(read: QuestionRead) -> str:
    """Return how many words the shortest expected answer has, in groups."""
    lengths = [len(text.split()) for _, text in read.question.answers]
    if not lengths:
        return "no answer"
    shortest = min(lengths)
    return "1 word" if shortest <= 1 else "2–3 words" if shortest <= 3 else "4–6 words" if shortest <= 6 else "7+ words"


def _windows(read: QuestionRead) -> str:
    return "1 window" if read.n_windows <= 1 else "2 windows" if read.n_windows == 2 else "3+ windows"


_GROUPINGS: dict[str, Callable[[QuestionRead], str]] = {
    "question word": lambda each: question_word(each.question.query),
    "expected answer": answer_length,
    "passage": _windows,
}


def _grouping(read: Sequence[QuestionRead], name: str, label_of: Callable[[QuestionRead], str]) -> Grouping:
    by_label: dict[str, list[QuestionRead]] = {}
    for each in read:
        by_label.setdefault(label_of(each), []).append(each)
    decision = read[0].reading.decision
    return Grouping(
        name,
        [
            Subgroup(
                label,
                quality([each.figures for each in own], threshold=decision.threshold, origin=decision.threshold_origin),
            )
            for label, own in sorted(by_label.items())
        ],
    )
