"""Run a model in ONNX Runtime.

Each input runs alone, and as many inputs run at once as there are threads (ADR 1). On a CPU this layout has no padding,
keeps activations in the cache, and was the fastest measured; and since dynamic quantisation may take its scales from
one whole tensor, it is also what makes a score independent of batch mates.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnxruntime

from models.errors import DeviceError, ModelFolderError
from models.folder import Kind
from models.session import MASK, TOKEN_TYPES, Outputs, misfit
from models.tokenization import ModelInput

_PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}


class OnnxSession:
    """A model.onnx in ONNX Runtime, n_threads inputs at a time."""

    def __init__(self, path: Path, *, n_threads: int, device: str = "cpu") -> None:
        """Load the graph.

        Raises:
            DeviceError: the device is unknown or its execution provider did not start.
            ModelFolderError: the file is not a model that ONNX Runtime reads.
        """
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.enable_mem_pattern = False  # lengths vary from run to run, so a pattern is never met again
        options.log_severity_level = 3
        self.engine = f"onnxruntime on {device}"
        self._session = _open(path, options, device)
        self._input_names = {node.name for node in self._session.get_inputs()}
        self._n_threads = n_threads
        self._pool = ThreadPoolExecutor(n_threads, thread_name_prefix="onnx")

    def run(self, inputs: Sequence[ModelInput]) -> list[Outputs]:
        """Return the outputs of each input, in order; the longest start first so that the threads end together."""
        if len(inputs) == 1 or self._n_threads == 1:
            return [self._run_one(item) for item in inputs]
        order = sorted(range(len(inputs)), key=lambda i: -inputs[i].ids.size)
        outputs = self._pool.map(self._run_one, [inputs[i] for i in order])
        by_index = dict(zip(order, outputs, strict=True))
        return [by_index[i] for i in range(len(inputs))]

    def misfit(self, kind: Kind) -> str | None:
        """Return how the graph differs from one of a kind; as `models.session.misfit`."""
        fixed = [node.shape[-1] for node in self._session.get_inputs() if isinstance(node.shape[-1], int)]
        if fixed:
            return f"it takes inputs of {fixed[0]} tokens only"
        outputs = {
            node.name: [length if isinstance(length, int) else None for length in node.shape]
            for node in self._session.get_outputs()
        }
        return misfit(kind, self._input_names, outputs)

    def _run_one(self, item: ModelInput) -> Outputs:
        feeds = {"input_ids": item.ids[None], MASK: np.ones((1, item.ids.size), np.int64)}
        if TOKEN_TYPES in self._input_names:
            feeds[TOKEN_TYPES] = item.token_types[None]
        return tuple(output[0] for output in self._session.run(None, feeds))


def _open(path: Path, options: onnxruntime.SessionOptions, device: str) -> onnxruntime.InferenceSession:
    provider = _PROVIDERS.get(device)
    if provider is None:
        raise DeviceError(f"device {device!r} is unknown; known are {', '.join(_PROVIDERS)}")
    if provider not in onnxruntime.get_available_providers():
        raise DeviceError(f"device {device!r} was asked for, but this onnxruntime has no {provider}")
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=[provider])
    except Exception as error:
        raise ModelFolderError(f"{path} cannot be loaded by ONNX Runtime ({type(error).__name__})") from error
    # ONNX Runtime lists CUDA as available and then falls back to the CPU silently: believe only what it runs on.
    if session.get_providers()[0] != provider:
        raise DeviceError(
            f"device {device!r} was asked for, but ONNX Runtime fell back to {session.get_providers()[0]}"
        )
    return session
