"""Embed passages by threads of one process and by as many processes of one thread each, in turns.

    python loadtests/embedding_workers.py FOLDER... [--n 2000] [--rounds 5]

"two at once" is what a build does: while one batch is tokenized or pooled, another is run. Each process holds a dual
encoder of its own and gets every other batch of about 32,000 characters; it is started and warm before the clock is.
Prints passages/s of each round, medians, and what each way adds to memory.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from indexer.documents import Document
from indexer.embedding import _by_length
from indexer.sources import read_documents
from models.dual_encoder import DualEncoder
from models.folder import BUNDLED_DUAL_ENCODER, open_model_folder
from models.session import Runtime, available_cpus

_encoder: DualEncoder | None = None


def encoder(n_threads: int) -> DualEncoder:
    """Return this process's encoder."""
    global _encoder
    if _encoder is None:
        _encoder = DualEncoder(open_model_folder(BUNDLED_DUAL_ENCODER, "dual-encoder"), Runtime(n_threads))
    return _encoder


def encode_alone(texts: Sequence[str]) -> np.ndarray:
    """Return the vectors of texts, made by one thread."""
    return encoder(1).encode_passages(texts).vectors


def resident_mb(_: int = 0) -> float:
    """Return this process's resident memory, in MB."""
    time.sleep(0.2)  # so that each worker gets one of the calls
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def main() -> None:
    """Print passages/s by threads and by processes."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("sources", nargs="+")
    parser.add_argument("--n", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    documents = [d for source in arguments.sources for d in read_documents(source) if isinstance(d, Document)]
    texts = [document.text for document in documents[:: max(1, len(documents) // arguments.n)]][: arguments.n]
    batches = [[texts[i] for i in batch] for batch in _by_length(texts, range(len(texts)))]
    n_workers = available_cpus()
    with ProcessPoolExecutor(n_workers, mp_context=get_context("spawn")) as pool, ThreadPoolExecutor(2) as two:
        list(pool.map(encode_alone, [["warm"]] * (4 * n_workers)))
        threads = encoder(n_workers)
        ways: dict[str, Callable[[], list[np.ndarray]]] = {
            "threads": lambda: [threads.encode_passages(batch).vectors for batch in batches],
            "two at once": lambda: [each.vectors for each in two.map(threads.encode_passages, batches)],
            "processes": lambda: list(pool.map(encode_alone, batches)),
        }
        rates: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(arguments.rounds):
            vectors = {}
            for name, embed in ways.items():
                started = time.perf_counter()
                vectors[name] = np.concatenate(embed())
                rates[name].append(len(texts) / (time.perf_counter() - started))
            assert np.array_equal(vectors["threads"], vectors["processes"])
        print(f"{len(texts):,} passages in {len(batches)} batches, {n_workers} workers, the same vectors")
        for name, found in rates.items():
            print(f"{name}: {statistics.median(found):.1f} passages/s ({', '.join(f'{rate:.1f}' for rate in found)})")
        print(f"this process: {resident_mb():.0f} MB; workers: {list(pool.map(resident_mb, range(n_workers)))} MB")


if __name__ == "__main__":
    main()
