"""Digests of what a run is made of, so that it is never taken for another."""

import hashlib

import numpy as np
from numpy.typing import NDArray
from torch import nn


def digest(*parts: NDArray[np.generic] | str) -> str:
    """Return the sha256, as hex, of arrays and texts in their order; the shapes of arrays and their types count."""
    found = hashlib.sha256()
    for part in parts:
        content = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else np.ascontiguousarray(part).data
        head = "text" if isinstance(part, str) else f"{part.dtype} {part.shape}"
        found.update(f"{head} {len(content)}\n".encode())
        found.update(content)
    return found.hexdigest()


def weights_digest(model: nn.Module) -> str:
    """Return the digest of a model's weights and their names."""
    return digest(*(part for name, weight in model.state_dict().items() for part in (name, weight.numpy())))
