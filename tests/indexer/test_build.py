import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from indexer.build import build_snapshot
from indexer.chunking import ChunkingSettings
from indexer.documents import Document
from indexer.errors import BuildError, SourceError
from indexer.manifest import MANIFEST_FILE
from indexer.recipe import BuildProgress, BuildRun, BuildSettings, IndexModels
from indexer.snapshot import Snapshot
from models.tokenization import Tokenizer
from tests.indexer.hashed_words import HashedWordEncoder

_DOCUMENTS = [
    Document(
        f"d{i:02}",
        f"fog over harbour {i}.\n\n# Ferry\n\n" + f"ferry times {i}. " * (3 * i),
        f"Title {i}",
        f"u{i}",
        {"i": i},
    )
    for i in range(30)
]


def _open(index_path: Path, models: IndexModels) -> Snapshot:
    encoder = models.dual_encoder
    return Snapshot.open(index_path, encoder_fingerprint=encoder.fingerprint, dimension=encoder.dimension)


def _visible(index_path: Path) -> list[str]:
    return sorted(path.name for path in index_path.iterdir() if path.name != "lock")


def test_what_was_indexed_is_found_shown_and_tokenized(tmp_path: Path, index_models: IndexModels) -> None:
    report = build_snapshot(_DOCUMENTS, index_path=tmp_path / "docs", models=index_models)
    snapshot = _open(tmp_path / "docs", index_models)
    assert (snapshot.snapshot_id, snapshot.index_name) == (report.snapshot_id, "docs")
    assert snapshot.n_documents == report.n_documents == 30
    assert snapshot.n_passages == report.n_passages > 60
    hits = snapshot.search_bm25("harbour 7", 5)
    best = snapshot.passages(hits.rows)[0]
    assert (best.document_id, best.title, best.url, best.metadata) == ("d07", "Title 7", "u7", {"i": 7})
    document = snapshot.document("d07")
    assert document == _DOCUMENTS[7]
    assert document.text[best.start : best.end] == best.text
    texts = snapshot.passage_texts(hits.rows)
    tokens = snapshot.passage_tokens(hits.rows, tokenizer_fingerprint=index_models.passage_tokenizer_fingerprint)
    assert tokens is not None
    expected = index_models.passage_tokenizer.encode_batch(texts)
    assert [ids.tolist() for ids in tokens] == [tokenized.ids.tolist() for tokenized in expected]
    snapshot.close()


def test_dense_search_finds_a_passage_by_its_own_vector_and_scores_agree(
    tmp_path: Path, index_models: IndexModels
) -> None:
    build_snapshot(_DOCUMENTS, index_path=tmp_path / "docs", models=index_models)
    snapshot = _open(tmp_path / "docs", index_models)
    rows = np.arange(snapshot.n_passages)
    vectors = index_models.dual_encoder.encode_passages(snapshot.passage_texts(rows)).vectors
    for row in (0, 5, snapshot.n_passages - 1):
        hits = snapshot.search_dense(vectors[row], 3)
        assert hits.scores[0] == pytest.approx(1, abs=1e-6)
        assert row in hits.rows or hits.scores[-1] == hits.scores[0]
        assert snapshot.dense_scores(vectors[row], hits.rows).tolist() == hits.scores.tolist()
    lexical = snapshot.search_bm25("ferry", 4)
    assert snapshot.bm25_scores("ferry", lexical.rows).tolist() == lexical.scores.tolist()
    snapshot.close()


def test_rows_are_in_the_order_of_document_id_then_ordinal(tmp_path: Path, index_models: IndexModels) -> None:
    ids = ["b", "a", "ä", "Z", "10", "9", "a#0", "🚀", "\uffff"]
    build_snapshot((Document(i, "fog. " * 400) for i in ids), index_path=tmp_path / "docs", models=index_models)
    snapshot = _open(tmp_path / "docs", index_models)
    passages = snapshot.passages(np.arange(snapshot.n_passages))
    assert list(dict.fromkeys(passage.document_id for passage in passages)) == sorted(ids)
    assert [p.start for p in passages if p.document_id == "a"] == sorted(
        p.start for p in passages if p.document_id == "a"
    )
    snapshot.close()


def test_the_same_documents_give_the_same_bytes_in_any_order(tmp_path: Path, index_models: IndexModels) -> None:
    shuffled = list(_DOCUMENTS)
    random.Random(0).shuffle(shuffled)
    one = build_snapshot(_DOCUMENTS, index_path=tmp_path / "one", models=index_models).path
    two = build_snapshot(shuffled, index_path=tmp_path / "two", models=index_models).path
    names = sorted(path.relative_to(one) for path in one.rglob("*") if path.is_file())
    assert len(names) == 20
    for name in names:
        assert name.name == MANIFEST_FILE or (one / name).read_bytes() == (two / name).read_bytes()


