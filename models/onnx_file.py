"""Read what a model.onnx holds, without a library: its nodes and its constants.

Source: onnx.proto (IR version 10) and the encoding of protocol buffers. Only what exported encoders use is understood.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_TYPES: Mapping[int, type[np.generic]] = {
    1: np.float32,
    2: np.uint8,
    3: np.int8,
    6: np.int32,
    7: np.int64,
    9: np.bool_,
    11: np.float64,
}
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types


class OnnxFileError(ValueError):
    """The file is no ONNX model, or holds something that is not understood."""


@dataclass(frozen=True, slots=True)
class Node:
    """One operation; attributes are numbers or texts, others are left out."""

    operation: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, float | int | str]


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """Operations in order, constants by name, and the names of what is given and of what comes out."""

    nodes: tuple[Node, ...]
    constants: Mapping[str, NDArray[np.generic]]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def read_graph(path: Path) -> Graph:
    """Return the graph of a model.onnx.

    Raises:
        OnnxFileError: it is none, or holds constants of types or places that are not understood.
        OSError: the file cannot be read.
    """
    content = memoryview(path.read_bytes())
    try:
        [graph] = [value for number, value in _fields(content) if number == 7 and isinstance(value, memoryview)]
        return _graph(graph)
    except (ValueError, KeyError, IndexError, struct.error, UnicodeDecodeError) as error:
        raise OnnxFileError(f"{path} is no ONNX model that can be read ({type(error).__name__}: {error})") from error


def _graph(view: memoryview) -> Graph:
    nodes: list[Node] = []
    constants: dict[str, NDArray[np.generic]] = {}
    inputs: list[str] = []
    outputs: list[str] = []
    for number, value in _messages(view):
        if number == 1:
            nodes.append(_node(value))
        elif number == 5:
            name, array = _tensor(value)
            constants[name] = array
        elif number in (11, 12):
            (inputs if number == 11 else outputs).append(_text(dict(_messages(value))[1]))
    return Graph(tuple(nodes), constants, tuple(inputs), tuple(outputs))


def _node(view: memoryview) -> Node:
    texts: dict[int, list[str]] = {1: [], 2: [], 4: [""]}
    attributes: dict[str, float | int | str] = {}
    for number, value in _messages(view):
        if number in texts:
            texts[number].append(_text(value))
        elif number == 5:
            attributes |= _attribute(value)
    return Node(texts[4][-1], tuple(texts[1]), tuple(texts[2]), attributes)


def _attribute(view: memoryview) -> dict[str, float | int | str]:
    found = dict(_fields(view))
    name, value = _text(found[1]), next((found[number] for number in (2, 3, 4) if number in found), None)
    if value is None:
        return {}
    return {name: _text(value) if isinstance(value, memoryview) else value}


def _tensor(view: memoryview) -> tuple[str, NDArray[np.generic]]:
    shape: list[int] = []
    values: NDArray[np.generic] | None = None
    name, kind = "", 0
    for number, value in _fields(view):
        if number == 1:
            shape += _integers(value)
        elif number == 2:
            [kind] = _integers(value)
        elif number == 8:
            name = _text(value)
        elif number in (4, 9) and isinstance(value, memoryview):
            values = np.frombuffer(value, _TYPES[kind])
        elif number in (5, 7):
            values = np.array(_integers(value), np.int64).astype(_TYPES[kind])
    return name, (np.zeros(0, _TYPES[kind]) if values is None else values).reshape(shape)


def _text(value: object) -> str:
    if not isinstance(value, memoryview):
        raise OnnxFileError("a number stands where a name is wanted")
    return str(value, "utf-8")


def _integers(value: float | memoryview) -> list[int]:
    """Return integers that are packed into bytes, or one that stands alone."""
    if not isinstance(value, memoryview):
        return [int(value)]
    values, at = [], 0
    while at < len(value):
        each, at = _varint(value, at)
        values.append(each - (1 << 64) if each >> 63 else each)
    return values


def _messages(view: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Give the fields that hold bytes."""
    for number, value in _fields(view):
        if isinstance(value, memoryview):
            yield number, value


def _fields(view: memoryview) -> Iterator[tuple[int, int | float | memoryview]]:
    """Give each field's number and value, in order."""
    at = 0
    while at < len(view):
        key, at = _varint(view, at)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, at = _varint(view, at)
            yield number, value - (1 << 64) if value >> 63 else value
        elif kind == _BYTES:
            length, at = _varint(view, at)
            if at + length > len(view):
                raise OnnxFileError("it ends within a field")
            yield number, view[at : at + length]
            at += length
        elif kind == _FIXED32:
            yield number, float(struct.unpack_from("<f", view, at)[0])
            at += 4
        elif kind == _FIXED64:
            yield number, float(struct.unpack_from("<d", view, at)[0])
            at += 8
        else:
            raise OnnxFileError(f"a field has the wire type {kind}")


def _varint(view: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise OnnxFileError("a number has more than ten bytes")
