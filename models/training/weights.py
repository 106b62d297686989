"""Turn a model folder back into a torch checkpoint, so that a bundled model can be trained further.

int8 weights become the fp32 numbers they stand for; the rounding that is left is far below what a step of training
changes. Only graphs that `models.export` wrote are understood.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import torch
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # protobuf has no types
from numpy.typing import NDArray
from onnx import numpy_helper
from torch import Tensor, nn

from models.errors import TrainingError
from models.folder import WEIGHTS_FILE, ModelFolder

_PREFIX = "model."  # of the exported module's parameters


def load_folder_weights(model: nn.Module, folder: ModelFolder) -> None:
    """Copy a model folder's weights into a torch model of the same architecture.

    A head that the model has and the folder lacks keeps its initial values, and one that only the folder has is left.

    Raises:
        TrainingError: the graph lacks a weight of the encoder, or one has another shape.
    """
    found = onnx_weights(folder.path / WEIGHTS_FILE)
    encoder = str(getattr(model, "base_model_prefix", ""))
    state = model.state_dict()
    for name, value in state.items():
        weight = found.get(name)
        if weight is None and name.startswith(encoder) and "position_ids" not in name and "pooler" not in name:
            raise TrainingError(f"{folder.path} has no weight {name}")
        if weight is not None:
            if weight.shape != value.shape:
                raise TrainingError(f"{folder.path}: {name} is {tuple(weight.shape)}, expected {tuple(value.shape)}")
            state[name] = weight
    model.load_state_dict(state)


def onnx_weights(path: Path) -> dict[str, Tensor]:
    """Return the parameters of an exported graph as fp32 by their names in the torch checkpoint.

    Raises:
        TrainingError: the file is no graph, or none that `models.export` wrote.
    """
    try:
        return _weights(onnx.load(str(path)).graph)
    except (DecodeError, LookupError, ValueError, TypeError) as error:
        raise TrainingError(f"{path} is no graph that tercet export wrote ({type(error).__name__}: {error})") from error


def _weights(graph: onnx.GraphProto) -> dict[str, Tensor]:
    constants = {item.name: numpy_helper.to_array(item) for item in graph.initializer}
    weights = {
        name.removeprefix(_PREFIX): values
        for name, values in constants.items()
        if name.startswith(_PREFIX) and values.dtype == np.float32 and not name.endswith("_scale")
    }
    for name in constants:
        stem = name.removesuffix("_quantized")
        if name.startswith(_PREFIX) and stem != name:
            weights[stem.removeprefix(_PREFIX)] = _dequantized(constants, stem)
    weights |= _matrices(graph, constants)
    return {name: torch.from_numpy(values.copy()) for name, values in weights.items()}


def _matrices(graph: onnx.GraphProto, constants: Mapping[str, NDArray[np.float32]]) -> dict[str, NDArray[np.float32]]:
    """Return the weights of linear layers, which the exporter names by number: found through the bias they meet."""
    makers = {output: node for node in graph.node for output in node.output}
    found: dict[str, NDArray[np.float32]] = {}
    for node in graph.node:
        bias = next((name for name in node.input if name in constants and name.endswith(".bias")), None)
        if node.op_type != "Add" or bias is None:
            continue
        maker = makers.get(next(name for name in node.input if name != bias))
        while maker is not None and maker.op_type in ("Mul", "Cast", "Reshape"):
            maker = makers.get(maker.input[0])
        if maker is None or maker.op_type not in ("MatMul", "MatMulInteger", "MatMulIntegerToFloat"):
            continue
        name = maker.input[1]
        stem = name.removesuffix("_quantized")
        matrix = constants[name] if stem == name else _dequantized(constants, stem)
        found[bias.removeprefix(_PREFIX).removesuffix(".bias") + ".weight"] = matrix.T
    return found


def _dequantized(constants: Mapping[str, NDArray[np.float32]], stem: str) -> NDArray[np.float32]:
    """Return int8 values times their scales: one in all, (columns,) of a matrix, or (rows, 1) of a table."""
    values = constants[f"{stem}_quantized"].astype(np.float32)
    zero = constants.get(f"{stem}_zero_point", np.zeros(1, np.float32)).astype(np.float32)
    return np.asarray((values - zero) * constants[f"{stem}_scale"], np.float32)
