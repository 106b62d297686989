"""From token vectors to one text vector (Reimers and Gurevych 2019, section 3: mean pooling)."""

import numpy as np
from numpy.typing import NDArray


def mean_pool(token_vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the mean over the tokens of one unpadded text: (n_tokens, dimension) to (dimension,)."""
    return np.asarray(token_vectors.mean(axis=0), np.float32)


def unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return vectors scaled to length 1 along the last axis; a zero vector stays zero."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)
