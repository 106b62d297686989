"""Read a filter as people type it: `year >= 2020 and (lang = "en" or tag in ("a", "b")) and not draft = true`.

    expression  = conjunction { "or" conjunction }
    conjunction = negation { "and" negation }
    negation    = "not" negation | "(" expression ")" | "exists" field | field comparison
    comparison  = ("=" | "!=" | "<" | "<=" | ">" | ">=") value | "in" "(" [ value { "," value } ] ")"
    field       = a word of letters, digits, "_", "-" and "." that begins with a letter or "_", or any name in quotes
    value       = a number, true, false, or a text in quotes

Quotes are " or ', and a backslash keeps the next character from ending the text. Words of the grammar count in any
case. `field != value` is `not field = value`: it holds for documents without the field too.
"""

import math
import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

from indexer.documents import MetadataValue
from indexer.errors import FilterError
from indexer.filters import MAX_DEPTH, And, Equal, Exists, Filter, In, Not, Or, Range, require_small
from models.errors import shown

_Kind: TypeAlias = Literal["text", "number", "word", "mark", "end"]

_TOKEN = re.compile(
    r"""(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
    r"|(?P<number>[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?![\w.]))"
    r"|(?P<word>[^\W\d][\w.-]*)"
    r"|(?P<mark><=|>=|!=|[=<>(),])",
    re.DOTALL,
)
_WORDS = frozenset({"and", "or", "not", "in", "exists", "true", "false"})
_MAX_DIGITS = 400  # more than any double has before its point


@dataclass(frozen=True, slots=True)
class _Token:
    kind: _Kind
    text: str
    start: int

    def is_word(self, word: str) -> bool:
        return self.kind == "word" and self.text.lower() == word

    def is_mark(self, *marks: str) -> bool:
        return self.kind == "mark" and self.text in marks


def parse_filter(text: str) -> Filter:
    """Return the filter that a text says.

    Raises:
        FilterError: it is none, at which character, counted from 1; or it is too deep or too large.
    """
    parser = _Parser(_tokens(text))
    expression = parser.expression(0)
    parser.expect_end()
    require_small(expression)
    return expression


def _tokens(text: str) -> list[_Token]:
    tokens = []
    place = _after_space(text, 0)
    while place < len(text):
        found = _TOKEN.match(text, place)
        if found is None:
            what = "a quote that nothing closes" if text[place] in "\"'" else "a character that means nothing"
            raise _fault(place, what)
        kind: _Kind = "text" if found["text"] else "number" if found["number"] else "word" if found["word"] else "mark"
        tokens.append(_Token(kind, found[0], place))
        place = _after_space(text, found.end())
    return [*tokens, _Token("end", "", len(text))]


def _after_space(text: str, place: int) -> int:
    while place < len(text) and text[place].isspace():
        place += 1
    return place


def _fault(place: int, what: str) -> FilterError:
    return FilterError(f"the filter cannot be read at character {place + 1}: {what}")


class _Parser:
    """Reads tokens by recursive descent, one method a rule of the grammar; depth counts what encloses a rule."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._place = 0

    @property
    def _next(self) -> _Token:
        return self._tokens[self._place]

    def _take(self) -> _Token:
        token = self._next
        self._place += token.kind != "end"
        return token

    def _takes_word(self, word: str) -> bool:
        found = self._next.is_word(word)
        self._place += found
        return found

    def _takes_mark(self, mark: str) -> bool:
        found = self._next.is_mark(mark)
        self._place += found
        return found

    def _unexpected(self, token: _Token, wanted: str) -> FilterError:
        there = f'not "{shown(token.text)}"' if token.text else "but the filter ends"
        return _fault(token.start, f"{wanted} is expected, {there}")

    def expect_end(self) -> None:
        if self._next.kind != "end":
            raise self._unexpected(self._next, "and, or, or the end")

    def expression(self, depth: int) -> Filter:
        if depth > MAX_DEPTH:
            raise _fault(self._next.start, f"more than {MAX_DEPTH} levels deep")
        parts = [self._conjunction(depth)]
        while self._takes_word("or"):
            parts.append(self._conjunction(depth))
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def _conjunction(self, depth: int) -> Filter:
        parts = [self._negation(depth)]
        while self._takes_word("and"):
            parts.append(self._negation(depth))
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def _negation(self, depth: int) -> Filter:
        if depth > MAX_DEPTH:
            raise _fault(self._next.start, f"more than {MAX_DEPTH} levels deep")
        if self._takes_word("not"):
            return Not(self._negation(depth + 1))
        if self._takes_mark("("):
            inner = self.expression(depth + 1)
            if not self._takes_mark(")"):
                raise self._unexpected(self._next, 'and, or, or ")"')
            return inner
        if self._takes_word("exists"):
            return Exists(self._field())
        return self._comparison()

    def _field(self) -> str:
        token = self._take()
        if token.kind == "text":
            return _unquoted(token)
        if token.kind == "word" and token.text.lower() not in _WORDS:
            return token.text
        raise self._unexpected(token, "the name of a field")

    def _comparison(self) -> Filter:
        field = self._field()
        if self._takes_word("in"):
            return In(field, self._values())
        operator = self._take()
        if not operator.is_mark("=", "!=", "<", "<=", ">", ">="):
            raise self._unexpected(operator, "=, !=, <, <=, >, >= or in")
        token = self._next
        value = self._value()
        if operator.text in ("=", "!="):
            return Equal(field, value) if operator.text == "=" else Not(Equal(field, value))
        if isinstance(value, bool):
            raise self._unexpected(token, "a number or a text in quotes")
        match operator.text:
            case "<":
                return Range(field, lt=value)
            case "<=":
                return Range(field, lte=value)
            case ">":
                return Range(field, gt=value)
            case _:
                return Range(field, gte=value)

    def _values(self) -> tuple[MetadataValue, ...]:
        if not self._takes_mark("("):
            raise self._unexpected(self._next, '"("')
        values: list[MetadataValue] = []
        while not self._takes_mark(")"):
            if values and not self._takes_mark(","):
                raise self._unexpected(self._next, '"," or ")"')
            values.append(self._value())
        return tuple(values)

    def _value(self) -> MetadataValue:
        token = self._take()
        if token.kind == "text":
            return _unquoted(token)
        if token.kind == "number":
            return _number(token)
        if token.is_word("true") or token.is_word("false"):
            return token.is_word("true")
        raise self._unexpected(token, "a number, true, false or a text in quotes")


def _unquoted(token: _Token) -> str:
    return re.sub(r"\\(.)", r"\1", token.text[1:-1], flags=re.DOTALL)


def _number(token: _Token) -> int | float:
    is_whole = token.text.lstrip("+-").isdecimal()
    if len(token.text) > _MAX_DIGITS or not math.isfinite(float(token.text)):
        raise _fault(token.start, "a number that is too large")
    return int(token.text) if is_whole else float(token.text)
