"""Run a model in OpenVINO: small batches of inputs of nearly one length, in bfloat16 where the CPU has it (ADR 18).

int8 weights are read as the numbers they stand for and activations are not quantised, so scores are closer to those of
the fp32 checkpoint than ONNX Runtime's int8; on CPUs with matrix units for bfloat16 they are also faster.
"""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import openvino
from numpy.typing import NDArray
from openvino import opset13 as operators

from models.errors import ModelFolderError
from models.folder import Kind
from models.session import MASK, TOKEN_TYPES, Outputs, misfit, run_in_batches
from models.tokenization import ModelInput

Node: TypeAlias = Any  # OpenVINO's own are typed by nothing narrower

_LENGTH_STEP = 16  # inputs are padded to a multiple of it: few shapes, each of which costs OpenVINO memory
_BATCH_SIZES = (4, 2, 1)  # few, as for each shape that it meets OpenVINO makes kernels and keeps them
_BATCH_TOKENS = 1024  # of one run at most: activations that stay in a core's cache


class OpenVinoSession:
    """A model.onnx in OpenVINO, n_threads batches at a time.

    A batch holds inputs of one padded length, so that an input is always computed in the same shape but for the number
    of its mates, on which none of its bits depends.
    """

    def __init__(self, path: Path, *, n_threads: int, max_tokens: int, precision: str | None = None) -> None:
        """Load the graph, which takes at most max_tokens; precision is "bf16" or "f32", None for what suits the CPU.

        Raises:
            ModelFolderError: the file is not a model that OpenVINO reads.
        """
        precision = precision or usual_precision()
        self.engine = name_in(precision)
        settings = {
            "INFERENCE_PRECISION_HINT": precision,
            "INFERENCE_NUM_THREADS": n_threads,
            "NUM_STREAMS": n_threads,
            "ENABLE_CPU_PINNING": False,  # other models and processes use the same cores
        }
        try:
            model = _core().read_model(path)
            _multiply_floats(model, precision)
            self._model = _core().compile_model(model, "CPU", settings)
        except Exception as error:  # OpenVINO derives its errors from nothing narrower
            raise ModelFolderError(f"{path} cannot be loaded by OpenVINO ({type(error).__name__})") from error
        if any(length.is_static for port in self._model.inputs for length in port.partial_shape):
            raise ModelFolderError(f"{path} takes inputs of one shape only, which OpenVINO does not run in batches")
        self._input_names = {port.any_name for port in self._model.inputs}
        self._max_tokens = max_tokens
        self._own = threading.local()
        self._pool = ThreadPoolExecutor(n_threads, thread_name_prefix="openvino")

    def run(self, inputs: Sequence[ModelInput]) -> list[Outputs]:
        """Return the outputs of each input, in order."""
        return run_in_batches(inputs, self._batches(inputs), self._run_batch, self._pool)

    def misfit(self, kind: Kind) -> str | None:
        """Return how the graph differs from one of a kind; as `models.session.misfit`."""
        outputs = {
            port.any_name: [None if length.is_dynamic else length.get_length() for length in port.partial_shape]
            for port in self._model.outputs
        }
        return misfit(kind, self._input_names, outputs)

    def _batches(self, inputs: Sequence[ModelInput]) -> list[list[int]]:
        """Return the numbers of inputs by batches, the longest first so that the threads end together."""
        order = sorted(range(len(inputs)), key=lambda i: -inputs[i].ids.size)
        batches = []
        for length, same in groupby(order, key=lambda i: self._padded(inputs[i])):
            left = list(same)
            while left:
                n = next(n for n in _BATCH_SIZES if n == 1 or (n <= len(left) and n * length <= _BATCH_TOKENS))
                batches.append(left[:n])
                del left[:n]
        return batches

    def _padded(self, item: ModelInput) -> int:
        return min(-(-item.ids.size // _LENGTH_STEP) * _LENGTH_STEP, max(self._max_tokens, item.ids.size))

    def _run_batch(self, items: Sequence[ModelInput]) -> list[Outputs]:
        shape = len(items), self._padded(items[0])
        feeds = {name: np.zeros(shape, np.int64) for name in ("input_ids", MASK, TOKEN_TYPES)}
        for row, item in enumerate(items):
            feeds["input_ids"][row, : item.ids.size] = item.ids
            feeds[TOKEN_TYPES][row, : item.ids.size] = item.token_types
            feeds[MASK][row, : item.ids.size] = 1
        outputs = self._request().infer({name: feeds[name] for name in self._input_names}, share_outputs=True)
        arrays = [outputs[port] for port in self._model.outputs]
        # the second axis is the tokens, or one logit: without padding it is at most as long as the input
        return [tuple(array[row, : item.ids.size].copy() for array in arrays) for row, item in enumerate(items)]

    def _request(self) -> Any:
        if not hasattr(self._own, "request"):
            self._own.request = self._model.create_infer_request()
        return self._own.request


@cache
def has_bfloat16() -> bool:
    """Return whether this CPU multiplies bfloat16, so that OpenVINO does it fast."""
    return "BF16" in _core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")


def usual_precision() -> str:
    """Return the precision that suits this CPU."""
    return "bf16" if has_bfloat16() else "f32"


def name_in(precision: str) -> str:
    """Return what a session of a precision calls its engine."""
    return f"openvino in {precision}"


@cache
def _core() -> openvino.Core:
    return openvino.Core()


def _multiply_floats(model: openvino.Model, precision: str) -> None:
    """Replace the int8 linear layers that `models.quantize` writes by products of floats, in place.

    It writes x -> Reshape(product of x in uint8 by the int8 weights * the scales of x's rows, [*x.shape[:-1], width]).
    """
    for node in model.get_ordered_ops():
        product = _quantised_product(node)
        if product is not None:
            x = node.input_value(1).get_node().input_value(0).get_node().input_value(0).get_node().input_value(0)
            weights = _in_bfloat16(_weights(product)) if precision == "bf16" else operators.constant(_weights(product))
            node.output(0).replace(operators.matmul(x, weights, False, True).output(0))
    model.validate_nodes_and_infer_types()


def _quantised_product(node: Node) -> Node | None:
    """Return the int8 product that a node reshapes, None where it is something else."""
    if node.get_type_name() != "Reshape" or node.input_value(0).get_node().get_type_name() != "Multiply":
        return None
    product = node.input_value(0).get_node().input_value(0).get_node()
    return product if product.get_friendly_name().endswith("_unscaled_node") else None


def _weights(product: Node) -> NDArray[np.float32]:
    """Return the weights of an int8 product, (int8 - zero point) * scales.

    Of shape (out, in), as OpenVINO's kernels take them: it would keep a transposed copy beside any other.
    """
    scaled = product.input_value(1).get_node()
    values = scaled.input_value(0).get_node().input_value(0).get_node().input_value(0).get_node()
    scales = scaled.input_value(1).get_node()
    return np.ascontiguousarray((values.data.astype(np.float32) * scales.data).T)


def _in_bfloat16(weights: NDArray[np.float32]) -> Node:
    """Return weights as a constant of bfloat16, rounded as OpenVINO does: it would keep floats beside their copy."""
    bits = weights.view(np.uint32)
    rounded = bits + 0x7FFF + ((bits >> 16) & 1)  # to the nearest, ties to even
    tensor = openvino.Tensor(openvino.Type.bf16, openvino.Shape(weights.shape))
    tensor.data.view(np.uint16)[:] = rounded >> 16
    floats = operators.convert(openvino.op.Constant(tensor), "f32")
    floats.get_rt_info()["decompression_0"] = ""  # OpenVINO's mark for what not to fold
    return floats
