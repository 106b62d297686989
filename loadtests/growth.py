"""Measure how the time of a search grows with candidates, passage length, index size and clients, one table for each.

    python loadtests/growth.py INDEX_FOLDER QUERIES.jsonl.gz [--n 20] [--work DIR] [--only candidates]

The services are started here, without a cache and without the early exit. Candidates and clients are measured on the
index itself; for length and size others are made from its text and its vectors plus noise (see `million.py`), below
--work, where the next run finds them.
"""

import argparse
import itertools
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import httpx
import numpy as np
from clients import LEVELS
from clients import measure as measure_clients
from latency import RouteLatency
from latency import measure as measure_ways
from million import WORDS_A_PASSAGE, NoisyEncoder, percentiles, timed
from numpy.typing import NDArray
from scenarios.processes import Tercet
from target import TargetError, read_queries

from indexer.build import build_snapshot
from indexer.chunking import ChunkingSettings
from indexer.documents import Document
from indexer.publish import current_snapshot
from indexer.recipe import BuildSettings, IndexModels
from indexer.snapshot import Snapshot
from models.dual_encoder import Embeddings
from models.folder import BUNDLED_CROSS_ENCODER, BUNDLED_DUAL_ENCODER, TOKENIZER_FILE, open_model_folder
from models.tokenization import Tokenizer

CANDIDATES = (10, 24, 50, 100, 200)
LENGTHS = (64, 128, 256, 512)  # tokens
SIZES = (1_000, 10_000, 100_000)  # passages
N_OF_A_LENGTH = 400  # passages
RERANK_K = 50  # where the length grows
K = 100  # of a leg in process
N_QUICK = 20  # times as many searches where none reranks
DIMENSION = 384
RULE = "|---"
NO_RERANKING: dict[str, object] = {"rerank": False, "settle_k": 0}


class KnownVectors:
    """Stands for the encoder of an index, and gives that index's vectors whatever the texts."""

    def __init__(self, vectors: NDArray[np.float32]) -> None:
        folder = open_model_folder(BUNDLED_DUAL_ENCODER, "dual-encoder")
        self.fingerprint, self.dimension = folder.fingerprint, vectors.shape[1]
        self.tokenizer = Tokenizer(folder.path / TOKENIZER_FILE)
        self._vectors = vectors

    def encode_passages(self, passages: Sequence[str]) -> Embeddings:
        """Return the vectors of the index."""
        return Embeddings(self._vectors, np.zeros(len(self._vectors), np.int64))


@dataclass(frozen=True)
class Bench:
    """What is measured on: an index and its queries, how many to ask, and where indexes are made."""

    index_path: Path
    queries_path: Path
    n: int
    work: Path

    def queries(self, n: int) -> list[str]:
        """Return n queries, repeated where there are fewer."""
        return list(itertools.islice(itertools.cycle(read_queries(self.queries_path, n=n)), n))

    def open(self, index_path: Path) -> Snapshot:
        """Open an index that was made by the bundled encoder."""
        fingerprint = open_model_folder(BUNDLED_DUAL_ENCODER, "dual-encoder").fingerprint
        return Snapshot.open(index_path, encoder_fingerprint=fingerprint, dimension=DIMENSION, verify=False)

    @cached_property
    def text(self) -> str:
        """The text of the index's passages, without line breaks, which could be taken for headings."""
        snapshot = self.open(self.index_path)
        return " ".join(" ".join(snapshot.passage_texts(np.arange(snapshot.n_passages))).split())

    def service(self, index_path: Path) -> Tercet:
        """Return a service of an index that computes all anew."""
        settings = {"DATA_PATH": str(index_path.parent.resolve()), "INDEX": index_path.name, "CACHE_BYTES": "0"}
        return Tercet(self.work, settings | {"LOG_LEVEL": "warning", "REQUEST_TIMEOUT_SECONDS": "120"})

    def made(self, name: str, texts: Iterator[str], *, max_tokens: int) -> Path:
        """Return an index of texts, a passage each, which is built unless it is there."""
        path = self.work / name
        if current_snapshot(path) is None:
            known = KnownVectors(np.array(self.open(self.index_path)._dense.vectors))
            encoder = NoisyEncoder(known, [])
            encoder.fingerprint = known.fingerprint  # a service opens no index of another encoder
            folder = open_model_folder(BUNDLED_CROSS_ENCODER, "cross-encoder")
            models = IndexModels(encoder, Tokenizer(folder.path / TOKENIZER_FILE), folder.tokenizer_fingerprint)
            chunking = ChunkingSettings(max_tokens=max_tokens, overlap_tokens=0, max_characters=20_000)
            documents = (Document(f"p{number:07}", text) for number, text in enumerate(texts))
            build_snapshot(documents, index_path=path, models=models, settings=BuildSettings(chunking=chunking))
        return path


def of_tokens(text: str, offsets: NDArray[np.int32], n_tokens: int) -> Iterator[str]:
    """Yield the text in pieces of n_tokens each, whose offsets (total_tokens, 2) are given; what is left over is left.

    A piece ends where its last token does, so that no token is cut.
    """
    for first in range(0, len(offsets) - n_tokens + 1, n_tokens):
        yield text[offsets[first, 0] : offsets[first + n_tokens - 1, 1]]


def of_words(words: Sequence[str], n: int) -> Iterator[str]:
    """Yield n windows of `WORDS_A_PASSAGE` words, evenly spread over words; they overlap as much as it takes."""
    room = len(words) - WORDS_A_PASSAGE
    for number in range(n):
        start = number * room // n
        yield " ".join(words[start : start + WORDS_A_PASSAGE])


