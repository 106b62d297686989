"""BM25 on whole documents against the published table of the shared retrieval sets."""

import csv
import gzip
from pathlib import Path

import ir_measures
import numpy as np
import orjson
import pytest
from ir_measures import nDCG

from indexer.analysis import Analyzer
from indexer.bm25 import Bm25Builder, Bm25Index
from indexer.documents import Document
from indexer.sources import read_documents

analyze = Analyzer().analyze
_SETS = Path("../shared/data/ir")


@pytest.mark.parametrize(
    ("name", "published"), [("cranfield", 0.360), ("med", 0.699), ("nq_small", 0.891), ("covidq_faq", 0.388)]
)
def test_bm25_reproduces_the_published_ndcg(tmp_path: Path, name: str, published: float) -> None:
    folder = _SETS / name
    if not folder.is_dir():
        pytest.skip(f"{folder} is not there")
    documents = [record for record in read_documents(str(folder)) if isinstance(record, Document)]
    documents.sort(key=lambda document: document.document_id)
    builder = Bm25Builder()
    for document in documents:
        builder.add(analyze(f"{document.title} {document.text}"))
    builder.write(tmp_path / "bm25")
    index = Bm25Index(tmp_path / "bm25", n_passages=len(documents))
    with (folder / "qrels" / "test.tsv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    judgements = [ir_measures.Qrel(row["query-id"], row["corpus-id"], int(row["score"])) for row in rows]
    wanted = {judgement.query_id for judgement in judgements}
    run = []
    for line in gzip.decompress((folder / "queries.jsonl.gz").read_bytes()).split(b"\n"):
        query: dict[str, str] = orjson.loads(line) if line else {}
        if query.get("_id") in wanted:
            hits = index.search(analyze(query["text"]), 10)
            pairs = zip(hits.rows.tolist(), hits.scores.tolist(), strict=True)
            run += [ir_measures.ScoredDoc(query["_id"], documents[row].document_id, score) for row, score in pairs]
    measured = ir_measures.calc_aggregate([nDCG @ 10], judgements, run)[nDCG @ 10]
    assert np.abs(measured - published) <= 0.01
