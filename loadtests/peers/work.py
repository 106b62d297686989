"""What every peer scores: queries with their best passages by BM25, and passages to embed, out of one index."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
from target import TargetError, read_queries

from indexer.snapshot import Snapshot
from models.folder import (
    BUNDLED_CROSS_ENCODER,
    BUNDLED_DUAL_ENCODER,
    TOKENIZER_FILE,
    open_model_folder,
)
from models.tokenization import Tokenizer

N_PASSAGES = 100
N_CALIBRATION = 3  # requests, of other queries: 300 pairs, as many as sentence-transformers takes
_SPECIAL = {"rerank": 3, "embed": 2}  # tokens of an input

Request: TypeAlias = tuple[str, list[str]]
Name: TypeAlias = Literal["rerank", "embed", "calibration"]


@dataclass(frozen=True, slots=True)
class Work:
    """Requests by what they are for: "rerank", "calibration", and "embed", a request without a query."""

    requests: dict[Name, list[Request]]

    def n_units(self, name: Name) -> int:
        """Return how many pairs, or passages."""
        return sum(len(passages) for _, passages in self.requests[name])

    def median_tokens(self, name: Literal["rerank", "embed"]) -> int:
        """Return the median length of an input, special tokens included, before anything is cut."""
        tokenizer = Tokenizer(open_model_folder(BUNDLED_CROSS_ENCODER, None).path / TOKENIZER_FILE)  # of both models
        lengths = [
            tokenizer.encode(query).ids.size + text.ids.size + _SPECIAL[name]
            for query, passages in self.requests[name]
            for text in tokenizer.encode_batch(passages)
        ]
        return int(np.median(lengths))

    def write(self, folder: Path) -> dict[Name, Path]:
        """Write each kind of request to a file of JSON, and return the files."""
        files: dict[Name, Path] = {name: folder / f"{name}.json" for name in self.requests}
        for name, path in files.items():
            path.write_text(json.dumps(self.requests[name]), encoding="utf-8")
        return files


def read_work(index: Path, queries: Path, *, n: int) -> Work:
    """Return n requests, fewer where the index finds too little, as many passages to embed as they hold, and others.

    Raises:
        TargetError: no query finds enough passages.
        SnapshotError: the index cannot be opened.
    """
    encoder = open_model_folder(BUNDLED_DUAL_ENCODER, "dual-encoder")
    snapshot = Snapshot.open(index, encoder_fingerprint=encoder.fingerprint)
    found = list(_requests(snapshot, read_queries(queries, n=n + N_CALIBRATION)))
    if len(found) <= N_CALIBRATION:
        raise TargetError(f"Of the queries in {queries}, {len(found)} find {N_PASSAGES} passages in {index}; too few.")
    n_embedded = min(snapshot.n_passages, N_PASSAGES * (len(found) - N_CALIBRATION))
    rows = np.linspace(0, snapshot.n_passages - 1, n_embedded).astype(np.int64)
    return Work(
        {
            "rerank": found[N_CALIBRATION:],
            "embed": [("", snapshot.passage_texts(rows))],
            "calibration": found[:N_CALIBRATION],
        }
    )


def _requests(snapshot: Snapshot, queries: Sequence[str]) -> list[Request]:
    found = [(query, snapshot.search_bm25(query, N_PASSAGES).rows) for query in queries]
    return [(query, snapshot.passage_texts(rows)) for query, rows in found if rows.size == N_PASSAGES]
