"""The dual encoder: texts to unit vectors whose inner product is their cosine (Reimers and Gurevych 2019)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from models.engines import open_session
from models.folder import TOKENIZER_FILE, ModelFolder
from models.pooling import mean_pool, unit
from models.session import Runtime, Session
from models.tokenization import ModelInput, Tokenizer

Side: TypeAlias = Literal["query", "passage"]


@dataclass(frozen=True, slots=True, eq=False)
class Embeddings:
    """Unit vectors (n, dimension) float32, and how many tokens of each text did not fit, (n,)."""

    vectors: NDArray[np.float32]
    cut_tokens: NDArray[np.int64]


class DualEncoder:
    """Encodes texts; thread-safe, and equal texts always get equal vectors."""

    def __init__(self, folder: ModelFolder, runtime: Runtime | Session) -> None:
        """Open the folder's graph in a runtime, unless a session is given to run instead of it."""
        self.folder = folder
        self.fingerprint = folder.fingerprint
        self.max_tokens = folder.settings.max_tokens
        self.tokenizer = Tokenizer(folder.path / TOKENIZER_FILE)
        self._session = open_session(folder, runtime) if isinstance(runtime, Runtime) else runtime
        self.engine = self._session.engine
        self.dimension = int(self.encode_queries([""]).vectors.shape[1])

    def encode_queries(self, queries: Sequence[str]) -> Embeddings:
        """Return the vectors of queries, in order."""
        return self._encode(self.inputs(queries, "query"))

    def encode_passages(self, passages: Sequence[str]) -> Embeddings:
        """Return the vectors of passages, in order."""
        return self._encode(self.inputs(passages, "passage"))

    def inputs(self, texts: Sequence[str], side: Side) -> list[ModelInput]:
        """Return one input per text, in order, with the prefix of its side; each says what of it was cut."""
        settings = self.folder.settings
        prefix = settings.query_prefix if side == "query" else settings.passage_prefix
        return [
            self.tokenizer.single(tokenized.ids, max_tokens=self.max_tokens)
            for tokenized in self.tokenizer.encode_batch([prefix + text for text in texts])
        ]

    def vectors(self, inputs: Sequence[ModelInput]) -> NDArray[np.float32]:
        """Return the unit vectors (n, dimension) of inputs, in order."""
        if not inputs:
            return np.zeros((0, self.dimension), np.float32)
        return unit(np.stack([mean_pool(outputs[0]) for outputs in self._session.run(inputs)]))

    def _encode(self, inputs: Sequence[ModelInput]) -> Embeddings:
        return Embeddings(self.vectors(inputs), np.array([item.passage_cut for item in inputs], np.int64))
