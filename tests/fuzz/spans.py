"""Windows, spans and answers: no token is dropped, no span is missed, and an answer is a slice of its document."""

from functools import cache

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from indexer.chunking import chunk
from indexer.documents import Document
from models.folder import BUNDLED_READER, ModelFolder, open_model_folder
from models.reader import Reader, SpanLogits
from models.session import Session
from models.spans import TokenSpan, best_spans, without_overlaps
from models.tokenization import SPECIAL_TOKENS, Lengths, ModelInput, Tokenizer, window_starts
from service.answers import Source, found_answer
from tests.fuzz.target import Target
from tests.fuzz.texts import SMALL, TEXTS, all_tokenizers, bert_tokenizer

Logits = NDArray[np.float32]

_FEW = st.integers(-3, 3).map(float)  # so that spans tie
_LOGITS = st.one_of(_FEW, st.floats(width=32))
_PAIRS = st.one_of([st.lists(st.tuples(each, each), max_size=14) for each in (_FEW, _LOGITS)])


def brute_force(start: Logits, end: Logits, limit: int) -> list[TokenSpan]:
    """Return every span of finite logit, best first, as the docstring of `best_spans` says."""
    spans = [
        TokenSpan(i, j, float(start[i] + end[j]))
        for i in range(start.size)
        for j in range(i, min(i + limit, start.size))
        if np.isfinite(start[i] + end[j])
    ]
    return sorted(spans, key=lambda span: (-span.logit, span.start, span.end))


def check_spans(value: tuple[list[tuple[float, float]], int, int]) -> None:
    """The best spans are those of brute force; without overlaps are left those that share no token with a better."""
    pairs, limit, n_best = value
    start, end = (np.array([pair[side] for pair in pairs], np.float32) for side in (0, 1))
    with np.errstate(over="ignore", invalid="ignore"):
        every = brute_force(start, end, limit)
        assert best_spans(start, end, max_answer_tokens=limit, n_best=n_best) == every[:n_best]
    kept = without_overlaps(every[::-1], n_best=n_best)
    assert kept == without_overlaps(every, n_best=n_best + 1)[:n_best]
    for place, span in enumerate(every):
        is_apart = all(
            span.end < better.start or better.end < span.start for better in kept if _is_better(better, span)
        )
        assert (span in kept) == (is_apart and (len(kept) < n_best or place <= every.index(kept[-1])))


def _is_better(left: TokenSpan, right: TokenSpan) -> bool:
    return (-left.logit, left.start, left.end) < (-right.logit, right.start, right.end)


def check_windows(value: tuple[int, int, Lengths]) -> None:
    """Together the windows hold every token of the passage, in place, and the same query; none is too long."""
    n_query, n_passage, lengths = value
    query, passage = np.arange(1000, 1000 + n_query), np.arange(10_000, 10_000 + n_passage)
    for tokenizer in (bert_tokenizer(), _two_in_the_middle()):
        n_middle = len(tokenizer.pair(query[:0], query[:0], max_tokens=9, max_query_tokens=0).ids) - 2
        room = lengths.max_tokens - min(n_query, lengths.max_query_tokens) - n_middle - 2
        try:
            windows = tokenizer.windows(
                query,
                passage,
                max_window_tokens=lengths.max_tokens,
                max_query_tokens=lengths.max_query_tokens,
                overlap_tokens=lengths.overlap_tokens,
            )
        except ValueError:
            assert lengths.overlap_tokens >= room
            continue
        end = 0
        for window in windows:
            content, places = window.input, slice(window.passage_start, window.passage_end)
            assert content.ids.size == content.token_types.size <= lengths.max_tokens
            assert window.passage_start == max(0, end - lengths.overlap_tokens)
            assert window.passage_end > end or n_passage == 0
            inside = content.ids[window.input_start : window.input_start + places.stop - places.start]
            assert inside.tolist() == passage[places].tolist()
            assert (
                content.ids[1 : 1 + n_query - content.query_cut].tolist() == query[: lengths.max_query_tokens].tolist()
            )
            assert content.token_types.tolist() == [int(i >= window.input_start) for i in range(content.ids.size)]
            assert content.passage_cut == 0
            end = window.passage_end
        assert end == n_passage
        assert [window.passage_start for window in windows] == window_starts(n_passage, room, lengths.overlap_tokens)


def check_cut(value: tuple[int, int, Lengths]) -> None:
    """Lengths that are cut to a shorter input leave room for a window to advance."""
    n_query, n_passage, lengths = value
    cut = lengths.cut_to(max(16, lengths.max_tokens))
    assert cut.max_query_tokens + SPECIAL_TOKENS + cut.overlap_tokens < cut.max_tokens
    check_windows((n_query, n_passage, cut))


@cache
def _two_in_the_middle() -> Tokenizer:
    """Return a tokenizer of RoBERTa's family, with two separators between query and passage."""
    tokenizer = Tokenizer.__new__(Tokenizer)
    tokenizer.__dict__.update(bert_tokenizer().__dict__ | {"_n_middle": 2})
    return tokenizer


