"""Run BERT by this project's own kernels for Intel AMX (ADR 21): inputs behind one another, without any padding.

The kernels are C++ in `models/native`, built when Tercet is installed where there is a compiler.
"""

import ctypes
import heapq
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from models.bert import Bert, bert_in
from models.compiled import compiled
from models.errors import ModelFolderError
from models.folder import OUTPUTS, WEIGHTS_FILE, Kind, ModelFolder
from models.onnx_file import OnnxFileError, read_graph
from models.session import Outputs, run_in_batches
from models.tokenization import ModelInput

ENGINE = "native in bf16"
_LIBRARY = "models._encoder"
_STEP = 32  # what hidden and intermediate sizes are multiples of
_HEAD_DIMENSIONS = (32, 64)
_HEADS: dict[Kind, int] = {"dual-encoder": 0, "cross-encoder": 1, "reader": 2}
_BATCH_TOKENS = 384  # of one run: activations that stay in a core's cache beside the weights that stream by


class _Shape(ctypes.Structure):
    _fields_: ClassVar = [
        (name, ctypes.c_int32)
        for name in "vocabulary positions token_types hidden intermediate layers heads head_kind".split()
    ] + [("epsilon", ctypes.c_float)]


def _pointers(names: str) -> list[tuple[str, type]]:
    return [(name, ctypes.c_void_p) for name in names.split()]


class _Embeddings(ctypes.Structure):
    _fields_: ClassVar = _pointers("words quantised_words word_scales positions token_types norm_weight norm_bias")


class _Layer(ctypes.Structure):
    _fields_: ClassVar = _pointers(
        "query query_bias key key_bias value value_bias output output_bias attention_norm_weight attention_norm_bias "
        "up up_bias down down_bias norm_weight norm_bias"
    )


class _Head(ctypes.Structure):
    _fields_: ClassVar = _pointers("pooler pooler_bias output output_bias")


_LAYER_PARTS = (
    "attention.self.query attention.self.key attention.self.value attention.output.dense attention.output.LayerNorm "
    "intermediate.dense output.dense output.LayerNorm"
).split()


