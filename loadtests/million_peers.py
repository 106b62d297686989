"""Time each leg of retrieval over a snapshot, and its peers over the same terms and vectors, one thread each.

    python loadtests/million_peers.py SNAPSHOT_FOLDER [--queries FILE] [--leg bm25|dense]

Queries for BM25 are real ones (JSON Lines with `text`), or windows of five words of the passages; query vectors are
those of passages with noise. Peers that are not installed are named: bm25s, rank-bm25, tantivy, hnswlib, usearch.
"""

import argparse
import gzip
import importlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from bm25_choice import ours, with_bm25s, with_tantivy
from million import N_QUERIES, percentiles, timed

from indexer.manifest import read_manifest
from indexer.snapshot import Snapshot

K = 100
LEGS = ("bm25", "dense")
N_SLOW = 10  # queries of an engine that takes seconds


NOT_INSTALLED = {"skipped": "not installed"}


def bm25_legs(snapshot: Snapshot, queries: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield p50 and p99 of BM25 by engine."""
    analyze = snapshot.analyzer.analyze
    yield "tercet", percentiles(timed(lambda query: snapshot.search_bm25(query, K), queries))
    corpus = [
        list(map(sys.intern, analyze(text)))
        for start in range(0, snapshot.n_passages, 10_000)
        for text in snapshot.passage_texts(np.arange(start, min(start + 10_000, snapshot.n_passages)))
    ]
    asked = [analyze(query) for query in queries]
    for name, make in (("tercet, terms given", ours), ("bm25s", with_bm25s), ("tantivy", with_tantivy)):
        yield name, _built(make(corpus), asked)
    try:
        bm25 = importlib.import_module("rank_bm25").BM25Okapi(corpus)
    except ImportError:
        yield "rank-bm25", NOT_INSTALLED
    else:
        yield "rank-bm25", percentiles(timed(lambda terms: np.argsort(-bm25.get_scores(terms))[:K], asked[:N_SLOW]))


def _built(make: Callable[[Path], Any] | None, queries: Sequence[Any]) -> dict[str, Any]:
    if make is None:
        return NOT_INSTALLED
    with tempfile.TemporaryDirectory() as folder:
        started = time.monotonic()
        search = make(Path(folder))
        seconds = time.monotonic() - started
        return {"build_seconds": round(seconds, 1), **percentiles(timed(search, queries))}


def dense_legs(
    snapshot: Snapshot, queries: np.ndarray[Any, np.dtype[np.float32]]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield p50, p99 and recall@100 of vector search by engine."""
    dense = snapshot._dense
    exact = [set(dense.search_exactly(query, K).rows.tolist()) for query in queries]

    def measured(search: Callable[[Any], Sequence[int]]) -> dict[str, Any]:
        kept = [len(best.intersection(search(query))) / K for query, best in zip(queries, exact, strict=True)]
        return {"recall": round(float(np.mean(kept)), 4), **percentiles(timed(search, list(queries)))}

    yield "tercet", measured(lambda query: snapshot.search_dense(query, K).rows.tolist())
    yield "tercet, exact", percentiles(timed(lambda query: dense.search_exactly(query, K), list(queries[:50])))
    vectors = np.array(dense.vectors)  # usearch takes none at an odd address, as mapped ones are
    for name, make in (("hnswlib", _hnswlib), ("usearch", _usearch)):
        started = time.monotonic()
        try:
            search = make(vectors)
        except ImportError:
            yield name, NOT_INSTALLED
        else:
            yield name, {"build_seconds": round(time.monotonic() - started, 1), **measured(search)}


def _hnswlib(vectors: Any) -> Callable[[Any], Sequence[int]]:
    index = importlib.import_module("hnswlib").Index(space="ip", dim=vectors.shape[1])
    index.init_index(max_elements=len(vectors), M=16, ef_construction=100)
    index.add_items(vectors)
    index.set_ef(200)
    index.set_num_threads(1)
    return lambda query: index.knn_query(query, K)[0][0].tolist()


def _usearch(vectors: Any) -> Callable[[Any], Sequence[int]]:
    index = importlib.import_module("usearch.index").Index(
        ndim=vectors.shape[1], metric="ip", dtype="bf16", connectivity=16, expansion_add=100, expansion_search=200
    )
    index.add(np.arange(len(vectors)), vectors)
    return lambda query: index.search(query, K).keys.tolist()


def main() -> None:
    """Print a line of JSON for each engine."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("snapshot", type=Path)
    parser.add_argument("--queries", type=Path)
    parser.add_argument("--leg", choices=LEGS, action="append")
    arguments = parser.parse_args()
    manifest = read_manifest(arguments.snapshot)
    snapshot = Snapshot.open_folder(
        arguments.snapshot,
        "million",
        encoder_fingerprint=manifest.encoder.fingerprint,
        dimension=manifest.encoder.dimension,
        verify=False,
    )
    generator = np.random.default_rng(1)
    rows = np.sort(generator.choice(snapshot.n_passages, N_QUERIES, replace=False))
    if arguments.queries is not None:
        opened = gzip.open if arguments.queries.suffix == ".gz" else open
        with opened(arguments.queries, "rt", encoding="utf-8") as lines:
            queries = [json.loads(line)["text"] for line in lines][:N_QUERIES]
    else:
        queries = [" ".join(text.split()[10:15]) for text in snapshot.passage_texts(rows)]
    vectors = snapshot._dense.vectors[rows] + 0.02 * generator.standard_normal((rows.size, 384)).astype(np.float32)
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    for leg in arguments.leg or LEGS:
        for engine, figures in bm25_legs(snapshot, queries) if leg == "bm25" else dense_legs(snapshot, vectors):
            print(json.dumps({"leg": leg, "engine": engine, **figures}), flush=True)


if __name__ == "__main__":
    main()
