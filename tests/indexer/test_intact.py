"""A snapshot that is open tells which of its files was changed, and when it is as it was."""

import os
from pathlib import Path

import pytest

from indexer.build import build_snapshot
from indexer.documents import Document
from indexer.layout import STORE_FILE, TOKENS_FILE
from indexer.manifest import MANIFEST_FILE
from indexer.recipe import IndexModels
from indexer.snapshot import Snapshot


@pytest.fixture
def snapshot(tmp_path: Path, index_models: IndexModels) -> Snapshot:
    build_snapshot([Document("a", "fog over harbour")], index_path=tmp_path / "docs", models=index_models)
    return Snapshot.open(tmp_path / "docs", encoder_fingerprint="e" * 64)


def written(path: Path, content: bytes) -> None:
    """Write a file so that its time is another one, however coarse the clock of the disk."""
    path.write_bytes(content)
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1_000_000_000))


@pytest.mark.parametrize("name", [STORE_FILE, TOKENS_FILE, "bm25/posting_rows.npy", MANIFEST_FILE])
def test_each_kind_of_change_is_told_until_the_file_is_as_it_was(snapshot: Snapshot, tmp_path: Path, name: str) -> None:
    path = (tmp_path / "docs" / "current" / name).resolve()
    original = path.read_bytes()
    assert snapshot.damage() is None
    flipped = bytearray(original)
    flipped[len(flipped) // 2] ^= 1
    for content in (bytes(flipped), original + b"x"):
        written(path, content)
        damage = snapshot.damage()
        assert damage is not None
        assert str(path) in damage
        assert snapshot.damage() == damage
        written(path, original)
        assert snapshot.damage() is None
    path.unlink()
    assert snapshot.damage() == f"{path} is missing"
    path.write_bytes(original)
    assert snapshot.damage() is None
    snapshot.close()
