"""Cut a document into passages: whole sentences, never across a heading, sized in tokens of the encoder's tokenizer.

The text is first divided into sections (at headings), paragraphs (at blank lines) and sentences (in code: lines), each
a slice; sentences too long for a passage are cut between tokens. Passages are then packed from whole sentences,
preferring to end with a paragraph, and overlap by whole sentences within a section. Every character that is not
blank lies in a passage; every passage is a slice [start, end) of the text.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
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


@dataclass(frozen=True, slots=True)
class _Unit:
    """A sentence, or a part of one: what passages are packed from."""

    start: int
    end: int
    n_tokens: int


class _Cutter:
    """Cuts the sections of one document; token positions are looked up in one tokenization of the whole text."""

    def __init__(self, document: Document, tokenizer: TextTokenizer, settings: ChunkingSettings) -> None:
        self._title, self._text = document.title, document.text
        self._tokenizer = tokenizer
        self._settings = settings
        # In the type of a Python int: searchsorted would otherwise convert the whole array at each look-up.
        self._token_starts = np.sort(tokenizer.encode(document.text).offsets[:, 0].astype(np.int64))

    def pieces(self, section: Section) -> list[Slice]:
        """Return the passages of one section."""
        room = self._room(section)
        units = [self._units(paragraph, room) for paragraph in paragraphs(self._text, section.slice)]
        followers = iter([*(unit.start for paragraph in units for unit in paragraph), section.slice[1]][1:])
        spaced = [[self._spaced(unit, next(followers)) for unit in paragraph] for paragraph in units]
        return [(passage[0].start, passage[-1].end) for passage in self._pack(spaced, room)]

    def _room(self, section: Section) -> int:
        context = with_context(self._title, section.heading, "")
        n_context = self._tokenizer.encode(context).ids.size if context else 0
        return max(self._settings.max_tokens - n_context, self._settings.max_tokens // 2)

    def _units(self, paragraph: Slice, room: int) -> list[_Unit]:
        """Return the sentences of a paragraph, those that no passage could hold cut to parts."""
        found: list[_Unit] = []
        for start, end in sentences(self._text, paragraph):
            sentence = _Unit(start, end, self._count(start, end))
            found.extend([sentence] if self._fits([sentence], room) else self._cut(start, end, room))
        return found

    def _spaced(self, unit: _Unit, follower: int) -> _Unit:
        """Return the unit with the tokens of the blanks after it, which some tokenizers have, counted."""
        return _Unit(unit.start, unit.end, unit.n_tokens + self._count(unit.end, follower))

    def _count(self, start: int, end: int) -> int:
        first, last = np.searchsorted(self._token_starts, (start, end))
        return int(last - first)

    def _fits(self, units: Sequence[_Unit], room: int) -> bool:
        start, end = units[0].start, units[-1].end
        if sum(unit.n_tokens for unit in units) > room or end - start > self._settings.max_characters:
            return False
        is_word_cut = any(left.end == right.start for left, right in pairwise(units))
        # Parts of a word may have fewer tokens than the word: "ferry" is one, the end of "0ferry" is five.
        return not is_word_cut or self._tokenizer.encode(self._text[start:end]).ids.size <= room

    def _cut(self, start: int, end: int, room: int) -> Iterator[_Unit]:
        """Halve a slice, between words if there are any and else between tokens or characters, until each part fits.

        The parts are small enough to overlap. They are tokenized anew, as a word cut in two may give more tokens
        than it had. The stack holds what is still to be cut, the leftmost on top.
        """
        part_room = max(1, min(room, self._settings.overlap_tokens or room // 4))
        outstanding = [(start, end)]
        while outstanding:
            start, end = outstanding.pop()
            n_tokens = self._count(start, end)
            if n_tokens <= part_room and end - start <= self._settings.max_characters // 4:
                n_tokens = max(n_tokens, self._tokenizer.encode(self._text[start:end]).ids.size)
            if end - start == 1 or (n_tokens <= part_room and end - start <= self._settings.max_characters // 4):
                yield from (_Unit(*kept, n_tokens) for kept in trimmed(self._text, (start, end)))
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

    def _pack(self, paragraphs_: Iterable[list[_Unit]], room: int) -> Iterator[list[_Unit]]:
        """Yield passages of whole units.

        A passage that is half full ends with its paragraph if the next paragraph fits into a passage of its own but
        not into what is left of this one.
        """
        current: list[_Unit] = []
        for paragraph in paragraphs_:
            is_better_apart = (
                sum(unit.n_tokens for unit in current) >= room // 2
                and not self._fits([*current, *paragraph], room)
                and self._fits(paragraph, room)
            )
            for i, unit in enumerate(paragraph):
                if current and ((is_better_apart and i == 0) or not self._fits([*current, unit], room)):
                    yield current
                    current = self._overlap(current, unit, room)
                current.append(unit)
        if current:
            yield current

    def _overlap(self, previous: Sequence[_Unit], following: _Unit, room: int) -> list[_Unit]:
        """Return the last units of a passage that the next one repeats; the next unit must fit beside them.

        They take no greater share of a passage's characters than of its tokens, as there are units without tokens.
        """
        settings = self._settings
        first_start = previous[-1].end - settings.max_characters * settings.overlap_tokens // settings.max_tokens
        kept: list[_Unit] = []
        for unit in reversed(previous[1:]):
            longer = [unit, *kept]
            is_short = sum(repeated.n_tokens for repeated in longer) <= settings.overlap_tokens
            if not is_short or unit.start < first_start or not self._fits([*longer, following], room):
                break
            kept = longer
        return kept
