"""How passages are cut, case by case; tests/fuzz has what holds for any text."""

from itertools import pairwise

import numpy as np
import pytest
from pydantic import ValidationError

from indexer.chunking import ChunkingSettings, _Cutter, chunk
from indexer.documents import Document, passage_text
from models.tokenization import Tokenizer


def test_parts_of_one_long_unknown_word_are_counted_anew(word_tokenizer: Tokenizer) -> None:
    """A word of more than 100 characters is one unknown token; each part of it is a token a character."""
    text = "0" * 176
    chunking = ChunkingSettings(max_tokens=16, overlap_tokens=4, max_characters=96)
    passages = chunk(Document("d", text), word_tokenizer, chunking)
    assert max(word_tokenizer.encode(text[passage.start : passage.end]).ids.size for passage in passages) <= 16


def test_a_passage_with_its_context_keeps_to_the_limit(word_tokenizer: Tokenizer) -> None:
    text = "# Ferry times\n\n" + "fog over the harbour and the ferry. " * 30
    document = Document("d", text, title="the harbour")
    passages = chunk(document, word_tokenizer, ChunkingSettings(max_tokens=40, overlap_tokens=10))
    sizes = [word_tokenizer.encode(passage_text(document, passage)).ids.size for passage in passages]
    assert len(passages) > 3
    assert max(sizes) <= 40
    assert min(sizes[:-1]) > 20


def test_passages_end_with_sentences_and_overlap_by_whole_sentences(word_tokenizer: Tokenizer) -> None:
    text = " ".join(["fog over harbour.", "ferry times the ticket prices.", "drum kit and drum skin!"] * 4)
    chunking = ChunkingSettings(max_tokens=24, overlap_tokens=6)
    passages = chunk(Document("d", text), word_tokenizer, chunking)
    for previous, following in pairwise(passages):
        assert text[previous.end - 1] in ".!"
        assert following.start < previous.end
        assert text[following.start - 2] in ".!"


def test_lines_without_tokens_are_not_repeated_again_and_again(word_tokenizer: Tokenizer) -> None:
    """Each passage but the first once advanced by a single line, so that this gave 2,400 passages in minutes."""
    passages = chunk(Document("d", "    \x00\n" * 3_000), word_tokenizer, ChunkingSettings())
    assert len(passages) < 10


def test_without_overlap_neighbours_share_nothing(word_tokenizer: Tokenizer) -> None:
    text = "fog over harbour. ferry times. " * 20
    passages = chunk(Document("d", text), word_tokenizer, ChunkingSettings(max_tokens=20, overlap_tokens=0))
    assert len(passages) > 2
    assert all(previous.end <= following.start for previous, following in pairwise(passages))


def test_a_passage_never_crosses_a_heading_and_carries_its_path(word_tokenizer: Tokenizer) -> None:
    text = "fog.\n\n# Harbour\n\nferry.\n\n## Tickets\n\nprices.\n\n# Drums\n\nkit.\n"
    passages = chunk(Document("d", text, title="T"), word_tokenizer, ChunkingSettings())
    assert [(text[p.start : p.end].split("\n")[0], p.heading) for p in passages] == [
        ("fog.", ""),
        ("# Harbour", "Harbour"),
        ("## Tickets", "Harbour > Tickets"),
        ("# Drums", "Drums"),
    ]


def test_context_does_not_repeat_what_the_passage_says_first(word_tokenizer: Tokenizer) -> None:
    document = Document("d", "# Harbour\n\nferry.", title="Harbour")
    (passage,) = chunk(document, word_tokenizer, ChunkingSettings())
    assert passage_text(document, passage) == "# Harbour\n\nferry."


@pytest.mark.parametrize(("text", "title", "n"), [("", "", 0), (" \n\t", "", 0), ("", "Fog", 1), (" ", "Fog", 1)])
def test_a_document_without_text_is_found_by_its_title_only(
    word_tokenizer: Tokenizer, text: str, title: str, n: int
) -> None:
    passages = chunk(Document("d", text, title=title), word_tokenizer, ChunkingSettings())
    assert [(passage.start, passage.end) for passage in passages] == [(0, 0)] * n


def test_carriage_returns_and_astral_characters_keep_their_places(word_tokenizer: Tokenizer) -> None:
    text = "Line one.\r\nLine two.\r\n\r\nThe vault code is 4471.\r\n"
    (passage,) = chunk(Document("d", text), word_tokenizer, ChunkingSettings())
    assert text[42:46] == "4471"
    assert passage.start <= 42 < 46 <= passage.end
    rocket = "🚀🚀 The probe left from Kourou 👩‍🚀 on Tuesday."
    (passage,) = chunk(Document("d", rocket), word_tokenizer, ChunkingSettings())
    assert rocket[passage.start : passage.end][23:29] == "Kourou"


def test_code_is_divided_by_line_and_comments_in_it_are_no_headings(word_tokenizer: Tokenizer) -> None:
    text = "# Fog\n\n```\n# the harbour\n" + "ferry = drum. kit\n" * 30 + "```\n"
    passages = chunk(Document("d", text), word_tokenizer, ChunkingSettings(max_tokens=60, overlap_tokens=15))
    assert {passage.heading for passage in passages} == {"Fog"}
    assert all(text[passage.end : passage.end + 1] in ("\n", "") for passage in passages)


def test_an_overlap_that_lets_no_passage_advance_is_refused() -> None:
    with pytest.raises(ValidationError, match="at most a quarter of max_tokens, 100"):
        ChunkingSettings(max_tokens=100, overlap_tokens=26)


def test_token_places_have_the_type_in_which_numpy_looks_them_up(word_tokenizer: Tokenizer) -> None:
    """With another type searchsorted copies the whole array each time, and cutting takes quadratic time."""
    places = _Cutter(Document("d", "fog over harbour"), word_tokenizer, ChunkingSettings())._token_starts
    assert places.dtype == np.asarray((0, 1)).dtype
