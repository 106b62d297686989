from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from indexer.errors import SnapshotError
from indexer.tokens import TokenFile, TokenWriter


def _write(path: Path, passages: list[list[int]], *, vocabulary_size: int) -> TokenFile:
    with TokenWriter(path, vocabulary_size=vocabulary_size, tokenizer_fingerprint="ab" * 32) as writer:
        for ids in passages:
            writer.add(np.array(ids, np.int64))
    return TokenFile(path)


@pytest.mark.parametrize(("vocabulary_size", "greatest"), [(1 << 16, 65_535), (1 << 20, (1 << 20) - 1)])
@pytest.mark.parametrize("n_empty", [0, 1])
def test_ids_come_back_as_they_were(tmp_path: Path, vocabulary_size: int, greatest: int, n_empty: int) -> None:
    passages = [[5, 0, greatest], *[[]] * n_empty, [7]]
    tokens = _write(tmp_path / "tokens.bin", passages, vocabulary_size=vocabulary_size)
    rows = np.array([len(passages) - 1, 0, 1])
    assert [ids.tolist() for ids in tokens.passage_tokens(rows)] == [passages[row] for row in rows]
    assert tokens.n_passages == len(passages)
    assert tokens.tokenizer_fingerprint == "ab" * 32


def test_a_small_vocabulary_takes_two_bytes_an_id(tmp_path: Path) -> None:
    _write(tmp_path / "small", [[1] * 1000], vocabulary_size=30_522)
    _write(tmp_path / "large", [[1] * 1000], vocabulary_size=250_002)
    assert (tmp_path / "large").stat().st_size - (tmp_path / "small").stat().st_size == 2000


def test_a_file_without_passages_opens(tmp_path: Path) -> None:
    assert _write(tmp_path / "tokens.bin", [], vocabulary_size=10).n_passages == 0


@pytest.mark.parametrize("n_bytes", [0, 20, 64, 70])
def test_an_incomplete_file_is_refused(tmp_path: Path, n_bytes: int) -> None:
    path = tmp_path / "tokens.bin"
    _write(path, [[1, 2, 3]], vocabulary_size=10)
    path.write_bytes(path.read_bytes()[:n_bytes])
    with pytest.raises(SnapshotError, match="not a complete token file"):
        TokenFile(path)


def test_a_file_whose_writing_failed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokens.bin"
    writer = TokenWriter(path, vocabulary_size=10, tokenizer_fingerprint="ab" * 32)
    with suppress(RuntimeError), writer:
        writer.add(np.array([1]))
        raise RuntimeError("the build failed")
    with pytest.raises(SnapshotError, match="not a complete token file"):
        TokenFile(path)