class _Unused:
    """A session that nothing runs: the logits come from elsewhere."""

    engine = "none"

    def run(self, inputs: object) -> list[tuple[Logits, ...]]:
        raise AssertionError(inputs)


@cache
def _reader() -> Reader:
    """Return the bundled reader with windows so short that short passages have several."""
    folder = open_model_folder(BUNDLED_READER, "reader")
    settings = folder.settings.model_copy(update={"max_tokens": 16, "max_query_tokens": 4, "overlap_tokens": 3})
    session: Session = _Unused()
    return Reader(ModelFolder(folder.path, settings), session)


def check_answers(value: tuple[str, list[float], int]) -> None:
    """Whatever a model says, an answer is a slice of the whole document, in code points and in UTF-16 units."""
    text, logits, n_best = value
    document = Document("d", text)
    pieces = chunk(document, all_tokenizers()[1], SMALL)
    sources = [Source("d", each.passage_id, text[each.start : each.end], text, each.start) for each in pieces]
    task = _reader().prepare("who keeps bees", [source.text for source in sources])
    with np.errstate(over="ignore", invalid="ignore"):
        reading = _reader().decide(task, _spread(logits, task.inputs), n_best=n_best)
    encoded = text.encode("utf-16-le", "surrogatepass")
    assert len(reading.answers) <= n_best
    for answer in reading.answers:
        found = found_answer(sources[answer.passage_index], answer)
        assert 0 <= found.start < found.end <= len(text)
        assert found.text == text[found.start : found.end] == answer.text
        assert found.text == encoded[2 * found.start_utf16 : 2 * found.end_utf16].decode("utf-16-le", "surrogatepass")
        assert found.context == text[found.context_start :][: len(found.context)]
        assert found.context_start <= found.start
        assert found.end <= found.context_start + len(found.context)
    margins = [answer.null_margin for answer in reading.answers]
    assert margins == sorted(margins, reverse=True)
    decision = reading.decision
    assert decision.is_no_answer == (not margins or margins[0] < decision.threshold)


def _spread(logits: list[float], inputs: list[ModelInput]) -> list[SpanLogits]:
    """Return logits for every token of the inputs, the given ones again and again."""
    n_tokens = sum(each.ids.size for each in inputs)
    values = np.resize(np.array(logits, np.float32), 2 * n_tokens)
    spread, begin = [], 0
    for each in inputs:
        end = begin + each.ids.size
        spread.append(SpanLogits(values[begin:end], values[n_tokens + begin : n_tokens + end]))
        begin = end
    return spread


_LENGTHS = st.builds(Lengths, st.integers(8, 60), st.integers(1, 30), st.integers(0, 30))
_SIZES = st.tuples(st.integers(0, 40), st.integers(0, 200), _LENGTHS)


def _sizes_of(content: bytes) -> tuple[int, int, Lengths]:
    numbers = [*content[:5], *bytes(5)]
    return numbers[0] % 64, numbers[1], Lengths(8 + numbers[2] % 64, 1 + numbers[3] % 32, numbers[4] % 40)


def _pairs_of(content: bytes) -> tuple[list[tuple[float, float]], int, int]:
    numbers = _numbers(content[2:130])
    return (
        list(zip(numbers[::2], numbers[1::2], strict=False)),
        1 + (content[:1] or b"\0")[0] % 16,
        1 + len(content) % 31,
    )


def _answers_of(content: bytes) -> tuple[str, list[float], int]:
    numbers = _numbers(content[:32])
    return content[32:].decode("utf-8", "surrogateescape"), numbers or [0.0], 1 + len(content) % 9


def _numbers(content: bytes) -> list[float]:
    """Return small whole numbers, and for the bytes from 0xf8 on the values that break sums."""
    extreme = (float("nan"), float("inf"), float("-inf"), 3e38, -3e38, 1e-45, -0.0, 0.1)
    return [extreme[each - 0xF8] if each >= 0xF8 else float(each % 8 - 4) for each in content]


_BYTES = bytes(range(0, 256, 3))

TARGETS = (
    Target("spans", check_spans, st.tuples(_PAIRS, st.integers(1, 16), st.integers(1, 30)), _pairs_of, (_BYTES,)),
    Target("windows", check_windows, _SIZES, _sizes_of, (b"\x05\x64\x20\x08\x04",)),
    Target("shorter-windows", check_cut, _SIZES, _sizes_of, (b"\x05\x64\x20\x08\x04",)),
    Target(
        "answers",
        check_answers,
        st.tuples(TEXTS, st.lists(_LOGITS, min_size=1, max_size=40), st.integers(1, 8)),
        _answers_of,
        (_BYTES[:32] + "🚀🚀 The probe left from Kourou 👩‍🚀 on Tuesday. ".encode() * 4,),
        n_examples=50,
    ),
)
