import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from indexer.build import build_snapshot
from indexer.documents import Document
from indexer.errors import SnapshotError
from indexer.manifest import MANIFEST_FILE
from indexer.recipe import IndexModels
from indexer.snapshot import Snapshot
from models.excerpts import TokenRarity

_FINGERPRINT = "e" * 64


@pytest.fixture
def index_path(tmp_path: Path, index_models: IndexModels) -> Path:
    documents = [Document(str(i), f"fog over harbour {i}. ferry {i % 7}.") for i in range(40)]
    build_snapshot(documents, index_path=tmp_path / "docs", models=index_models)
    return tmp_path / "docs"


def _open(index_path: Path, *, fingerprint: str = _FINGERPRINT, dimension: int = 32, verify: bool = True) -> Snapshot:
    return Snapshot.open(index_path, encoder_fingerprint=fingerprint, dimension=dimension, verify=verify)


@pytest.mark.parametrize(("fingerprint", "dimension"), [(_FINGERPRINT, 768), ("f" * 64, 32), ("f" * 64, 768)])
def test_another_encoder_is_refused_with_both_sides_named(index_path: Path, fingerprint: str, dimension: int) -> None:
    with pytest.raises(SnapshotError) as caught:
        _open(index_path, fingerprint=fingerprint, dimension=dimension)
    message = str(caught.value)
    for part in (
        "'docs'",
        "'hashed words'",
        "eeeeeeeeeeee",
        "32 dimensions",
        fingerprint[:12],
        f"{dimension} dimensions",
    ):
        assert part in message
    assert "\n" not in message


def test_a_missing_index_is_named(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match=r"there is no index 'docs' in"):
        _open(tmp_path / "docs")


def _change_manifest(index_path: Path, change: Callable[[dict[str, object]], None]) -> None:
    path = index_path / "current" / MANIFEST_FILE
    content = json.loads(path.read_bytes())
    change(content)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format_version": 1}, "has format version 1; this Tercet reads version 2"),
        ({"n_passages": -1}, "n_passages: Input should be greater than or equal to 0"),
        ({"surprise": 1}, "surprise: Extra inputs are not permitted"),
        ({"n_passages": 41}, "holds 40 passages; the manifest says 41"),
        (
            {"bm25": {"analyzer": "old/0", "k1": 1.2, "b": 0.75, "n_terms": 1}},
            "the analyzer 'old/0', which this Tercet does not have",
        ),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused(index_path: Path, change: dict[str, object], message: str) -> None:
    _change_manifest(index_path, lambda content: content.update(change))
    with pytest.raises(SnapshotError, match=message):
        _open(index_path)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"null"])
def test_a_manifest_that_is_none_is_refused(index_path: Path, content: bytes) -> None:
    (index_path / "current" / MANIFEST_FILE).write_bytes(content)
    with pytest.raises(SnapshotError, match=r"manifest\.json"):
        _open(index_path)


_FILES = [
    "documents.sqlite",
    "dense.faiss",
    "tokens.bin",
    "bm25/posting_rows.npy",
    "metadata/passage_documents.npy",
    "metadata/fields.json",
    "metadata/texts.bin",
    "bm25/terms.bin",
]


@pytest.mark.parametrize("name", _FILES)
def test_an_altered_file_is_refused(index_path: Path, name: str) -> None:
    path = index_path / "current" / name
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(SnapshotError, match=f"{name} was altered"):
        _open(index_path)


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("name", _FILES)
def test_a_missing_or_shortened_file_is_refused_even_without_hashes(index_path: Path, name: str, verify: bool) -> None:
    path = index_path / "current" / name
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(SnapshotError, match=rf"{name} has \d+ bytes; the manifest says"):
        _open(index_path, verify=verify)
    path.unlink()
    with pytest.raises(SnapshotError, match=f"{name} is missing"):
        _open(index_path, verify=verify)


def test_tokens_of_another_tokenizer_are_not_given(index_path: Path) -> None:
    snapshot = _open(index_path)
    assert snapshot.passage_tokens(np.array([0]), tokenizer_fingerprint="d" * 64) is None
    assert snapshot.passage_tokens(np.array([0]), tokenizer_fingerprint="c" * 64) is not None
    snapshot.close()


def test_rarity_is_that_of_passages_from_end_to_end(index_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("indexer.snapshot._SAMPLE", 4)
    snapshot = _open(index_path)
    sampled = snapshot.passage_tokens(np.array([0, 10, 20, 30]), tokenizer_fingerprint="c" * 64)
    assert sampled is not None
    ids = np.arange(500)
    found = snapshot.token_rarity(tokenizer_fingerprint="c" * 64)
    np.testing.assert_array_equal(found.weights(ids), TokenRarity(sampled).weights(ids))
    assert np.unique(found.weights(ids)).size > 2
    assert np.unique(snapshot.token_rarity(tokenizer_fingerprint="d" * 64).weights(ids)).size == 1
    snapshot.close()


def test_many_threads_search_at_once_and_get_what_one_gets(index_path: Path) -> None:
    snapshot = _open(index_path)
    vector = np.full(32, 32**-0.5, np.float32)

    def look(number: int) -> tuple[list[int], list[int], list[str]]:
        lexical, dense = snapshot.search_bm25(f"ferry {number % 7}", 9), snapshot.search_dense(vector, 9)
        return lexical.rows.tolist(), dense.rows.tolist(), [item.passage_id for item in snapshot.passages(lexical.rows)]

    alone = [look(number) for number in range(7)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(look, range(140))) == alone * 20
    snapshot.close()
    snapshot.close()


def test_an_open_snapshot_is_not_disturbed_by_a_new_one(index_path: Path, index_models: IndexModels) -> None:
    old = _open(index_path)
    build_snapshot([Document("new", "drum")], index_path=index_path, models=index_models)
    assert old.search_bm25("fog", 3).rows.size == 3
    assert old.document("new") is None
    new = _open(index_path)
    assert new.snapshot_id != old.snapshot_id
    assert new.n_documents == 1
    old.close()
    new.close()


@pytest.mark.parametrize("name", _FILES[:6])
def test_a_file_of_the_right_size_that_cannot_be_read_is_refused_without_hashes_too(
    index_path: Path, name: str
) -> None:
    path = index_path / "current" / name
    path.write_bytes(b"\xff" * path.stat().st_size)
    with pytest.raises(SnapshotError):
        _open(index_path, verify=False)


def test_a_refused_snapshot_is_not_held(index_path: Path, index_models: IndexModels) -> None:
    (index_path / "current" / "tokens.bin").write_bytes(b"")
    refused = (index_path / "current").resolve()
    with pytest.raises(SnapshotError):
        _open(index_path)
    for text in ("drum", "kit"):
        build_snapshot([Document("new", text)], index_path=index_path, models=index_models)
    assert not refused.exists()
