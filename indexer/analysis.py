"""Text to BM25 terms: Unicode words, accents folded, English stop words left out, the rest stemmed by Snowball.

Identifiers (`csv.DictReader`, `snake_case`, `camelCase`) give a term for the whole, which is not stemmed if it has dots
or underscores, and a term for each part, so that the exact name finds them, in any case, and so do its words. Han and
Hiragana, which put no space between words, give one term a character (as UAX #29's default word boundaries do).
"""

import re
import sys
import threading
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache

import Stemmer

ANALYZER = "unicode-words+identifiers+english-snowball/1"

# Lucene's English stop words, which keep question words: they tell FAQ entries apart.
_STOP_WORD_LIST = (
    "a an and are as at be but by for if in into is it no not of on or such that the their then there these they this"
    " to was will with"
)
STOP_WORDS = frozenset(_STOP_WORD_LIST.split())

_UNSPACED = "\u3005-\u3007\u3041-\u309f\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"

_stemmer_lock = threading.Lock()  # a stemmer is not thread-safe


@dataclass(frozen=True, slots=True)
class Occurrence:
    """The terms of one word of a text, which stands at [start, end) in code points."""

    terms: tuple[str, ...]
    start: int
    end: int


def analyze(text: str) -> list[str]:
    """Return the terms of a text in order, with repetitions."""
    terms: list[str] = []
    for match in _word_pattern().finditer(text):
        terms.extend(_terms_of(match[0]))
    return terms


def occurrences(text: str) -> Iterator[Occurrence]:
    """Yield each word of a text that has terms, with its place: what a highlighter needs."""
    for match in _word_pattern().finditer(text):
        terms = _terms_of(match[0])
        if terms:
            yield Occurrence(terms, match.start(), match.end())


@lru_cache(maxsize=200_000)
def _terms_of(word: str) -> tuple[str, ...]:
    pieces = [piece for piece in re.split(r"[._]+", word) if piece]
    terms = [_fold(word)] if len(pieces) > 1 else []
    for piece in pieces:
        parts = _camel_parts(piece)
        names = [piece, *parts] if len(parts) > 1 else parts
        terms += [_stem(folded) for folded in map(_fold, names) if folded and folded not in STOP_WORDS]
    return tuple(terms)


def _camel_parts(word: str) -> list[str]:
    """Split where a lower-case letter meets a capital, and before the last capital of a run that a word follows.

    Worked examples: DictReader gives Dict, Reader; JSONDecodeError gives JSON, Decode, Error; utf8 stays whole.
    """
    if word.islower() or word.isupper() or word.istitle():
        return [word]
    starts = [0]
    for i in range(1, len(word)):
        lower_to_upper = word[i - 1].islower() and word[i].isupper()
        run_to_word = word[i - 1].isupper() and word[i].isupper() and word[i + 1 : i + 2].islower()
        if lower_to_upper or (run_to_word and word[i + 2 : i + 3].islower()):
            starts.append(i)
    return [word[start:end] for start, end in zip(starts, [*starts[1:], len(word)], strict=True)]


def _fold(word: str) -> str:
    """Return the word in lower case without diacritics; marks that are letters of their script stay."""
    if word.isascii():
        return word.lower()
    decomposed = unicodedata.normalize("NFKD", word.casefold())
    stripped = "".join(character for character in decomposed if not "\u0300" <= character <= "\u036f")
    return unicodedata.normalize("NFKC", stripped)


@cache
def _stemmer() -> Stemmer.Stemmer:
    return Stemmer.Stemmer("english", 0)  # no cache of its own: _terms_of has one


def _stem(word: str) -> str:
    with _stemmer_lock:
        return str(_stemmer().stemWord(word))


@cache
def _word_pattern() -> re.Pattern[str]:
    r"""Return the pattern of words: `\w` and combining marks, which `\w` leaves out, joined by single dots.

    Built at first use: it walks over all of Unicode.
    """
    marks = "".join(c for c in map(chr, range(sys.maxunicode + 1)) if unicodedata.category(c) in ("Mn", "Mc"))
    letter = rf"[^\W{_UNSPACED}]"
    word = rf"{letter}(?:{letter}|[{_ranges(marks)}])*"
    return re.compile(rf"[{_UNSPACED}]|{word}(?:\.{word})*")


def _ranges(characters: str) -> str:
    """Return sorted characters as the inside of a character class."""
    ranges: list[list[int]] = []
    for code_point in map(ord, characters):
        if ranges and code_point == ranges[-1][1] + 1:
            ranges[-1][1] = code_point
        else:
            ranges.append([code_point, code_point])
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in ranges)
