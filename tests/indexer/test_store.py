from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from indexer.documents import Document, Passage
from indexer.store import Store, StoreWriter

_TEXT = "a\0b 🚀 \u2028 é\r\nend"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    path = tmp_path / "a ?#%" / "documents.sqlite"
    path.parent.mkdir()
    writer = StoreWriter(path)
    writer.add(Document("a", _TEXT, "T", "u", {"n": 1, "x": 1.5, "b": True, "s": "ß"}), _cut("a", 4, len(_TEXT)))
    writer.add(Document("b", ""), [])
    writer.add(Document("c", "x" * 1200), _cut("c", *range(1, 1201)))
    writer.finish()
    writer.close()
    return Store(path)


def _cut(document_id: str, *ends: int) -> list[Passage]:
    starts = (0, *ends[:-1])
    return [Passage(document_id, i, start, end, "H") for i, (start, end) in enumerate(zip(starts, ends, strict=True))]


def test_documents_come_back_as_they_were(store: Store) -> None:
    assert store.document("a") == Document("a", _TEXT, "T", "u", {"n": 1, "x": 1.5, "b": True, "s": "ß"})
    assert store.document("b") == Document("b", "", metadata={})
    assert store.document("missing") is None
    assert store.document("\ud800") is None
    assert (store.n_documents, store.n_passages) == (3, 1202)


def test_passages_come_in_the_order_asked_for_and_are_slices(store: Store) -> None:
    found = store.passages(np.array([1, 0, 1, 1201]))
    assert [passage.passage_id for passage in found] == ["a#1", "a#0", "a#1", "c#1199"]
    assert found[0].text == _TEXT[found[0].start : found[0].end]
    assert found[0].url == "u"
    assert len(store.passages(np.arange(1202))) == 1202
    assert store.passages(np.zeros(0, np.int64)) == []


@pytest.mark.parametrize("row", [-1, 1202])
def test_a_row_that_is_not_there_is_an_error_and_never_another_passage(store: Store, row: int) -> None:
    with pytest.raises(KeyError):
        store.passages(np.array([row]))


def test_batches_hold_every_passage_once_in_order(store: Store) -> None:
    batches = list(store.passage_batches(500))
    assert [len(batch) for batch in batches] == [500, 500, 202]
    assert [passage.row for batch in batches for passage in batch] == list(range(1202))


def test_many_threads_read_at_once(store: Store) -> None:
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda row: store.passages(np.array([row]))[0].row, range(1202)))
    assert results == list(range(1202))
    store.close()


def test_a_store_leaves_no_file_beside_itself_and_does_not_write(tmp_path: Path, store: Store) -> None:
    folder = tmp_path / "a ?#%"
    before = (folder / "documents.sqlite").read_bytes()
    folder.chmod(0o500)
    store.passages(np.array([0]))
    assert [path.name for path in folder.iterdir()] == ["documents.sqlite"]
    assert (folder / "documents.sqlite").read_bytes() == before
    folder.chmod(0o700)
