"""From what the reader decided to answers with offsets into the whole text, in code points and in UTF-16 units."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from indexer.ranking import Rows
from indexer.snapshot import Snapshot
from models.reader import Answer, Reading

Reason: TypeAlias = Literal["below_threshold", "nothing_retrieved", "truncated", "deadline"]

CONTEXT_CHARACTERS = 240


@dataclass(frozen=True, slots=True)
class OwnPassage:
    """A passage that the caller sent."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class Source:
    """A passage to read: text is `whole[start : start + len(text)]`, whole being the text that offsets refer to."""

    document_id: str
    passage_id: str
    text: str
    whole: str
    start: int = 0
    title: str = ""
    url: str | None = None


@dataclass(frozen=True, slots=True)
class FoundAnswer:
    """A span: `whole[start:end] == text`; context is `whole[context_start:]` as far as it goes."""

    text: str
    score: float
    document_id: str
    passage_id: str
    title: str
    url: str | None
    start: int
    end: int
    start_utf16: int
    end_utf16: int
    context: str
    context_start: int
    span_logit: float
    null_margin: float


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """The decision, with everything that it was made from; the scores are None when nothing was read."""

    is_no_answer: bool
    reason: Reason | None
    null_score: float | None
    best_span_score: float | None
    margin: float | None
    threshold: float
    threshold_origin: str


def index_sources(snapshot: Snapshot, rows: Rows) -> list[Source]:
    """Return what the reader reads of indexed passages: the bare slice of the document, without its headings."""
    passages = snapshot.passages(rows)
    wholes = {each.document_id: snapshot.document(each.document_id) for each in passages}
    sources = []
    for passage in passages:
        document = wholes[passage.document_id]
        assert document is not None, "a snapshot holds the document of each of its passages"
        sources.append(
            Source(
                document_id=passage.document_id,
                passage_id=passage.passage_id,
                text=passage.text,
                whole=document.text,
                start=passage.start,
                title=passage.title,
                url=passage.url,
            )
        )
    return sources


def own_sources(passages: Sequence[OwnPassage]) -> list[Source]:
    """Return the caller's passages as sources, each a document of its own."""
    return [Source(each.id, each.id, each.text, whole=each.text) for each in passages]


def found_answer(source: Source, answer: Answer) -> FoundAnswer:
    """Place a span of one source in the source's whole text."""
    start, end = source.start + answer.start, source.start + answer.end
    start_utf16 = utf16_length(source.whole[:start])
    context_start, context_end = context_around(source.whole, start, end)
    return FoundAnswer(
        text=source.whole[start:end],
        score=answer.score,
        document_id=source.document_id,
        passage_id=source.passage_id,
        title=source.title,
        url=source.url,
        start=start,
        end=end,
        start_utf16=start_utf16,
        end_utf16=start_utf16 + utf16_length(source.whole[start:end]),
        context=source.whole[context_start:context_end],
        context_start=context_start,
        span_logit=answer.span_logit,
        null_margin=answer.null_margin,
    )


def utf16_length(text: str) -> int:
    """Return the length in UTF-16 units; a code point beyond U+FFFF takes two, a lone surrogate one."""
    return len(text) + sum(character > "\uffff" for character in text)


def context_around(text: str, start: int, end: int) -> tuple[int, int]:
    """Return a slice around [start, end), about CONTEXT_CHARACTERS to each side, that ends between words.

    Without white space in reach it ends at the limit.
    """
    left = max(0, start - CONTEXT_CHARACTERS)
    right = min(len(text), end + CONTEXT_CHARACTERS)
    if left > 0:
        left = next((i + 1 for i in range(left, start) if text[i].isspace()), left)
    if right < len(text):
        right = next((i for i in range(right - 1, end - 1, -1) if text[i].isspace()), right)
    return left, right


def no_answer(reading: Reading, *, n_sources: int, n_read: int, is_cut: bool) -> NoAnswer:
    """Return the reader's decision with its reason, which is another where something that might matter was not read."""
    decision = reading.decision
    reason: Reason | None = None
    if decision.is_no_answer:
        reason = _reason(n_sources=n_sources, n_read=n_read, is_cut=is_cut)
    return NoAnswer(
        is_no_answer=decision.is_no_answer,
        reason=reason,
        null_score=decision.null_score,
        best_span_score=decision.best_span_score,
        margin=decision.margin,
        threshold=decision.threshold,
        threshold_origin=decision.threshold_origin,
    )


def _reason(*, n_sources: int, n_read: int, is_cut: bool) -> Reason:
    if n_sources == 0:
        return "nothing_retrieved"
    if n_read < n_sources:
        return "deadline"
    return "truncated" if is_cut else "below_threshold"
