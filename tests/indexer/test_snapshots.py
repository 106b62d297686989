"""Listing, verifying, rolling back, removing, exporting and importing snapshots."""

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from indexer.build import build_snapshot
from indexer.documents import Document
from indexer.errors import BuildError, IndexerError, SnapshotError
from indexer.publish import building, current_snapshot
from indexer.recipe import IndexModels
from indexer.snapshot import Snapshot
from indexer.snapshots import (
    export_snapshot,
    import_snapshot,
    list_snapshots,
    remove_snapshots,
    roll_back,
    verify_snapshot,
)

Build = Callable[[str], str]


@pytest.fixture
def index_path(tmp_path: Path) -> Path:
    return tmp_path / "docs"


@pytest.fixture
def build(index_path: Path, index_models: IndexModels) -> Build:
    def build_one(text: str) -> str:
        documents = [Document("a", text), Document("b", "ferry")]
        return build_snapshot(documents, index_path=index_path, models=index_models).snapshot_id

    return build_one


def test_the_list_has_the_newest_first_and_says_what_is_current_and_in_use(
    build: Build, index_path: Path, index_models: IndexModels
) -> None:
    first, second = build("fog"), build("drum")
    encoder = index_models.dual_encoder
    held = Snapshot.open(index_path, encoder_fingerprint=encoder.fingerprint, dimension=encoder.dimension)
    roll_back(index_path)
    one, other = list_snapshots(index_path)
    held.close()
    assert {one.snapshot_id, other.snapshot_id} == {first, second}
    states = {each.snapshot_id: (each.is_current, each.is_in_use) for each in (one, other)}
    assert states == {first: (True, False), second: (False, True)}
    assert (one.n_documents, one.n_passages, one.fault) == (2, 2, None)
    assert one.n_bytes is not None
    assert one.n_bytes > 1000


def test_rolling_back_makes_the_one_before_current_and_then_there_is_none(build: Build, index_path: Path) -> None:
    first, second = build("fog"), build("drum")
    (index_path / "snapshots" / first / "manifest.json").write_text(
        (index_path / "snapshots" / first / "manifest.json")
        .read_text()
        .replace('"created_at": "20', '"created_at": "19')
    )
    assert roll_back(index_path).snapshot_id == first
    assert current_snapshot(index_path) == index_path / "snapshots" / first
    with pytest.raises(SnapshotError, match="no snapshot older than the current one"):
        roll_back(index_path)
    assert roll_back(index_path, second).snapshot_id == second
    with pytest.raises(SnapshotError, match=r"index 'docs' has no snapshot '\.\./docs'"):
        roll_back(index_path, "../docs")


def test_a_flipped_byte_and_a_missing_file_are_found_and_never_rolled_back_to(build: Build, index_path: Path) -> None:
    first, second = build("fog"), build("drum")
    store = index_path / "snapshots" / first / "documents.sqlite"
    content = bytearray(store.read_bytes())
    content[len(content) // 2] ^= 1
    store.write_bytes(content)
    with pytest.raises(SnapshotError, match=r"documents.sqlite was altered: sha256"):
        verify_snapshot(index_path, first)
    with pytest.raises(SnapshotError, match=r"documents.sqlite was altered: sha256"):
        roll_back(index_path, first)
    store.unlink()
    with pytest.raises(SnapshotError, match=r"documents.sqlite is missing"):
        verify_snapshot(index_path, first)
    assert verify_snapshot(index_path).snapshot_id == second


def test_so_many_are_kept_and_the_current_one_always(build: Build, index_path: Path) -> None:
    first, second = build("fog"), build("drum")
    roll_back(index_path, first)
    assert remove_snapshots(index_path, keep=2) == []
    assert remove_snapshots(index_path, keep=1) == [second]
    assert [each.snapshot_id for each in list_snapshots(index_path)] == [first]


def test_nothing_is_changed_while_a_build_runs(build: Build, index_path: Path) -> None:
    build("fog")
    with building(index_path), pytest.raises(BuildError, match="another build of index 'docs' is running"):
        roll_back(index_path)


@pytest.mark.parametrize("name", ["snapshot.tar", "snapshot.tar.gz"])
def test_an_archive_brings_a_snapshot_to_another_index(
    build: Build, index_path: Path, tmp_path: Path, index_models: IndexModels, name: str
) -> None:
    snapshot_id, encoder = build("fog"), index_models.dual_encoder
    export_snapshot(index_path, tmp_path / name)
    assert import_snapshot(tmp_path / name, tmp_path / "other").snapshot_id == snapshot_id
    opened = Snapshot.open(tmp_path / "other", encoder_fingerprint=encoder.fingerprint, dimension=encoder.dimension)
    assert opened.search_bm25("fog", 1).rows.tolist() == [0]
    opened.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["docs", "other", name]
    with pytest.raises(SnapshotError, match=f"index 'other' has snapshot {snapshot_id} already"):
        import_snapshot(tmp_path / name, tmp_path / "other")
    with pytest.raises(SnapshotError, match=f"{name} is there already"):
        export_snapshot(index_path, tmp_path / name)


def tar_of(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def test_a_bad_archive_is_one_sentence_and_the_index_stays_as_it_was(
    build: Build, index_path: Path, tmp_path: Path
) -> None:
    snapshot_id = build("fog")
    folder = index_path / "snapshots" / snapshot_id
    manifest = json.loads((folder / "manifest.json").read_bytes())
    whole = {"manifest.json": (folder / "manifest.json").read_bytes()} | {
        name: (folder / name).read_bytes() for name in manifest["files"]
    }
    cut = tmp_path / "cut.tar"
    cut.write_bytes(tar_of(tmp_path / "whole.tar", whole).read_bytes()[:30_000])
    (tmp_path / "text.tar").write_text("no archive")
    away = json.dumps(manifest | {"snapshot_id": "../../away"}).encode()
    other = json.dumps(manifest | {"format_version": 99}).encode()
    files = manifest["files"] | {"../../../away": {"n_bytes": 1, "sha256": "0" * 64}}
    out = json.dumps(manifest | {"files": files}).encode()
    bad = {
        tmp_path / "text.tar": "it is no tar archive, or damaged",
        cut: "it is no tar archive, or damaged|is missing|has .* bytes",
        tmp_path / "none.tar": "No such file",
        tar_of(tmp_path / "1.tar", {"a": b""}): "does not begin with manifest.json",
        tar_of(tmp_path / "2.tar", whole | {"../away": b"x"}): "holds '../away', which its manifest does not name",
        tar_of(tmp_path / "3.tar", whole | {"tokens.bin": b"x"}): "tokens.bin has 1 bytes",
        tar_of(tmp_path / "4.tar", whole | {"manifest.json": away}): "snapshot_id",
        tar_of(tmp_path / "5.tar", whole | {"manifest.json": other}): "has format version 99",
        tar_of(tmp_path / "6.tar", {name: whole[name] for name in list(whole)[:-1]}): "is missing",
        tar_of(tmp_path / "7.tar", {"manifest.json": out, "../../../away": b"x"}): "away",
    }
    for archive, reason in bad.items():
        with pytest.raises(IndexerError, match=reason):
            import_snapshot(archive, tmp_path / "other")
        assert not (tmp_path / "other" / "current").is_symlink()
        assert list((tmp_path / "other" / "snapshots").iterdir()) == []
    assert not (tmp_path / "away").exists()


def test_an_index_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    for act in (list_snapshots, verify_snapshot, roll_back):
        with pytest.raises(SnapshotError, match="there is no index 'none'"):
            act(tmp_path / "none")
    assert not (tmp_path / "none").exists()
