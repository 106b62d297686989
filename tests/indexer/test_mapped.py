from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from indexer.mapped import SortedTexts, mapped_array, mapped_bytes, save_joined


def _texts(*texts: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    encoded = [text.encode() for text in texts]
    return np.frombuffer(b"".join(encoded), np.uint8), np.cumsum([len(each) for each in encoded], dtype=np.int64)


def test_texts_are_found_and_placed_by_their_bytes() -> None:
    texts = SortedTexts(*_texts("", "a", "ab", "ä", "🚀"))
    assert [texts[i].decode() for i in range(len(texts))] == ["", "a", "ab", "ä", "🚀"]
    assert [texts.find(each.encode()) for each in ("", "ab", "🚀", "aa", "z")] == [0, 2, 4, None, None]
    assert [texts.first_from(each) for each in (b"", b"aa", b"ab", b"\xff")] == [0, 2, 2, 5]
    assert [texts.first_beyond(each) for each in (b"", b"aa", b"ab", b"\xff")] == [1, 2, 3, 5]


def test_a_range_of_numbers_leaves_the_other_texts_out() -> None:
    texts = SortedTexts(*_texts("b", "c", "a", "d"), numbers=range(2, 4))
    assert (len(texts), texts[0], texts[1]) == (2, b"a", b"d")
    assert (texts.find(b"d"), texts.find(b"b"), texts.first_from(b"b")) == (1, None, 1)
    with pytest.raises(IndexError):
        texts[2]


@pytest.mark.parametrize("parts", [[], [[]], [[1], [], [2, 3]]])
def test_joined_arrays_come_back_mapped_even_if_empty(tmp_path: Path, parts: list[list[int]]) -> None:
    save_joined(tmp_path / "a.npy", [np.array(part, np.int32) for part in parts], np.int32)
    loaded = mapped_array(tmp_path / "a.npy", np.int32)
    assert loaded.tolist() == [each for part in parts for each in part]
    assert isinstance(loaded.base, np.memmap) == bool(loaded.size)
    (tmp_path / "empty").write_bytes(b"")
    assert mapped_bytes(tmp_path / "empty").size == 0
