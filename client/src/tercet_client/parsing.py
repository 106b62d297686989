"""From the bytes of a response to its class, strictly: whatever the class needs is there and of the right kind.

Fields that the class does not know are ignored, so that a newer service can be called, and a text may be another than
those that a Literal lists. A field with a default may be missing. A boolean is no number.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

from tercet_client.errors import UnexpectedResponse

T = TypeVar("T")
Read: TypeAlias = Callable[[object], Any]

_NAMES: dict[object, str] = {
    NoneType: "null",
    bool: "a boolean",
    int: "a whole number",
    float: "a number",
    str: "a text",
    list: "a list",
    dict: "an object",
}


class _Misfit(Exception):  # noqa: N818 - it never leaves this file
    """A value that does not fit; `path` grows on the way out, from the value to the whole body."""

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.path: list[str] = []


def parse(kind: type[T], body: bytes) -> T:
    """Return the object that a body stands for.

    Raises:
        UnexpectedResponse: it is no JSON, or does not fit; the message names the place and quotes no value.
    """
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise UnexpectedResponse(f"The response should be a {kind.__name__}, but is no JSON.") from None
    hint: Any = kind
    try:
        parsed: T = _reader(hint)(value)
    except _Misfit as misfit:
        place = "/".join(["#", *reversed(misfit.path)])
        raise UnexpectedResponse(f"The response should be a {kind.__name__}, but at {place} {misfit.fault}.") from None
    return parsed


@cache
def _reader(hint: Any) -> Read:
    """Return what checks and converts a JSON value to one of the types that the classes of responses have."""
    origin, arguments = get_origin(hint), get_args(hint)
    if is_dataclass(hint):
        return _record(hint)
    if origin in (Union, UnionType):
        return _either(arguments)
    if origin is tuple:
        return _items(_reader(arguments[0]))
    if origin is Mapping:
        return _members(_reader(arguments[1]))
    return _READERS[str if origin is Literal else hint]


def _record(kind: Any) -> Read:
    hints = get_type_hints(kind)
    known = [(field.name, _reader(hints[field.name]), field.default is MISSING) for field in fields(kind)]

    def read(value: object) -> Any:
        members = _an(dict, value)
        given = {}
        for name, read_field, is_needed in known:
            if name in members:
                given[name] = _at(name, read_field, members[name])
            elif is_needed:
                raise _Misfit(f"the field `{name}` is missing")
        return kind(**given)

    return read


def _either(kinds: tuple[Any, ...]) -> Read:
    others = [_reader(kind) for kind in kinds if kind is not NoneType]
    has_none = len(others) < len(kinds)

    def read(value: object) -> Any:
        if value is None and has_none:
            return None
        for read_other in others[:-1]:
            try:
                return read_other(value)
            except _Misfit:
                continue
        return others[-1](value)

    return read


def _items(read_item: Read) -> Read:
    return lambda value: tuple(_at(i, read_item, item) for i, item in enumerate(_an(list, value)))


def _members(read_member: Read) -> Read:
    return lambda value: {name: _at(name, read_member, member) for name, member in _an(dict, value).items()}


def _at(step: str | int, read: Read, value: object) -> Any:
    try:
        return read(value)
    except _Misfit as misfit:
        misfit.path.append(str(step))
        raise


def _an(kind: type[T], value: object) -> T:
    if type(value) is not kind:
        raise _Misfit(f"{_NAMES[kind]} is expected, not {_NAMES[type(value)]}")
    return value


def _number(value: object) -> float:
    return float(value) if type(value) is int else _an(float, value)


def _time(value: object) -> datetime:
    text = _an(str, value)
    try:
        moment = datetime.fromisoformat(text.removesuffix("Z") + "+00:00" * text.endswith("Z"))
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise _Misfit("a time with its offset from UTC is expected, not another text")
    return moment


_READERS: dict[object, Read] = {
    bool: lambda value: _an(bool, value),
    int: lambda value: _an(int, value),
    float: _number,
    str: lambda value: _an(str, value),
    datetime: _time,
    object: lambda value: value,
}
