"""The third step of a build: every passage gets its vector, made or known.

Made vectors lie on disk as soon as they are there, so a killed build loses at most the batch that it was at.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
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
from models.dual_encoder import Embeddings

_SLICE = 2048  # passages sorted by length together: their texts and vectors take a few MB
_BATCHES_AT_ONCE = 2  # one is tokenized or pooled while the encoder's threads run the other (ADR 17)
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
    keys_of_all: list[Keys] = []
    n_made = 0
    with closing(Store(folder / STORE_FILE)) as store:
        builder = DenseBuilder(encoder.dimension, store.n_passages)
        for keys, vectors, n_missing in _by_slice(store, encoder, [*known, pending.source()], pending, report):
            builder.add(vectors)
            keys_of_all.append(keys)
            n_made += n_missing
    all_keys = np.concatenate(keys_of_all) if keys_of_all else np.zeros(0, KEY)
    np.save(folder / KEYS_FILE, all_keys)
    builder.write(folder / DENSE_FILE)
    del builder  # from here on the vectors are mapped from disk
    record = write_ann(folder / DENSE_FILE, folder / ANN_FILE, dense)
    return Embedded(int(all_keys["is_cut"].sum()), n_made, record)


def _by_slice(
    store: Store,
    encoder: PassageEncoder,
    known: Sequence[VectorSource],
    pending: PendingVectors,
    report: Callable[[int, int], None],
) -> Iterator[tuple[Keys, Vectors, int]]:
    """Yield the keys and vectors of the store's passages, and how many of these were not known, slice by slice."""
    done, lookup = 0, KnownVectors(known)
    pool = ThreadPoolExecutor(_BATCHES_AT_ONCE, thread_name_prefix="embed")
    try:
        for passages in store.passage_batches(_SLICE):
            texts = [with_context(passage.title, passage.heading, passage.text) for passage in passages]
            keys, vectors = passage_keys(texts), np.zeros((len(texts), encoder.dimension), np.float32)
            missing = np.flatnonzero(~lookup.find(keys, vectors)).tolist()
            done += len(texts) - len(missing)
            for batch, embeddings in _encoded(encoder, texts, missing, pool):
                _keep(embeddings, (keys, vectors), batch)
                pending.append(keys[batch], vectors[batch])
                done += len(batch)
                report(done, store.n_passages)
            report(done, store.n_passages)
            yield keys, vectors, len(missing)
    finally:
        pool.shutdown(cancel_futures=True)


def _encoded(
    encoder: PassageEncoder, texts: Sequence[str], numbers: Sequence[int], pool: ThreadPoolExecutor
) -> Iterator[tuple[list[int], Embeddings]]:
    batches = list(_by_length(texts, numbers))
    found = pool.map(encoder.encode_passages, [[texts[i] for i in batch] for batch in batches])
    return zip(batches, found, strict=True)


def _keep(embeddings: Embeddings, into: tuple[Keys, Vectors], rows: Sequence[int]) -> None:
    keys, vectors = into
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
