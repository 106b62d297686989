"""Turn a model folder back into a torch checkpoint, so that a bundled model can be trained further.

int8 weights become the fp32 numbers they stand for; the rounding that is left is far below what a step of training
changes. Only graphs that `models.export` wrote are understood.
"""

from pathlib import Path

import torch
from torch import Tensor, nn

from models.bert import parameters
from models.errors import TrainingError
from models.folder import WEIGHTS_FILE, ModelFolder
from models.onnx_file import OnnxFileError, read_graph


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
        return {name: torch.from_numpy(values.copy()) for name, values in parameters(read_graph(path)).items()}
    except (OnnxFileError, LookupError, ValueError, TypeError) as error:
        raise TrainingError(f"{path} is no graph that tercet export wrote ({type(error).__name__}: {error})") from error