class NativeSession:
    """A model.onnx that is BERT, n_threads batches at a time; an input's outputs are the same bits in any company."""

    engine = ENGINE

    def __init__(self, folder: ModelFolder, *, n_threads: int) -> None:
        """Pack the folder's weights.

        Raises:
            ModelFolderError: the graph is not BERT, or of sizes that the kernels do not take.
        """
        kind = folder.settings.kind
        bert, shape = _read(folder)
        self._shape = shape
        self._kind = kind
        self._library = _library()
        self._encoder = _packed(self._library, bert, shape, kind)
        self._n_threads = n_threads
        self._pool = ThreadPoolExecutor(n_threads, thread_name_prefix="native")

    def __del__(self) -> None:
        """Give the kernels' copy of the weights back."""
        if getattr(self, "_encoder", None):
            self._library.tercet_encoder_delete(self._encoder)

    def run(self, inputs: Sequence[ModelInput]) -> list[Outputs]:
        """Return the outputs of each input, in order."""
        return run_in_batches(inputs, self._batches(inputs), self._run_batch, self._pool)

    def misfit(self, kind: Kind) -> str | None:
        """Return how the graph differs from one of a kind; it was recognised as one of its folder's."""
        return None if kind == self._kind else f"it gives {', '.join(OUTPUTS[self._kind])}"

    def _batches(self, inputs: Sequence[ModelInput]) -> list[list[int]]:
        """Return the numbers of inputs in batches of nearly equal cost, as many for each thread.

        They have _BATCH_TOKENS or little more at most, and a longer input is alone.
        """
        sizes = [item.ids.size for item in inputs]
        rounds = -(-sum(sizes) // (self._n_threads * _BATCH_TOKENS))
        fullness = [(0, batch) for batch in range(min(len(sizes), rounds * self._n_threads))]  # a heap
        batches: list[list[int]] = [[] for _ in fullness]
        for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
            n_tokens, batch = fullness[0]
            batches[batch].append(i)
            heapq.heapreplace(fullness, (n_tokens + sizes[i], batch))
        return batches

    def _run_batch(self, items: Sequence[ModelInput]) -> list[Outputs]:
        lengths = np.array([item.ids.size for item in items], np.int32)
        ids = np.concatenate([item.ids for item in items])
        token_types = np.concatenate([item.token_types for item in items])
        self._check(ids, token_types, int(lengths.max()))
        rows = int(lengths.sum())
        shapes = {"dual-encoder": (rows, self._shape.hidden), "cross-encoder": (len(items), 1), "reader": (rows, 2)}
        out = np.empty(shapes[self._kind], np.float32)
        ids, token_types = ids.astype(np.int32), token_types.astype(np.int32)
        arrays = [array.ctypes.data_as(ctypes.c_void_p) for array in (lengths, ids, token_types, out)]
        if self._library.tercet_encoder_run(self._encoder, len(items), *arrays):
            raise MemoryError("the native engine found no memory for a batch")
        if self._kind == "cross-encoder":
            return [(row,) for row in out]
        ends = np.cumsum(lengths)[:-1]
        if self._kind == "dual-encoder":
            return [(each,) for each in np.split(out, ends)]
        return [(np.ascontiguousarray(each[:, 0]), np.ascontiguousarray(each[:, 1])) for each in np.split(out, ends)]

    def _check(self, ids: NDArray[np.int64], token_types: NDArray[np.int64], longest: int) -> None:
        """Refuse what would read beside a table."""
        limits = (("token id", ids, self._shape.vocabulary), ("token type", token_types, self._shape.token_types))
        for what, values, limit in limits:
            if values.size and not 0 <= int(values.min()) <= int(values.max()) < limit:
                raise IndexError(f"a {what} is {values.max()} or {values.min()}; the model knows 0 to {limit - 1}")
        if longest > self._shape.positions:
            raise IndexError(f"an input has {longest} tokens; the model takes {self._shape.positions}")


def check_graph(folder: ModelFolder) -> None:
    """Return when a folder's graph is one that the kernels compute, which takes a moment; raises as `NativeSession`."""
    _read(folder)


@cache
def is_supported() -> bool:
    """Return whether the kernels were built, and this CPU and its system let them run."""
    library = compiled(_LIBRARY)
    return library is not None and bool(library.tercet_is_supported())


def is_built() -> bool:
    """Return whether the kernels were built when Tercet was installed."""
    return compiled(_LIBRARY) is not None


@cache
def _library() -> ctypes.CDLL:
    """Return the kernels, which are there.

    Raises:
        ModelFolderError: they are not.
    """
    library = compiled(_LIBRARY)
    if library is None:
        raise ModelFolderError("the native kernels were not built when Tercet was installed")
    pointer = ctypes.c_void_p
    library.tercet_encoder_new.restype = pointer
    library.tercet_encoder_new.argtypes = [pointer] * 4
    library.tercet_encoder_delete.restype = None
    library.tercet_encoder_delete.argtypes = [pointer]
    library.tercet_encoder_run.restype = ctypes.c_int32
    library.tercet_encoder_run.argtypes = [pointer, ctypes.c_int32, *[pointer] * 4]
    return library


def _read(folder: ModelFolder) -> tuple[Bert, _Shape]:
    """Return a folder's weights and their sizes; raises as `NativeSession`."""
    kind, path = folder.settings.kind, folder.path / WEIGHTS_FILE
    try:
        bert = bert_in(read_graph(path), kind)
    except (OnnxFileError, LookupError, OSError) as error:
        raise ModelFolderError(f"{path} cannot be read ({type(error).__name__}: {error})") from error
    shape = None if bert is None else _shape_of(bert, kind)
    if bert is None or shape is None:
        raise ModelFolderError(f"{path} is no BERT of a size that the native engine takes")
    return bert, shape


def _shape_of(bert: Bert, kind: Kind) -> _Shape | None:
    """Return what the kernels are told of a BERT, None where they cannot run it."""
    words = bert.words if bert.words is not None else bert.quantised_words
    if words is None:
        return None
    vocabulary, hidden = words.shape
    intermediate = len(bert.layer(0, "intermediate.dense.bias"))
    dimension = bert.head_dimension
    if hidden % _STEP or intermediate % _STEP or dimension not in _HEAD_DIMENSIONS or hidden % dimension:
        return None
    positions, token_types = (len(bert.embedding(f"{name}_embeddings.weight")) for name in ("position", "token_type"))
    sizes = (vocabulary, positions, token_types, hidden, intermediate, bert.n_layers, hidden // dimension, _HEADS[kind])
    return _Shape(*sizes, bert.epsilon)


def _packed(library: ctypes.CDLL, bert: Bert, shape: _Shape, kind: Kind) -> int:
    """Return the kernels' own copy of the weights."""
    kept: list[NDArray[np.generic]] = []  # until they are copied

    def at(values: NDArray[np.generic] | None) -> int | None:
        if values is None:
            return None
        kept.append(np.ascontiguousarray(values))
        return kept[-1].ctypes.data

    def both(name: str) -> list[int | None]:
        return [at(bert.weights[f"{name}.{part}"]) for part in ("weight", "bias")]

    tables = [at(bert.embedding(f"{name}_embeddings.weight")) for name in ("position", "token_type")]
    words = [at(bert.words), at(bert.quantised_words), at(bert.word_scales)]
    embeddings = _Embeddings(*words, *tables, *both(f"{bert.prefix}embeddings.LayerNorm"))
    layers = (_Layer * bert.n_layers)(
        *(
            _Layer(*(each for part in _LAYER_PARTS for each in both(f"{bert.prefix}encoder.layer.{i}.{part}")))
            for i in range(bert.n_layers)
        )
    )
    head = _Head()
    if kind == "cross-encoder":
        head = _Head(*both(f"{bert.prefix}pooler.dense"), *both("classifier"))
    elif kind == "reader":
        head = _Head(None, None, *both("qa_outputs"))
    references = [ctypes.byref(each) for each in (shape, embeddings, layers, head)]
    encoder = library.tercet_encoder_new(*references)
    if encoder is None:
        raise MemoryError("there is no memory for the weights of a model")
    return int(encoder)
