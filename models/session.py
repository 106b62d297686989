"""Run a model: the `Session` protocol and its ONNX Runtime implementation.

Each input runs alone, and as many inputs run at once as there are threads. On a CPU this layout has no padding, keeps
activations in the cache, and was the fastest measured; and since dynamic quantisation takes its scales from one whole
tensor, it is also what makes a score independent of batch mates.
"""

import math
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol, TypeAlias

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from models.errors import DeviceError, ModelFolderError
from models.folder import OUTPUTS, WEIGHTS_FILE, Kind, ModelFolder
from models.tokenization import ModelInput

Outputs: TypeAlias = tuple[NDArray[np.float32], ...]

_INPUTS = {"input_ids", "attention_mask", "token_type_ids"}
_AXES: Mapping[Kind, int] = {"dual-encoder": 3, "cross-encoder": 2, "reader": 2}  # of each output

_PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}


class Session(Protocol):
    """What runs a model; the encoders and the reader know nothing more of it."""

    def run(self, inputs: Sequence[ModelInput]) -> list[Outputs]:
        """Return the model's outputs for each input, in order, without the batch axis."""
        ...


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
        """Return how the graph's inputs and outputs differ from those of a kind, None where they do not."""
        if not _INPUTS - {"token_type_ids"} <= self._input_names <= _INPUTS:
            return f"it takes {', '.join(sorted(self._input_names))}"
        outputs = self._session.get_outputs()
        names = tuple(node.name for node in outputs)
        if names != OUTPUTS[kind]:
            return f"it gives {', '.join(names)}, not {', '.join(OUTPUTS[kind])}"
        shapes = [node.shape for node in outputs]  # an axis is a number, or a name where it may be of any length
        is_other = any(len(shape) != _AXES[kind] for shape in shapes)
        if is_other or (kind == "cross-encoder" and isinstance(shapes[0][1], int) and shapes[0][1] != 1):
            return f"its outputs have the shapes {', '.join(map(str, shapes))}"
        return None

    def _run_one(self, item: ModelInput) -> Outputs:
        feeds = {"input_ids": item.ids[None], "attention_mask": np.ones((1, item.ids.size), np.int64)}
        if "token_type_ids" in self._input_names:
            feeds["token_type_ids"] = item.token_types[None]
        return tuple(output[0] for output in self._session.run(None, feeds))


def open_session(folder: ModelFolder, *, n_threads: int, device: str) -> OnnxSession:
    """Return the folder's graph, ready to run.

    Raises:
        DeviceError: as `OnnxSession`.
        ModelFolderError: as `OnnxSession`, or the graph is not of the folder's kind or takes no input so long.
    """
    session = OnnxSession(folder.path / WEIGHTS_FILE, n_threads=n_threads, device=device)
    fault = session.misfit(folder.settings.kind)
    if fault is not None:
        raise ModelFolderError(f"{folder.path / WEIGHTS_FILE} is no {folder.settings.kind}: {fault}")
    if folder.settings.parity is None:  # nobody tried it yet
        _try_longest(session, folder)
    return session


def _try_longest(session: OnnxSession, folder: ModelFolder) -> None:
    longest = np.zeros(folder.settings.max_tokens, np.int64)
    try:
        session.run([ModelInput(longest, longest)])
    except Exception as error:  # ONNX Runtime derives its errors from nothing narrower
        raise ModelFolderError(
            f"{folder.path / WEIGHTS_FILE} does not take {longest.size} tokens, the max_tokens of its settings"
        ) from error


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


def available_cpus() -> int:
    """Return how many CPUs this process may use: the lower of its affinity and its cgroup's quota, at least 1."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _cgroup_quota(Path("/sys/fs/cgroup"))
    return max(1, affinity if quota is None else min(affinity, math.ceil(quota)))


def _cgroup_quota(root: Path) -> float | None:
    """Return the CPU quota in CPUs (cgroup v2 `cpu.max`, or v1 `cpu.cfs_*_us`), None for none."""
    try:
        quota, period = (root / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        pass
    try:
        quota_us = int((root / "cpu/cpu.cfs_quota_us").read_text())
        period_us = int((root / "cpu/cpu.cfs_period_us").read_text())
        return quota_us / period_us if quota_us > 0 else None
    except (OSError, ValueError):
        return None
