"""Listing, verifying, rolling back and removing snapshots; tests/indexer/test_archives.py has the rest."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from indexer.build import build_snapshot
from indexer.documents import Document
from indexer.errors import BuildError, SnapshotError
from indexer.publish import became_current, building, current_snapshot
from indexer.recipe import BuildSettings, IndexModels
from indexer.snapshot import Snapshot
from indexer.snapshots import (
    MadeCurrent,
    export_snapshot,
    import_snapshot,
    list_snapshots,
    remove_snapshots,
    verify_snapshot,
)
from indexer.snapshots import roll_back as roll_back_for

Build = Callable[[str], str]

FINGERPRINT = "e" * 64


def roll_back(index_path: Path, snapshot_id: str | None = None, encoder: str = FINGERPRINT) -> MadeCurrent:
    return roll_back_for(index_path, snapshot_id, encoder_fingerprint=encoder)


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


def test_rolling_back_goes_back_step_by_step_and_never_to_what_was_gone_back_from(
    index_path: Path, index_models: IndexModels
) -> None:
    def build(text: str) -> str:
        settings = BuildSettings(keep=9)
        documents = [Document("a", text)]
        return build_snapshot(documents, index_path=index_path, models=index_models, settings=settings).snapshot_id

    one, two, three = build("fog"), build("drum"), build("ferry")
    gone_back = roll_back(index_path)
    assert (gone_back.manifest.snapshot_id, gone_back.before) == (two, three)
    four = build("ticket")
    assert {each.snapshot_id for each in list_snapshots(index_path) if each.is_before} == {two}
    assert [roll_back(index_path).manifest.snapshot_id for _ in range(2)] == [two, one]
    assert current_snapshot(index_path) == index_path / "snapshots" / one
    named = ", ".join(sorted([two, three, four]))
    with pytest.raises(SnapshotError, match=f"to go back to: .* none was current before {one}; name one of {named}"):
        roll_back(index_path)
    assert roll_back(index_path, three).before == one
    with pytest.raises(SnapshotError, match=r"index 'docs' has no snapshot '\.\./docs'"):
        roll_back(index_path, "../docs")


def test_after_an_import_of_an_older_snapshot_one_goes_back_to_what_was_current(
    build: Build, index_path: Path, tmp_path: Path
) -> None:
    change_manifest(index_path / "snapshots" / build("fog"), created_at="2020-01-01T00:00:00Z")
    export_snapshot(index_path, tmp_path / "old.tar")
    index_path.rename(tmp_path / "away")
    newer = build("drum")
    imported = import_snapshot(tmp_path / "old.tar", index_path, encoder_fingerprint=FINGERPRINT)
    assert imported.before == newer
    assert roll_back(index_path).manifest.snapshot_id == newer


def test_an_index_without_a_history_goes_back_by_age(build: Build, index_path: Path) -> None:
    first, second = build("fog"), build("drum")
    for content in (None, b"", b"\xff\x00 none-of-them", f"{second}\n{first}\n".encode()):
        (index_path / "history").unlink(missing_ok=True)
        if content is not None:
            (index_path / "history").write_bytes(content)
        listed = {each.snapshot_id: each.is_before for each in list_snapshots(index_path)}
        assert listed == {first: content is None, second: False}
    (index_path / "history").unlink()
    assert roll_back(index_path).manifest.snapshot_id == first


def test_a_rename_that_never_came_counts_for_nothing(build: Build, index_path: Path) -> None:
    """A machine that lost its power between history and link has the snapshot before, and what was before that."""
    first, second = build("fog"), build("drum")
    with (index_path / "history").open("a") as file:
        file.write("20990101T000000Z-lost\n")
    assert became_current(index_path) == [first, second]
    assert roll_back(index_path).manifest.snapshot_id == first


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


def test_what_is_no_snapshot_takes_no_place_and_stays(build: Build, index_path: Path) -> None:
    snapshots = index_path / "snapshots"
    first = build("fog")
    (snapshots / "notes.txt").write_text("mine")
    (snapshots / "nowhere").symlink_to("gone")
    (snapshots / "lost+found").mkdir(mode=0)
    (snapshots / "elsewhere").symlink_to(first)
    second = build("drum")
    third = build("ferry")
    assert sorted(each.name for each in snapshots.iterdir()) == sorted(
        [second, third, "notes.txt", "nowhere", "lost+found", "elsewhere"]
    )
    assert [each.snapshot_id for each in list_snapshots(index_path) if each.fault is None] == [third, second]
    assert roll_back(index_path).manifest.snapshot_id == second


def test_nothing_is_changed_while_a_build_runs(build: Build, index_path: Path) -> None:
    build("fog")
    with building(index_path), pytest.raises(BuildError, match="another build of index 'docs' is running"):
        roll_back(index_path)


def test_an_index_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    for act in (list_snapshots, verify_snapshot, roll_back):
        with pytest.raises(SnapshotError, match="there is no index 'none'"):
            act(tmp_path / "none")
    assert not (tmp_path / "none").exists()


def change_manifest(folder: Path, **changes: object) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | changes))


def test_what_does_not_open_is_not_intact_and_never_rolled_back_to(build: Build, index_path: Path) -> None:
    first, _ = build("fog"), build("drum")
    folder = index_path / "snapshots" / first
    whole = json.loads((folder / "manifest.json").read_bytes())
    wrong: list[tuple[dict[str, object], str]] = [
        ({"files": {}}, "files: bm25/posting_counts.npy is missing"),
        ({"n_documents": 7}, r"documents\.sqlite holds 2 documents; the manifest says 7"),
        ({"n_documents": 2**31}, "n_documents: Input should be less than"),
        ({"n_passages": 7}, r"documents\.sqlite holds 2 passages; the manifest says 7"),
        ({"bm25": whole["bm25"] | {"n_terms": 7}}, "bm25 holds 2 terms; the manifest says 7"),
        (
            {"encoder": whole["encoder"] | {"dimension": 768}},
            r"dense\.faiss holds 32 dimensions; the manifest says 768",
        ),
        ({"bm25": whole["bm25"] | {"analyzer": "klingon"}}, "with the analyzer 'klingon', which this Tercet does not"),
        ({"snapshot_id": "other"}, "holds the snapshot 'other'; a snapshot's folder has its name"),
    ]
    for changes, reason in wrong:
        change_manifest(folder, **(whole | changes))
        for act in (verify_snapshot, roll_back):
            with pytest.raises(SnapshotError, match=reason):
                act(index_path, first)
    change_manifest(folder, **whole)
    assert verify_snapshot(index_path, first).snapshot_id == first


def test_a_snapshot_of_another_encoder_is_intact_but_not_rolled_back_to(build: Build, index_path: Path) -> None:
    first, second = build("fog"), build("drum")
    assert verify_snapshot(index_path, first).snapshot_id == first
    with pytest.raises(
        SnapshotError, match=r"built with the encoder 'hashed words'.* encoder has fingerprint f{12}: con"
    ):
        roll_back(index_path, first, "f" * 64)
    assert current_snapshot(index_path) == index_path / "snapshots" / second


@pytest.mark.parametrize(
    ("created_at", "is_fit"),
    [
        ("0001-01-01T00:00:00", False),
        ("0001-01-01T00:00:00Z", False),
        ("2026-01-01T00:00:00", False),
        ("9999-12-31T23:59:59-23:59", False),
        ("2026-01-01T01:30:00+01:30", True),
    ],
)
def test_the_time_of_a_snapshot_has_a_zone_and_bounds_and_is_told_in_utc(
    build: Build, index_path: Path, created_at: str, is_fit: bool
) -> None:
    change_manifest(index_path / "snapshots" / build("fog"), created_at=created_at)
    [listed] = list_snapshots(index_path)
    if is_fit:
        assert listed.created_at is not None
        assert listed.created_at.isoformat() == "2026-01-01T00:00:00+00:00"
    else:
        assert (listed.created_at, "created_at: Input should" in str(listed.fault)) == (None, True)
