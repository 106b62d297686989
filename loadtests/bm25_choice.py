"""Compare BM25 engines on the same terms of the same documents: CPU time to index, CPU time a query, size, top-10 kept.

    python loadtests/bm25_choice.py FOLDER_OF_BEIR_SETS [COPIES]

Every set under the folder is read; with COPIES the collection is repeated, to look at larger ones. Terms come from our
analyzer for all engines, and the time of analysis is in none; times are of the CPU, one thread. `tantivy` is measured
if it is installed. The decision that this led to is docs/adr/0002-own-bm25-index.md.
"""

import gzip
import importlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import bm25s
import numpy as np

from indexer.analysis import Analyzer
from indexer.bm25 import Bm25Builder, Bm25Index

analyze = Analyzer().analyze
K = 100
N_QUERIES = 300

Terms = list[str]
Search = Callable[[Terms], list[int]]


@dataclass(frozen=True, slots=True)
class Measured:
    """One engine's result: rankings hold the rows of each query, best first."""

    name: str
    index_seconds: float
    query_seconds: list[float]
    n_bytes: int
    rankings: list[list[int]]


def read_lines(path: Path) -> Iterator[dict[str, str]]:
    """Yield the records of a compressed JSON Lines file."""
    with gzip.open(path) as lines:
        yield from map(json.loads, lines)


def measure(name: str, build: Callable[[Path], Search], queries: Sequence[Terms]) -> Measured:
    """Build in a new folder, then search each query once, after ten to warm up."""
    with tempfile.TemporaryDirectory() as folder:
        started = time.process_time()
        search = build(Path(folder))
        index_seconds = time.process_time() - started
        for query in queries[:10]:
            search(query)
        query_seconds, rankings = [], []
        for query in queries:
            started = time.process_time()
            rankings.append(search(query))
            query_seconds.append(time.process_time() - started)
        n_bytes = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
    return Measured(name, index_seconds, query_seconds, n_bytes, rankings)


def ours(corpus: Sequence[Terms]) -> Callable[[Path], Search]:
    """Return a builder of `indexer.bm25`."""

    def build(folder: Path) -> Search:
        builder = Bm25Builder()
        for terms in corpus:
            builder.add(terms)
        builder.write(folder / "bm25")
        index = Bm25Index(folder / "bm25", n_passages=len(corpus))
        return lambda terms: index.search(terms, K).rows.tolist()

    return build


def with_bm25s(corpus: Sequence[Terms]) -> Callable[[Path], Search]:
    """Return a builder of bm25s with its numpy backend, saved and mapped."""

    def build(folder: Path) -> Search:
        writer = bm25s.BM25(method="lucene", k1=1.2, b=0.75)
        writer.index(list(corpus), show_progress=False)
        writer.save(folder)
        index = bm25s.BM25.load(folder, mmap=True)

        def search(terms: Terms) -> list[int]:
            known = [term for term in terms if term in index.vocab_dict]
            if not known:
                return []
            rows, scores = index.retrieve([known], k=min(K, len(corpus)), show_progress=False, n_threads=1)
            return [int(row) for row, score in zip(rows[0], scores[0], strict=True) if score > 0]

        return search

    return build


def with_tantivy(corpus: Sequence[Terms]) -> Callable[[Path], Search] | None:
    """Return a builder of tantivy over terms joined by blanks, None if it is not installed."""
    try:
        tantivy = importlib.import_module("tantivy")
    except ImportError:
        return None

    def build(folder: Path) -> Search:
        schema = tantivy.SchemaBuilder().add_text_field("terms", tokenizer_name="whitespace", index_option="freq")
        schema = schema.add_unsigned_field("row", stored=True, fast=True).build()
        index = tantivy.Index(schema, path=str(folder))
        writer = index.writer(heap_size=200_000_000, num_threads=1)
        for row, terms in enumerate(corpus):
            document = tantivy.Document()
            document.add_text("terms", " ".join(terms))
            document.add_unsigned("row", row)
            writer.add_document(document)
        writer.commit()
        writer.wait_merging_threads()
        index.reload()
        searcher = index.searcher()

        def search(terms: Terms) -> list[int]:
            parts = [
                (tantivy.Occur.Should, tantivy.Query.term_query(schema, "terms", term, index_option="freq"))
                for term in terms
            ]
            hits = searcher.search(tantivy.Query.boolean_query(parts), K).hits
            return [searcher.doc(address)["row"][0] for _, address in hits]

        return search

    return build


def main(folder: Path, copies: int) -> None:
    """Print one line an engine."""
    sets = sorted(path.parent for path in folder.glob("*/corpus.jsonl.gz"))
    records = [record for path in sets for record in read_lines(path / "corpus.jsonl.gz")]
    corpus = [analyze(f"{record.get('title') or ''} {record['text']}") for record in records] * copies
    asked = [analyze(record["text"]) for path in sets for record in read_lines(path / "queries.jsonl.gz")]
    chosen = np.random.default_rng(0).choice(len(asked), min(N_QUERIES, len(asked)), replace=False)
    queries = [asked[i] for i in chosen if asked[i]]
    builds = {"ours": ours(corpus), "bm25s": with_bm25s(corpus), "tantivy": with_tantivy(corpus)}
    results = [measure(name, build, queries) for name, build in builds.items() if build is not None]
    print(f"{len(corpus)} documents, {len(queries)} queries of {np.mean([len(q) for q in queries]):.1f} terms, k = {K}")
    for result in results:
        kept = [
            len(set(own[:10]) & set(reference[:10])) / len(reference[:10])
            for own, reference in zip(result.rankings, results[0].rankings, strict=True)
            if reference
        ]
        median, p95 = np.percentile(result.query_seconds, [50, 95]) * 1000
        print(
            f"{result.name:8} index {result.index_seconds:6.2f} s   query {median:6.3f} ms median {p95:7.3f} ms p95   "
            f"{result.n_bytes / 1e6:6.1f} MB   top-10 as ours {np.mean(kept):.3f}"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1)
