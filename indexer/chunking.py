"""Cut a document into passages: whole sentences, never across a heading, sized in tokens of the encoder's tokenizer.

The text is first divided into sections (at headings), paragraphs (at blank lines) and sentences (in code: lines), each
a slice; sentences too long for a passage are cut between tokens. Passages are then packed from whole sentences,
preferring to end with a paragraph, and overlap by whole sentences within a section. Every character that is not
blank lies in a passage; every passage is a slice [start, end) of the text.
"""

from collections.abc import Iterator
from typing import Protocol

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from indexer.documents import Document, Passage, with_context
from indexer.sections import Section, Slice, paragraphs, sections, sentences, trimmed
from models.tokenization import TokenizedText


class TextTokenizer(Protocol):
    """What chunking needs of `models.tokenization.Tokenizer`."""

    def encode(self, text: str) -> TokenizedText:
        """Tokenize one text without special tokens."""
        ...


class ChunkingSettings(BaseModel):
    """How passages are cut; see docs/adr/0003. Lengths in tokens are without special tokens."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_tokens: int = Field(default=200, ge=16, description="of a passage with its title and heading")
    overlap_tokens: int = Field(default=32, ge=0, description="at most, of whole sentences shared by neighbours")
    max_characters: int = Field(default=4000, ge=64, description="of a passage, for text that gives few tokens")

    @model_validator(mode="after")
    def _passages_advance(self) -> "ChunkingSettings":
        if self.overlap_tokens > self.max_tokens // 4:
            raise ValueError(
                f"overlap_tokens is {self.overlap_tokens}; at most a quarter of max_tokens, {self.max_tokens}, is"
            )
        return self


def chunk(document: Document, tokenizer: TextTokenizer, settings: ChunkingSettings) -> list[Passage]:
    """Return the passages of a document, in order of their start.

    A document without text but with a title gives one empty passage, so that it can be found; one with neither gives
    none. A title and heading longer than half of max_tokens leave the text the other half, and the encoder then
    reports what it cut.
    """
    cutter = _Cutter(document, tokenizer, settings)
    slices = [(piece, section.heading) for section in sections(document.text) for piece in cutter.pieces(section)]
    if not slices and document.title.strip():
        slices = [((0, 0), "")]
    return [
        Passage(document.document_id, ordinal, start, end, heading)
        for ordinal, ((start, end), heading) in enumerate(slices)
    ]


class _Cutter:
    """Cuts the sections of one document; token positions are looked up in one tokenization of the whole text."""

    def __init__(self, document: Document, tokenizer: TextTokenizer, settings: ChunkingSettings) -> None:
        self._title, self._text = document.title, document.text
        self._tokenizer = tokenizer
        self._settings = settings
        self._token_starts = np.sort(tokenizer.encode(document.text).offsets[:, 0])

    def pieces(self, section: Section) -> list[Slice]:
        """Return the passages of one section."""
        room = self._room(section)
        paragraphs_ = [self._sentences(paragraph, room) for paragraph in paragraphs(self._text, section.slice)]
        return list(self._pack([paragraph for paragraph in paragraphs_ if paragraph], room))

    def _room(self, section: Section) -> int:
        context = with_context(self._title, section.heading, "")
        n_context = self._tokenizer.encode(context).ids.size if context else 0
        return max(self._settings.max_tokens - n_context, self._settings.max_tokens // 2)

    def _sentences(self, paragraph: Slice, room: int) -> list[Slice]:
        """Return the sentences of a paragraph, those that no passage could hold cut to pieces."""
        found: list[Slice] = []
        for sentence in sentences(self._text, paragraph):
            found.extend([sentence] if self._fits(sentence, room) else self._cut(sentence, room))
        return found

    def _fits(self, piece: Slice, room: int) -> bool:
        return self._count(piece) <= room and piece[1] - piece[0] <= self._settings.max_characters

    def _count(self, piece: Slice) -> int:
        first, last = np.searchsorted(self._token_starts, piece)
        return int(last - first)

    def _cut(self, piece: Slice, room: int) -> Iterator[Slice]:
        """Halve a piece, between words if there are any and else between tokens or characters, until each part fits.

        The parts are small enough to overlap. They are tokenized anew, as a word cut in two may give more tokens
        than it had. The stack holds what is still to be cut, the leftmost on top.
        """
        part_room = max(1, min(room, self._settings.overlap_tokens or room // 4))
        outstanding = [piece]
        while outstanding:
            start, end = outstanding.pop()
            part = self._text[start:end]
            few = self._count((start, end)) <= part_room and end - start <= self._settings.max_characters // 4
            if end - start == 1 or (few and self._tokenizer.encode(part).ids.size <= part_room):
                yield from trimmed(self._text, (start, end))
                continue
            middle = self._middle(start, end)
            outstanding += [(middle, end), (start, middle)]

    def _middle(self, start: int, end: int) -> int:
        """Return the place nearest the middle to cut at: after a blank, else before a token, else the middle itself."""
        middle = (start + end) // 2
        quarter = max(1, (end - start) // 4)
        for distance in range(quarter):
            for place in (middle - distance, middle + distance):
                if start < place < end and self._text[place - 1].isspace():
                    return place
        at = int(np.searchsorted(self._token_starts, middle))
        token_start = int(self._token_starts[at]) if at < self._token_starts.size else end
        return token_start if start < token_start < min(end, middle + quarter) else middle

    def _pack(self, paragraphs_: list[list[Slice]], room: int) -> Iterator[Slice]:
        """Yield passages of whole sentences.

        A passage that is half full ends with its paragraph if the next paragraph fits into a passage of its own but
        not into what is left of this one.
        """
        current: list[Slice] = []
        for paragraph in paragraphs_:
            whole = (paragraph[0][0], paragraph[-1][1])
            is_better_apart = (
                current
                and not self._fits((current[0][0], whole[1]), room)
                and self._fits(whole, room)
                and self._count((current[0][0], current[-1][1])) >= room // 2
            )
            for i, sentence in enumerate(paragraph):
                if current and ((is_better_apart and i == 0) or not self._fits((current[0][0], sentence[1]), room)):
                    yield current[0][0], current[-1][1]
                    current = self._overlap(current, sentence, room)
                current.append(sentence)
        if current:
            yield current[0][0], current[-1][1]

    def _overlap(self, previous: list[Slice], following: Slice, room: int) -> list[Slice]:
        """Return the last sentences of a passage that the next one repeats; the next sentence must fit beside them."""
        kept: list[Slice] = []
        for sentence in reversed(previous[1:]):
            is_short = self._count((sentence[0], previous[-1][1])) <= self._settings.overlap_tokens
            if not is_short or not self._fits((sentence[0], following[1]), room):
                break
            kept.insert(0, sentence)
        return kept
