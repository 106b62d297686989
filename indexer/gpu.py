"""FAISS on a GPU: what can run there, and the check that it does."""

from typing import Any

import faiss

from models.errors import DeviceError

_FAISS: Any = faiss  # its types do not know the GPU's part
ON_GPU = frozenset({"flat", "ivf-sq8"})  # FAISS has neither HNSW nor packed product quantisation there


def gpu_resources() -> Any:
    """Return what FAISS needs to use the first GPU.

    Raises:
        DeviceError: this FAISS was built without GPU support, or finds no GPU.
    """
    if not hasattr(_FAISS, "StandardGpuResources"):
        raise DeviceError("device 'cuda' was asked for, but this FAISS has no GPU support: install the extra `gpu`")
    if _FAISS.get_num_gpus() < 1:
        raise DeviceError("device 'cuda' was asked for, but FAISS finds no GPU")
    return _FAISS.StandardGpuResources()


def to_gpu(resources: Any, index: Any) -> Any:
    """Return a copy of an index on the first GPU."""
    return _FAISS.index_cpu_to_gpu(resources, 0, index)


def to_cpu(index: Any) -> Any:
    """Return a copy of a GPU's index that can be written to a file."""
    return _FAISS.index_gpu_to_cpu(index)
