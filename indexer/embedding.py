"""The third step of a build: every passage gets its vector, made or known.

Made vectors lie on disk as soon as they are there, so a killed build loses at most the batch that it was at.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from indexer.ann import DenseRecord, DenseSettings, Vectors
from indexer.dense import DenseBuilder, write_ann
from indexer.documents import with_context
from indexer.errors import BuildError
from indexer.layout import ANN_FILE, DENSE_FILE, KEYS_FILE, STORE_FILE
from indexer.recipe import PassageEncoder
from indexer.store import Store
from indexer.vectors import KEY, Keys, KnownVectors, PendingVectors, VectorSource, passage_keys

_SLICE = 2048  # passages sorted by length together: their texts and vectors take a few MB
_BATCH_CHARACTERS = 32_000  # of one call of the encoder, about eight thousand tokens


@dataclass(frozen=True, slots=True)
class Embedded:
    """What became of the passages: the encoder cut n_cut of them, and made the vectors of n_made."""

    n_cut: int
    n_made: int
    record: DenseRecord


def embed(
    folder: Path,
    encoder: PassageEncoder,
    known: Sequence[VectorSource],
    pending: PendingVectors,
    settings: tuple[DenseSettings, Callable[[int, int], None]],
) -> Embedded:
    """Write the vectors of all passages in the folder's store, their keys, and the approximate index if one suits.

    Args:
        folder: of the snapshot under way, which holds the store.
        encoder: makes the vectors that are not known.
        known: where to look first.
        pending: takes each vector that is made.
        settings: of the dense index, and what is told how many passages of how many are done.
    """
    dense, report = settings
    store = Store(folder / STORE_FILE)
    builder, n_made, done = DenseBuilder(encoder.dimension, store.n_passages), 0, 0
    keys_of_all: list[Keys] = []
    lookup = KnownVectors([*known, pending.source()])
    try:
        for passages in store.passage_batches(_SLICE):
            texts = [with_context(passage.title, passage.heading, passage.text) for passage in passages]
            keys, vectors = passage_keys(texts), np.zeros((len(texts), encoder.dimension), np.float32)
            missing = np.flatnonzero(~lookup.find(keys, vectors)).tolist()
            done += len(texts) - len(missing)
            for batch in _by_length(texts, missing):
                _make(encoder, [texts[i] for i in batch], (keys, vectors), batch)
                pending.append(keys[batch], vectors[batch])
                done += len(batch)
                report(done, store.n_passages)
            n_made += len(missing)
            report(done, store.n_passages)
            builder.add(vectors)
            keys_of_all.append(keys)
    finally:
        store.close()
    all_keys = np.concatenate(keys_of_all) if keys_of_all else np.zeros(0, KEY)
    np.save(folder / KEYS_FILE, all_keys)
    builder.write(folder / DENSE_FILE)
    del builder  # from here on the vectors are mapped from disk
    record = write_ann(folder / DENSE_FILE, folder / ANN_FILE, dense)
    return Embedded(int(all_keys["is_cut"].sum()), n_made, record)


def _make(encoder: PassageEncoder, texts: Sequence[str], into: tuple[Keys, Vectors], rows: Sequence[int]) -> None:
    keys, vectors = into
    embeddings = encoder.encode_passages(texts)
    if not np.isfinite(embeddings.vectors).all():
        raise BuildError("the dual encoder gave a vector that is not finite")
    vectors[rows] = embeddings.vectors
    keys["is_cut"][rows] = embeddings.cut_tokens > 0


def _by_length(texts: Sequence[str], numbers: Sequence[int]) -> Iterator[list[int]]:
    """Yield the given numbers of texts in batches of about equally many characters, the longest first."""
    batch: list[int] = []
    room = _BATCH_CHARACTERS
    for i in sorted(numbers, key=lambda i: (-len(texts[i]), i)):
        if batch and len(texts[i]) > room:
            yield batch
            batch, room = [], _BATCH_CHARACTERS
        batch.append(i)
        room -= len(texts[i])
    if batch:
        yield batch