def searches(bench: Bench, index_path: Path, ways: Sequence[dict[str, object]], *, n: int) -> list[RouteLatency]:
    """Return the latency of searching an index in each way, one search at a time."""
    with bench.service(index_path).serving() as server, httpx.Client(base_url=server.url, timeout=120) as client:
        return measure_ways(client, "/v1/search", bench.queries(n), ways)


def by_candidates(bench: Bench) -> Iterator[str]:
    """Yield the table of candidates reranked."""
    ways: list[dict[str, object]] = [{"rerank_k": k, "retrieve_k": max(CANDIDATES), "settle_k": 0} for k in CANDIDATES]
    yield f"| candidates | p50 ms | p95 ms | rerank p50 ms | ms a candidate |\n{RULE * 5}|"
    for k, found in zip(CANDIDATES, searches(bench, bench.index_path, ways, n=bench.n), strict=True):
        client, rerank = found.client, found.stages["rerank"].p50_ms
        yield f"| {k} | {client.p50_ms:.0f} | {client.p95_ms:.0f} | {rerank:.0f} | {rerank / k:.2f} |"


def by_length(bench: Bench) -> Iterator[str]:
    """Yield the table of passage lengths."""
    folder = open_model_folder(BUNDLED_CROSS_ENCODER, "cross-encoder")
    offsets = Tokenizer(folder.path / TOKENIZER_FILE).encode(bench.text).offsets
    yield f"| tokens a passage | p50 ms | p95 ms | rerank {RERANK_K}, p50 ms | ms a thousand tokens |\n{RULE * 5}|"
    for length in LENGTHS:
        texts = itertools.islice(of_tokens(bench.text, offsets, length), N_OF_A_LENGTH)
        path = bench.made(f"length-{length}", texts, max_tokens=2 * length)
        [found] = searches(bench, path, [{"rerank_k": RERANK_K, "settle_k": 0}], n=bench.n)
        client, rerank = found.client, found.stages["rerank"].p50_ms
        of_a_thousand = 1000 * rerank / (RERANK_K * length)
        yield f"| {length} | {client.p50_ms:.0f} | {client.p95_ms:.0f} | {rerank:.0f} | {of_a_thousand:.1f} |"


def by_size(bench: Bench) -> Iterator[str]:
    """Yield the table of index sizes: each leg in process, and the whole search without reranking."""
    words = bench.text.split()
    yield f"| passages | dense p50 ms | p99 ms | BM25 p50 ms | p99 ms | search p50 ms | p95 ms |\n{RULE * 7}|"
    for n_passages in SIZES:
        path = bench.made(f"size-{n_passages}", of_words(words, n_passages), max_tokens=512)
        dense, bm25 = legs(bench.open(path), bench.queries(N_QUICK * bench.n))
        [found] = searches(bench, path, [NO_RERANKING], n=N_QUICK * bench.n)
        of_legs = " | ".join(f"{leg['p50_ms']:.2f} | {leg['p99_ms']:.2f}" for leg in (dense, bm25))
        yield f"| {n_passages:,} | {of_legs} | {found.client.p50_ms:.1f} | {found.client.p95_ms:.1f} |"


def legs(snapshot: Snapshot, queries: Sequence[str]) -> tuple[dict[str, float], dict[str, float]]:
    """Return p50 and p99 of dense retrieval and of BM25; query vectors are those of passages plus noise."""
    generator = np.random.default_rng(1)
    rows = generator.choice(snapshot.n_passages, len(queries))
    vectors = snapshot._dense.vectors[rows] + 0.02 * generator.standard_normal((rows.size, DIMENSION))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    return (
        percentiles(timed(lambda vector: snapshot.search_dense(vector, K), list(vectors))),
        percentiles(timed(lambda query: snapshot.search_bm25(query, K), queries)),
    )


def by_clients(bench: Bench) -> Iterator[str]:
    """Yield the table of clients that search at once."""
    yield f"| clients | searches/s | over one | p50 ms | p99 ms |\n{RULE * 5}|"
    with bench.service(bench.index_path).serving() as server:
        body: dict[str, object] = {"rerank_k": K, "settle_k": 0}
        measure_clients(server.url, bench.queries(5), n_clients=1, body=body)  # to warm up
        alone = 0.0
        for n_clients in LEVELS:
            level = measure_clients(server.url, bench.queries(2 * bench.n), n_clients=n_clients, body=body)
            alone = alone or level.per_second
            per_second = f"{level.per_second:.2f} | {level.per_second / alone:.2f}"
            yield f"| {n_clients} | {per_second} | {level.p50_ms:.0f} | {level.p99_ms:.0f} |"


TABLES: dict[str, Callable[[Bench], Iterator[str]]] = {
    "candidates": by_candidates,
    "length": by_length,
    "size": by_size,
    "clients": by_clients,
}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("index", type=Path)
    parser.add_argument("queries", type=Path)
    parser.add_argument("--n", type=int, default=20, help="queries of a row; twenty times as many where none reranks")
    parser.add_argument("--work", type=Path, help="where indexes are made and kept; else they go at the end")
    parser.add_argument("--only", choices=TABLES, action="append")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = arguments.work or Path(folder)
        work.mkdir(parents=True, exist_ok=True)
        bench = Bench(arguments.index, arguments.queries, arguments.n, work)
        try:
            for name in arguments.only or TABLES:
                print(f"\n{name}:\n")
                for line in TABLES[name](bench):
                    print(line, flush=True)
        except TargetError as error:
            sys.exit(str(error))


if __name__ == "__main__":
    main()
