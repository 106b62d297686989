"""The cross-encoder: one relevance logit for a query and a passage read together (Nogueira and Cho 2019)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.calibration import Calibration
from models.engines import open_session
from models.excerpts import Excerpts, TokenRarity
from models.folder import TOKENIZER_FILE, ModelFolder
from models.session import Runtime, Session
from models.tokenization import Lengths, ModelInput, TokenIds, TokenizedText, Tokenizer, Window

_OVERLAP = 8  # neighbouring windows share an eighth of the room that a passage has at least


@dataclass(frozen=True, slots=True, eq=False)
class PairTask:
    """A query over passages, cut into windows; owners[i] is the passage of windows[i].

    A blank passage has no window. query_cut and cut_tokens (n_passages,) count the tokens that no window holds.
    """

    tokens: tuple[TokenizedText, ...]
    windows: tuple[Window, ...]
    owners: NDArray[np.int64]
    query_cut: int
    cut_tokens: NDArray[np.int64]

    @property
    def inputs(self) -> list[ModelInput]:
        """The model inputs, one per window."""
        return [window.input for window in self.windows]

    def best_windows(self, logits: NDArray[np.float32]) -> NDArray[np.int64]:
        """Return (n_passages,) the window of each passage's greatest finite logit, the first of equals, -1 for none."""
        best = np.full(len(self.tokens), -1, np.int64)
        finite = np.flatnonzero(np.isfinite(logits))
        order = finite[np.lexsort((finite, -logits[finite], self.owners[finite]))]
        owners, firsts = np.unique(self.owners[order], return_index=True)
        best[owners] = order[firsts]
        return best


class CrossEncoder:
    """Scores query-passage pairs; thread-safe, and a pair's logit does not depend on what else is scored with it."""

    def __init__(self, folder: ModelFolder, runtime: Runtime | Session) -> None:
        """Open the folder's graph in a runtime, unless a session is given to run instead of it."""
        self.folder = folder
        self.fingerprint = folder.fingerprint
        self.tokenizer_fingerprint = folder.tokenizer_fingerprint
        self.calibration = Calibration.of(folder.settings.relevance)
        self.pair_calibration = Calibration.of(folder.settings.pair_relevance)
        self.early_exit = folder.settings.early_exit
        self.tokenizer = Tokenizer(folder.path / TOKENIZER_FILE)
        self._session = open_session(folder, runtime) if isinstance(runtime, Runtime) else runtime
        self.engine = self._session.engine

    @property
    def lengths(self) -> Lengths:
        """How much of a query and a passage one window holds."""
        settings = self.folder.settings
        room = settings.max_tokens - settings.max_query_tokens
        return Lengths(settings.max_tokens, settings.max_query_tokens, overlap_tokens=room // _OVERLAP)

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

    def excerpts(
        self, query: str, passages: Sequence[TokenIds], rarity: TokenRarity, *, n_tokens: int
    ) -> list[TokenIds]:
        """Return of each passage the n_tokens that are worth most to read with a query, fewer if no more fit.

        What the model does not see of the query has no say, nor have signs that the vocabulary lacks.
        """
        settings = self.folder.settings
        seen = self.tokenizer.encode(query).ids[: settings.max_query_tokens]
        room = self.tokenizer.passage_room(seen.size, max_tokens=settings.max_tokens)
        return Excerpts(rarity, min(n_tokens, room)).of(seen[seen != self.tokenizer.unknown_id], passages)

    def prepare(
        self, query: str, passages: Sequence[str], *, max_windows: int | None = 1, max_passage_tokens: int | None = None
    ) -> PairTask:
        """Return the windows of every passage, passages in order.

        Args:
            query: what to read each passage with.
            passages: as text.
            max_windows: how many windows a passage may have, None for as many as hold all of it.
            max_passage_tokens: how many tokens of a passage may be read, None for all.
        """
        query_ids = self.tokenizer.encode(query).ids
        tokens = self.tokenizer.encode_batch(passages)
        windows: list[Window] = []
        owners: list[int] = []
        cut_tokens = np.zeros(len(tokens), np.int64)
        for index, (passage, tokenized) in enumerate(zip(passages, tokens, strict=True)):
            if not passage.strip() or not tokenized.ids.size:
                continue
            own = self._windows(query_ids, tokenized.ids[:max_passage_tokens])[:max_windows]
            windows += own
            owners += [index] * len(own)
            cut_tokens[index] = tokenized.ids.size - own[-1].passage_end
        query_cut = max(0, query_ids.size - self.folder.settings.max_query_tokens)
        return PairTask(tuple(tokens), tuple(windows), np.array(owners, np.int64), query_cut, cut_tokens)

    def _windows(self, query_ids: TokenIds, passage_ids: TokenIds) -> list[Window]:
        lengths = self.lengths
        return self.tokenizer.windows(
            query_ids,
            passage_ids,
            max_window_tokens=lengths.max_tokens,
            max_query_tokens=lengths.max_query_tokens,
            overlap_tokens=lengths.overlap_tokens,
        )

    def logits(self, inputs: Sequence[ModelInput]) -> NDArray[np.float32]:
        """Return the (n,) rerank logits of pair inputs, in order."""
        return np.array([outputs[0].reshape(-1)[0] for outputs in self._session.run(inputs)], np.float32)

    def score(self, query: str, passages: Sequence[str]) -> NDArray[np.float32]:
        """Return the (n,) rerank logits of passages given as text, in order."""
        return self.logits(self.inputs(query, [text.ids for text in self.tokenizer.encode_batch(passages)]))
