"""The cross-encoder: one relevance logit for a query and a passage read together (Nogueira and Cho 2019)."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from models.calibration import Calibration
from models.folder import TOKENIZER_FILE, WEIGHTS_FILE, ModelFolder
from models.session import OnnxSession, Session
from models.tokenization import ModelInput, TokenIds, Tokenizer


class CrossEncoder:
    """Scores query-passage pairs; thread-safe, and a pair's logit does not depend on what else is scored with it."""

    def __init__(
        self, folder: ModelFolder, *, n_threads: int, device: str = "cpu", session: Session | None = None
    ) -> None:
        """Open the folder's graph, unless a session is given to run instead of it."""
        self.folder = folder
        self.fingerprint = folder.fingerprint
        self.tokenizer_fingerprint = folder.tokenizer_fingerprint
        self.calibration = Calibration.of(folder.settings.relevance)
        self.tokenizer = Tokenizer(folder.path / TOKENIZER_FILE)
        if session is None:
            session = OnnxSession(folder.path / WEIGHTS_FILE, n_threads=n_threads, device=device)
        self._session = session

    def inputs(self, query: str, passages: Sequence[TokenIds]) -> list[ModelInput]:
        """Return one pair input per tokenized passage, in order; each says what of it was cut."""
        settings = self.folder.settings
        query_ids = self.tokenizer.encode(query).ids
        return [
            self.tokenizer.pair(
                query_ids, passage, max_tokens=settings.max_tokens, max_query_tokens=settings.max_query_tokens
            )
            for passage in passages
        ]

    def logits(self, inputs: Sequence[ModelInput]) -> NDArray[np.float32]:
        """Return the (n,) rerank logits of pair inputs, in order."""
        return np.array([outputs[0].reshape(-1)[0] for outputs in self._session.run(inputs)], np.float32)

    def score(self, query: str, passages: Sequence[str]) -> NDArray[np.float32]:
        """Return the (n,) rerank logits of passages given as text, in order."""
        return self.logits(self.inputs(query, [text.ids for text in self.tokenizer.encode_batch(passages)]))
