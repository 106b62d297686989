"""int8 weights for an exported graph: what is quantised, and how (ADR 9).

Linear layers: weights symmetric with one scale an output channel, activations symmetric with one scale a row, that is a
token, found while it runs. One scale for a whole tensor, as ONNX Runtime's `quantize_dynamic` takes, is ruled by the
largest outlier of any token: it doubles the noise, and it makes a score depend on what shares its batch. Embedding
tables, half of the file: one scale a row. Left in fp32: products of two activations, norms, biases, and linear layers
that give a few numbers, which cost nothing and are the answer itself.

A quantised layer is x ~ s * (q - 128), q in uint8, because products of uint8 and int8 are the fast ones on x86.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

_HEAD_OUTPUTS = 8  # a linear layer with at most so many is a head
_INT8 = 127
_MIDDLE = 128  # what stands for 0 in uint8
_SMALLEST = 1e-12  # a row of zeros has this scale, not 0
_CONTRIB = "com.microsoft"


def quantize(source: Path, target: Path) -> None:
    """Write the fp32 graph at source to target with int8 weights."""
    model = onnx.load(str(source))
    del model.graph.value_info[:]  # the types of what is replaced
    _Rewriting(model.graph).run()
    model.opset_import.append(helper.make_opsetid(_CONTRIB, 1))
    onnx.save(model, str(target))


def rows_to_int8(table: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Return a table in int8 and the scale of each row, so that values * scales is within half a scale of the table.

    Worked example: the row [1.27, -0.5] has the scale .01 and becomes [127, -50].

    Args:
        table: (n_rows, width).

    Returns:
        Values (n_rows, width), symmetric about 0, and scales (n_rows, 1), positive.
    """
    scales = np.maximum(np.abs(table).max(axis=1, keepdims=True) / _INT8, _SMALLEST).astype(np.float32)
    return np.round(table / scales).astype(np.int8), scales


class _Rewriting:
    """The nodes of a graph while they are replaced, in order, and the constants that the new ones need."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self._graph = graph
        floats = (each for each in graph.initializer if each.data_type == onnx.TensorProto.FLOAT)
        self._matrices: Mapping[str, onnx.TensorProto] = {each.name: each for each in floats if len(each.dims) == 2}
        self._constants: dict[str, onnx.TensorProto] = {}
        self._nodes: list[onnx.NodeProto] = []
        self._made: set[str] = set()

    def run(self) -> None:
        """Replace what can be, and drop the constants that nothing reads any more."""
        for node in self._graph.node:
            if node.op_type == "Gather" and node.input[0] in self._matrices and _axis(node) == 0:
                self._look_up(node)
            elif node.op_type == "MatMul" and self._is_large(node.input[1]):
                self._linear(node)
            else:
                self._nodes.append(node)
        read = {name for node in self._nodes for name in node.input}
        kept = [each for each in self._graph.initializer if each.name in read]
        del self._graph.node[:], self._graph.initializer[:]
        self._graph.node.extend(self._nodes)
        self._graph.initializer.extend([*kept, *self._constants.values()])

    def _is_large(self, name: str) -> bool:
        return name in self._matrices and self._matrices[name].dims[1] > _HEAD_OUTPUTS

    def _look_up(self, node: onnx.NodeProto) -> None:
        """Read int8 rows and their scales instead of fp32 rows."""
        table, rows = node.input
        if f"{table}_quantized" not in self._constants:
            values, scales = rows_to_int8(numpy_helper.to_array(self._matrices[table]))
            self._constant(f"{table}_quantized", values)
            self._constant(f"{table}_scale", scales)
        own = node.output[0]
        self._node("Gather", [f"{table}_quantized", rows], f"{own}_values")
        self._node("Cast", [f"{own}_values"], f"{own}_floats", to=onnx.TensorProto.FLOAT)
        self._node("Gather", [f"{table}_scale", rows], f"{own}_scales")
        self._node("Mul", [f"{own}_floats", f"{own}_scales"], own)

    def _linear(self, node: onnx.NodeProto) -> None:
        """Multiply int8 weights by activations that become uint8 row by row."""
        x, weight = node.input
        width, n_outputs = self._matrices[weight].dims
        if f"{weight}_quantized" not in self._constants:
            values, scales = rows_to_int8(numpy_helper.to_array(self._matrices[weight]).T)
            self._constant(f"{weight}_quantized", np.ascontiguousarray(values.T))
            self._constant(f"{weight}_scale", scales[:, 0])
            self._constant(f"{weight}_zero_point", np.array(0, np.int8))
        if f"{x}_uint8" not in self._made:
            self._to_uint8(x, width)
        own = node.output[0]
        weights = (f"{weight}_quantized", "one", f"{weight}_scale", "middle", f"{weight}_zero_point")
        self._constant("one", np.array(1, np.float32))
        self._node("MatMulIntegerToFloat", [f"{x}_uint8", *weights], f"{own}_unscaled", domain=_CONTRIB)
        self._node("Mul", [f"{own}_unscaled", f"{x}_scales"], f"{own}_rows")
        self._constant(f"to_{n_outputs}", np.array([n_outputs], np.int64))
        self._node("Concat", [f"{x}_leading", f"to_{n_outputs}"], f"{own}_shape", axis=0)
        self._node("Reshape", [f"{own}_rows", f"{own}_shape"], own)

    def _to_uint8(self, x: str, width: int) -> None:
        """Make x_uint8 (n_rows, width), x_scales (n_rows, 1), and x_leading, the shape of x but for its width."""
        self._constant("last", np.array([-1], np.int64))
        self._constant("middle", np.array(_MIDDLE, np.uint8))
        self._constant("step", np.array(1 / _INT8, np.float32))
        self._constant("smallest", np.array(_SMALLEST, np.float32))
        self._constant(f"rows_of_{width}", np.array([-1, width], np.int64))
        self._node("Shape", [x], f"{x}_leading", end=-1)
        self._node("Reshape", [x, f"rows_of_{width}"], f"{x}_flat")
        self._node("Abs", [f"{x}_flat"], f"{x}_sizes")
        self._node("ReduceMax", [f"{x}_sizes", "last"], f"{x}_largest", keepdims=1)
        self._node("Mul", [f"{x}_largest", "step"], f"{x}_steps")
        self._node("Max", [f"{x}_steps", "smallest"], f"{x}_scales")
        self._node("Squeeze", [f"{x}_scales", "last"], f"{x}_scale_list")
        self._node("Shape", [f"{x}_scale_list"], f"{x}_n_rows")
        self._node("Expand", ["middle", f"{x}_n_rows"], f"{x}_middles")
        self._node("QuantizeLinear", [f"{x}_flat", f"{x}_scale_list", f"{x}_middles"], f"{x}_uint8", axis=0)

    def _constant(self, name: str, values: NDArray[np.generic]) -> None:
        if name not in self._constants:
            self._constants[name] = numpy_helper.from_array(values, name)

    def _node(self, operator: str, inputs: list[str], output: str, domain: str = "", **attributes: int) -> None:
        self._made.add(output)
        self._nodes.append(
            helper.make_node(operator, inputs, [output], f"{output}_node", None, domain, None, **attributes)
        )


def _axis(node: onnx.NodeProto) -> int:
    return next((int(each.i) for each in node.attribute if each.name == "axis"), 0)
