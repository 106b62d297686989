"""A property, the values that it must hold for, and how bytes become such a value."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from hypothesis import strategies as st

_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Target(Generic[_Value]):
    """check raises for a value that breaks the property; values are what hypothesis tries it with.

    read makes a value of any bytes, for a fuzzer that looks at coverage; None where hypothesis reads them, as choices.
    seeds are bytes to begin with, words what such bytes are often made of.
    """

    name: str
    check: Callable[[_Value], None]
    values: st.SearchStrategy[_Value]
    read: Callable[[bytes], _Value] | None = None
    seeds: Sequence[bytes] = ()
    words: Sequence[bytes] = ()
    n_examples: int = 100

    def run(self, content: bytes) -> None:
        """Check the value that bytes make."""
        assert self.read is not None, "a target without read is run by hypothesis"
        self.check(self.read(content))


def mutations(seeds: Sequence[bytes], words: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    """Return seeds of which pieces are replaced by words, other pieces of them, or any bytes."""
    pieces = st.one_of(st.sampled_from([*words, b""]), st.binary(max_size=4), st.sampled_from(seeds).flatmap(_slices))
    changes = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 8), pieces), max_size=4)
    return st.builds(_changed, st.sampled_from(seeds), changes)


def _slices(content: bytes) -> st.SearchStrategy[bytes]:
    places = st.integers(0, len(content))
    return st.builds(lambda start, end: content[start:end], places, places)


def _changed(content: bytes, changes: Sequence[tuple[float, int, bytes]]) -> bytes:
    for share, n_replaced, piece in changes:
        start = int(share * len(content))
        content = content[:start] + piece + content[start + n_replaced :]
    return content


def as_text(content: bytes) -> str:
    """Return bytes as text; what is no UTF-8 becomes lone surrogates."""
    return content.decode("utf-8", "surrogateescape")


def require_one_sentence(error: Exception) -> None:
    """Return if an error can be shown: one line of bounded length, without control characters."""
    message = str(error)
    assert message, f"{type(error).__name__} says nothing"
    assert message.isprintable(), repr(message)
    assert len(message) < 1_000, message[:1_000]
