"""Text to BM25 terms: Unicode words, accents folded, English stop words left out, the rest stemmed by Snowball.

Identifiers (`csv.DictReader`, `snake_case`, `camelCase`) give a term for the whole, which is not stemmed if it has dots
or underscores, and a term for each part, so that the exact name finds them, in any case, and so do its words. Runs of
Han, Hiragana, Katakana and Hangul, where spaces do not separate words, give overlapping pairs of characters; one that
stands alone is a term (Nie and Ren 1999).
"""

import re
import sys
import threading
import unicodedata
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import pairwise

import Stemmer

LANGUAGES = ("none", *sorted(Stemmer.algorithms()))

# Lucene's English stop words, which keep question words: they tell FAQ entries apart.
_STOP_WORD_LIST = (
    "a an and are as at be but by for if in into is it no not of on or such that the their then there these they this"
    " to was will with"
)
STOP_WORDS = frozenset(_STOP_WORD_LIST.split())

_UNSPACED = (
    "\u3005-\u3007\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3"
    "\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
_ASCII_WORD = re.compile(r"\w+(?:\.\w+)*", re.ASCII)  # what `_word_pattern` is on such text, twice as fast
_CACHED_WORDS = 200_000


class Analyzer:
    """Turns texts into terms; thread-safe. Equal names mean equal terms, so an index records the name."""

    def __init__(self, language: str = "english") -> None:
        """Stem words as Snowball does for a language of LANGUAGES; "none" leaves them as they are.

        Raises:
            ValueError: the language is none of them.
        """
        if language not in LANGUAGES:
            raise ValueError(f"language {language!r} is none of {', '.join(LANGUAGES)}")
        self.language = language
        self.name = f"words+identifiers+cjk-pairs+{language}/2"
        self._stop_words = STOP_WORDS if language == "english" else frozenset()
        self._stemmer = None if language == "none" else Stemmer.Stemmer(language, 0)  # its cache would be a second one
        self._lock = threading.Lock()  # a stemmer is not thread-safe
        self._terms_of = lru_cache(maxsize=_CACHED_WORDS)(self._analyzed)

    @classmethod
    def named(cls, name: str) -> "Analyzer | None":
        """Return the analyzer of that name, None if this version has none."""
        return next((analyzer for analyzer in map(cls.of, LANGUAGES) if analyzer.name == name), None)

    @staticmethod
    @cache
    def of(language: str) -> "Analyzer":
        """Return the one analyzer of a language, whose cache of words all share; raises as the constructor."""
        return Analyzer(language)

    def analyze(self, text: str) -> list[str]:
        """Return the terms of a text in order, with repetitions."""
        return [term for terms, _ in self.occurrences(text) for term in terms]

    def occurrences(self, text: str) -> Iterator[tuple[tuple[str, ...], tuple[int, int]]]:
        """Yield the terms of each word of a text that has any, and its place as [start, end) in code points, in order.

        Pairs of characters overlap.
        """
        terms_of = self._terms_of
        for match in (_ASCII_WORD if text.isascii() else _word_pattern()).finditer(text):
            word = match[0]
            if match.lastgroup == "run" and len(word) > 1:
                start = match.start()
                for i, pair in enumerate(pairwise(word)):
                    yield (_fold("".join(pair)),), (start + i, start + i + 2)
            elif terms := terms_of(word):
                yield terms, match.span()

    def matches(self, text: str, terms: frozenset[str]) -> list[tuple[int, int]]:
        """Return where a text has one of the terms, as [start, end) in code points, overlaps merged, in order."""
        found: list[tuple[int, int]] = []
        is_disjoint = terms.isdisjoint
        for own, (start, end) in self.occurrences(text):
            if is_disjoint(own):
                continue
            if found and start < found[-1][1]:
                found[-1] = (found[-1][0], end)
            else:
                found.append((start, end))
        return found

    def _analyzed(self, word: str) -> tuple[str, ...]:
        pieces = [piece for piece in re.split(r"[._]+", word) if piece]
        terms = [_fold(word)] if len(pieces) > 1 else []
        for piece in pieces:
            parts = _camel_parts(piece)
            names = [piece, *parts] if len(parts) > 1 else parts
            terms += [term for term in map(self._term, names) if term]
        return tuple(terms)

    def _term(self, word: str) -> str:
        """Return the stem without accents, "" for a stop word. Stemmers but English's tell accents apart."""
        if self.language == "english" or word.isascii():
            folded = _fold(word)
            return "" if folded in self._stop_words else self._stem(folded)
        return _fold(self._stem(unicodedata.normalize("NFC", word.lower())))

    def _stem(self, word: str) -> str:
        if self._stemmer is None:
            return word
        with self._lock:
            return str(self._stemmer.stemWord(word))


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
def _word_pattern() -> re.Pattern[str]:
    r"""Return the pattern of words: `\w` and combining marks, which `\w` leaves out, joined by single dots.

    Built at first use: it walks over all of Unicode.
    """
    marks = "".join(c for c in map(chr, range(sys.maxunicode + 1)) if unicodedata.category(c) in ("Mn", "Mc"))
    letter = rf"[^\W{_UNSPACED}]"
    word = rf"{letter}(?:{letter}|[{_ranges(marks)}])*"
    return re.compile(rf"(?P<run>[{_UNSPACED}]+)|{word}(?:\.{word})*")


def _ranges(characters: str) -> str:
    """Return sorted characters as the inside of a character class."""
    ranges: list[list[int]] = []
    for code_point in map(ord, characters):
        if ranges and code_point == ranges[-1][1] + 1:
            ranges[-1][1] = code_point
        else:
            ranges.append([code_point, code_point])
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in ranges)
