"""What runs a model: the `Session` protocol, and what its graphs must be like."""

import math
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from models.folder import OUTPUTS, Kind
from models.tokenization import ModelInput

Outputs: TypeAlias = tuple[NDArray[np.float32], ...]
EngineName: TypeAlias = Literal["auto", "native", "openvino", "onnxruntime"]


@dataclass(frozen=True, slots=True)
class Runtime:
    """Where and how a model runs: on n_threads threads of a device ("cpu", "cuda"), by an engine."""

    n_threads: int = 1
    device: str = "cpu"
    engine: EngineName = "auto"


MASK = "attention_mask"
TOKEN_TYPES = "token_type_ids"  # noqa: S105 - the name of an input
_INPUTS = {"input_ids", MASK, TOKEN_TYPES}
_AXES: Mapping[Kind, int] = {"dual-encoder": 3, "cross-encoder": 2, "reader": 2}  # of each output


class Session(Protocol):
    """What runs a model; the encoders and the reader know nothing more of it."""

    @property
    def engine(self) -> str:
        """Its name and precision, for people."""
        ...

    def run(self, inputs: Sequence[ModelInput]) -> list[Outputs]:
        """Return the model's outputs for each input, in order, without the batch axis.

        An input's outputs do not depend on what else is run with it.
        """
        ...


class GraphSession(Session, Protocol):
    """A session that runs a model folder's graph."""

    def misfit(self, kind: Kind) -> str | None:
        """Return how the graph differs from one of a kind; as the function `misfit`."""
        ...


def run_in_batches(
    inputs: Sequence[ModelInput],
    batches: Sequence[Sequence[int]],
    run: Callable[[Sequence[ModelInput]], Sequence[Outputs]],
    pool: Executor,
) -> list[Outputs]:
    """Return the outputs of inputs, in order, from batches of their numbers, run in a pool; a lone batch here."""
    runs = map if len(batches) == 1 else pool.map
    found = runs(run, [[inputs[i] for i in batch] for batch in batches])
    by_index = {
        i: each for batch, outputs in zip(batches, found, strict=True) for i, each in zip(batch, outputs, strict=True)
    }
    return [by_index[i] for i in range(len(inputs))]


def misfit(kind: Kind, inputs: Collection[str], outputs: Mapping[str, Sequence[int | None]]) -> str | None:
    """Return how a graph's inputs and outputs differ from those of a kind, None where they do not.

    Args:
        kind: of model.
        inputs: names.
        outputs: names in order, and of each axis the length, None where it may be of any.
    """
    if not _INPUTS - {TOKEN_TYPES} <= set(inputs) <= _INPUTS:
        return f"it takes {', '.join(sorted(inputs))}"
    if tuple(outputs) != OUTPUTS[kind]:
        return f"it gives {', '.join(outputs)}, not {', '.join(OUTPUTS[kind])}"
    shapes = list(outputs.values())
    if any(len(shape) != _AXES[kind] for shape in shapes) or (
        kind == "cross-encoder" and shapes[0][1] not in {None, 1}
    ):
        shown = (str(tuple("any" if length is None else length for length in shape)) for shape in shapes)
        return f"its outputs have the shapes {', '.join(shown)}"
    return None


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