@pytest.mark.parametrize(
    "documents", [[], [Document("a", "")], [Document("a", " "), Document("b", "...!!!")], [Document("a", "", "Fog")]]
)
def test_corpora_without_words_build_and_open(
    tmp_path: Path, index_models: IndexModels, documents: list[Document]
) -> None:
    report = build_snapshot(documents, index_path=tmp_path / "docs", models=index_models)
    snapshot = _open(tmp_path / "docs", index_models)
    assert report.n_documents == len(documents)
    assert snapshot.search_bm25("fog", 10).rows.size == (documents[-1:] == [Document("a", "", "Fog")])
    assert snapshot.search_dense(np.ones(32, np.float32), 10).rows.size == report.n_passages
    assert snapshot.search_bm25("", 10).rows.size == snapshot.search_bm25("the", 10).rows.size == 0
    snapshot.close()


def test_progress_counts_every_document_and_passage_once(tmp_path: Path, index_models: IndexModels) -> None:
    steps: list[BuildProgress] = []
    run = BuildRun(progress=steps.append)
    report = build_snapshot(_DOCUMENTS, index_path=tmp_path / "docs", models=index_models, run=run)
    assert list(dict.fromkeys(step.stage for step in steps)) == ["read", "chunk", "embed", "publish"]
    last = {step.stage: (step.done, step.total) for step in steps}
    assert last["read"] == (30, None)
    assert last["chunk"] == (30, 30)
    assert last["embed"] == (report.n_passages, report.n_passages)


def test_the_first_of_two_documents_with_one_id_is_kept_and_the_other_reported(
    tmp_path: Path, index_models: IndexModels
) -> None:
    documents = [Document("a", "fog"), Document("a", "ferry"), Document("b", "drum"), Document("a", "kit")]
    repeated: list[str] = []
    run = BuildRun(repeated=repeated.append)
    report = build_snapshot(documents, index_path=tmp_path / "docs", models=index_models, run=run)
    assert (report.n_documents, report.n_repeated_ids, repeated) == (2, 2, ["a", "a"])
    snapshot = _open(tmp_path / "docs", index_models)
    document = snapshot.document("a")
    assert document is not None
    assert document.text == "fog"
    snapshot.close()


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (Document("a", "\ud83d"), "document 'a' holds a lone surrogate"),
        (Document("\ud83d", ""), "holds a lone surrogate"),
        (Document("", "x"), "document number 1 has an empty id"),
        (Document("a", "", metadata={"x": float("nan")}), "the metadata of document 'a' is not JSON"),
    ],
)
def test_a_document_that_cannot_be_stored_is_named(
    tmp_path: Path, index_models: IndexModels, document: Document, message: str
) -> None:
    with pytest.raises(BuildError, match=message):
        build_snapshot([document], index_path=tmp_path / "docs", models=index_models)


def test_passages_that_the_encoder_cuts_are_counted(tmp_path: Path, word_tokenizer: Tokenizer) -> None:
    encoder = HashedWordEncoder(word_tokenizer, max_tokens=20)
    models = IndexModels(encoder, word_tokenizer, "c" * 64)
    documents = [Document("long", "ferry " * 30), Document("short", "ferry")]
    assert build_snapshot(documents, index_path=tmp_path / "docs", models=models).n_cut_passages == 1


def test_a_failed_build_leaves_the_previous_snapshot_and_nothing_else(
    tmp_path: Path, index_models: IndexModels
) -> None:
    def failing() -> Iterator[Document]:
        yield from _DOCUMENTS
        raise SourceError("the source ended early")

    build_snapshot(_DOCUMENTS, index_path=tmp_path / "docs", models=index_models)
    before = sorted(path for path in (tmp_path / "docs").rglob("*"))
    with pytest.raises(SourceError, match="the source ended early"):
        build_snapshot(failing(), index_path=tmp_path / "docs", models=index_models)
    assert sorted(path for path in (tmp_path / "docs").rglob("*")) == before
    with pytest.raises(SourceError):
        build_snapshot(failing(), index_path=tmp_path / "new", models=index_models)
    assert _visible(tmp_path / "new") == ["snapshots"]
    assert list((tmp_path / "new" / "snapshots").iterdir()) == []


def test_chunking_settings_are_kept_in_the_manifest(tmp_path: Path, index_models: IndexModels) -> None:
    chunking = ChunkingSettings(max_tokens=50, overlap_tokens=5)
    build_snapshot(
        _DOCUMENTS, index_path=tmp_path / "docs", models=index_models, settings=BuildSettings(chunking=chunking)
    )
    snapshot = _open(tmp_path / "docs", index_models)
    assert snapshot.manifest.chunking == chunking
    assert snapshot.manifest.encoder.name == "hashed words"
    snapshot.close()
