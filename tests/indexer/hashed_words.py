"""A dual encoder without a network: unit vectors of hashed words, the same on every machine."""

import hashlib
from collections.abc import Sequence

import numpy as np

from models.dual_encoder import Embeddings
from models.tokenization import Tokenizer


class HashedWordEncoder:
    """Encodes a text as the normalised counts of its words' hashes."""

    def __init__(self, tokenizer: Tokenizer, *, dimension: int = 32, max_tokens: int = 250) -> None:
        self.fingerprint = "e" * 64
        self.dimension = dimension
        self.tokenizer = tokenizer
        self._max_tokens = max_tokens

    def encode_passages(self, passages: Sequence[str]) -> Embeddings:
        """Return one vector a passage."""
        vectors = np.zeros((len(passages), self.dimension), np.float32)
        for row, passage in enumerate(passages):
            for word in passage.lower().split():
                vectors[row, hashlib.sha256(word.encode("utf-8", "replace")).digest()[0] % self.dimension] += 1
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        sizes = [text.ids.size for text in self.tokenizer.encode_batch(passages)]
        cut = np.maximum(np.array(sizes, np.int64) - self._max_tokens, 0)
        return Embeddings((vectors / np.where(norms == 0, 1, norms)).astype(np.float32), cut)
