"""Exporting and importing snapshots: what an archive may hold, and what it may cost to find out."""

import gzip
import io
import json
import os
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from indexer.build import build_snapshot
from indexer.documents import Document
from indexer.errors import IndexerError, SnapshotError
from indexer.manifest import Manifest
from indexer.publish import current_snapshot
from indexer.recipe import IndexModels
from indexer.snapshot import Snapshot
from indexer.snapshots import export_snapshot, list_snapshots
from indexer.snapshots import import_snapshot as import_for

FINGERPRINT = "e" * 64


def import_snapshot(archive: Path, index_path: Path, encoder: str = FINGERPRINT) -> Manifest:
    return import_for(archive, index_path, encoder_fingerprint=encoder).manifest


@pytest.fixture(scope="module")
def index_path(tmp_path_factory: pytest.TempPathFactory, index_models: IndexModels) -> Path:
    path = tmp_path_factory.mktemp("data") / "docs"
    documents = [Document("a", "fog"), Document("b", "ferry")]
    build_snapshot(documents, index_path=path, models=index_models)
    return path


@pytest.fixture(scope="module")
def whole(index_path: Path) -> dict[str, bytes]:
    """Every member of a good archive, its manifest first."""
    folder = index_path / "current"
    names = json.loads((folder / "manifest.json").read_bytes())["files"]
    return {name: (folder / name).read_bytes() for name in ("manifest.json", *names)}


@pytest.mark.parametrize("name", ["snapshot.tar", "snapshot.tar.gz"])
def test_an_archive_brings_a_snapshot_to_another_index(index_path: Path, tmp_path: Path, name: str) -> None:
    exported = export_snapshot(index_path, tmp_path / name)
    assert import_snapshot(tmp_path / name, tmp_path / "other").snapshot_id == exported.snapshot_id
    opened = Snapshot.open(tmp_path / "other", encoder_fingerprint=FINGERPRINT, dimension=32)
    assert opened.search_bm25("fog", 1).rows.tolist() == [0]
    opened.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", name]
    with pytest.raises(SnapshotError, match=f"index 'other' has snapshot {exported.snapshot_id} already"):
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


Refuse = Callable[[Path, str], None]


@pytest.fixture
def refuse(tmp_path: Path) -> Refuse:
    """A claim: an archive is refused for a reason, in one sentence, and nothing is left of it."""

    def claim(archive: Path, reason: str) -> None:
        with pytest.raises(IndexerError, match=reason) as refusal:
            import_snapshot(archive, tmp_path / "index")
        assert "\n" not in str(refusal.value)
        assert current_snapshot(tmp_path / "index") is None
        assert list((tmp_path / "index" / "snapshots").iterdir()) == []

    return claim


def test_what_is_no_archive_is_one_sentence(whole: dict[str, bytes], tmp_path: Path, refuse: Refuse) -> None:
    (tmp_path / "text.tar").write_text("no archive")
    (tmp_path / "cut.tar").write_bytes(tar_of(tmp_path / "whole.tar", whole).read_bytes()[:30_000])
    refuse(tmp_path / "text.tar", "it is no tar archive, or damaged")
    refuse(tmp_path / "cut.tar", "it is no tar archive, or damaged|is missing|has .* bytes")
    refuse(tmp_path / "none.tar", "No such file")


def test_an_archive_holds_a_manifest_and_what_it_names_and_nothing_else(
    whole: dict[str, bytes], tmp_path: Path, refuse: Refuse
) -> None:
    bad: list[tuple[dict[str, bytes], str]] = [
        ({"a": b""}, "does not begin with manifest.json"),
        (whole | {"../away": b"x"}, r"holds '\.\./away', which its manifest does not name"),
        (whole | {"/tmp/away": b"x"}, "holds '/tmp/away', which its manifest does not name"),
        (whole | {"tokens.bin": b"x"}, r"holds 'tokens\.bin' of 1 bytes; its manifest says"),
        (whole | {"tokens.bin": bytes(len(whole["tokens.bin"]))}, r"tokens\.bin was altered"),
        ({name: whole[name] for name in list(whole)[:-1]}, "is missing"),
    ]
    for number, (files, reason) in enumerate(bad):
        refuse(tar_of(tmp_path / f"{number}.tar", files), reason)
    assert not (tmp_path / "away").exists()
    with tarfile.open(tar_of(tmp_path / "twice.tar", whole), "a") as tar:
        tar.addfile(tarfile.TarInfo("tokens.bin"))
    refuse(tmp_path / "twice.tar", r"holds 'tokens\.bin' twice")
    with tarfile.open(tmp_path / "link.tar", "w") as tar:
        tar.add(tar_of(tmp_path / "one.tar", {}), arcname="x")
        link = tarfile.TarInfo("manifest.json")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    refuse(tmp_path / "link.tar", "does not begin with manifest.json")


def test_a_manifest_is_not_believed(whole: dict[str, bytes], tmp_path: Path, refuse: Refuse) -> None:
    manifest = json.loads(whole["manifest.json"])

    def archive(content: bytes) -> Path:
        return tar_of(tmp_path / "bad.tar", whole | {"manifest.json": content})

    bad: list[tuple[dict[str, object], str]] = [
        ({"snapshot_id": "../../away"}, "snapshot_id"),
        ({"snapshot_id": "a" * 300}, "snapshot_id"),
        ({"format_version": 99}, "has format version 99"),
        ({"format_version": "\x1b[2J" + "A" * 1_000_000}, "has no format version"),
        ({"files": {}}, "files: .* is missing"),
        (
            {"files": manifest["files"] | {"../../evil": {"sha256": "0" * 64, "n_bytes": 1}}},
            "'../../evil' is no file of",
        ),
        ({"files": manifest["files"] | {"ann.faiss": {"sha256": "0" * 64, "n_bytes": 1}}}, "'ann.faiss' is no file of"),
        ({"dense": {"kind": "hnsw"}}, r"files: ann\.faiss is missing"),
        ({"n_documents": 10**30}, "n_documents"),
        ({"created_at": "0001-01-01T00:00:00"}, "created_at"),
        ({"encoder": manifest["encoder"] | {"dimension": 768}}, r"dense\.faiss holds 32 dimensions"),
        (
            {"encoder": manifest["encoder"] | {"fingerprint": "f" * 64}},
            "but the configured encoder has fingerprint eeee",
        ),
        ({"bm25": manifest["bm25"] | {"k1": -1}}, r"bm25\.k1"),
    ]
    for changes, reason in bad:
        refuse(archive(json.dumps(manifest | changes).encode()), reason)
    refuse(archive(b"[" * 200_000), "is not JSON: depth limit exceeded")
    refuse(archive(b'{"format_version": 2, "n_documents": ' + b"9" * 5_000 + b"}"), "is not JSON")
    refuse(archive(b"\xff\xfe\x00"), "is not JSON")


def test_a_snapshot_of_another_encoder_is_refused(index_path: Path, tmp_path: Path) -> None:
    export_snapshot(index_path, tmp_path / "snapshot.tar")
    with pytest.raises(SnapshotError, match="but the configured encoder has fingerprint ffffffffffff"):
        import_snapshot(tmp_path / "snapshot.tar", tmp_path / "other", "f" * 64)
    assert list_snapshots(tmp_path / "other") == []


@contextmanager
def small_files(most_bytes: int) -> Iterator[None]:
    """Let no file of this process grow beyond a size, and no memory be taken for a longer one."""
    import resource
    import signal

    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, handler)


def header(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    member = tarfile.TarInfo(name)
    member.size, member.type = size, kind
    return member.tobuf(tarfile.GNU_FORMAT)


def test_what_an_archive_says_too_much_is_not_unpacked(whole: dict[str, bytes], tmp_path: Path, refuse: Refuse) -> None:
    first = tar_of(tmp_path / "first.tar", {"manifest.json": whole["manifest.json"]}).read_bytes()
    first = first[: 512 + -(-len(whole["manifest.json"]) // 512) * 512]
    zeros = bytes(1 << 20)
    bombs = {
        "file.tar.gz": (first + header("dense.faiss", 1 << 36), r"holds 'dense\.faiss' of 68,719,476,736 bytes"),
        "manifest.tar.gz": (header("manifest.json", 1 << 36), "holds a manifest of 68,719,476,736 bytes"),
        "name.tar.gz": (header("x", 1 << 36, tarfile.GNUTYPE_LONGNAME), "a header says 68,719,476,736 bytes"),
        "pax.tar.gz": (first + header("x", 1 << 36, tarfile.XHDTYPE), "a header says 68,719,476,736 bytes"),
    }
    for name, (beginning, reason) in bombs.items():
        with gzip.open(tmp_path / name, "wb", compresslevel=1) as file:
            file.write(beginning)
            for _ in range(64):
                file.write(zeros)
        with small_files(4 << 20):
            refuse(tmp_path / name, reason)


def test_a_snapshot_that_does_not_fit_on_the_disk_is_not_unpacked(
    whole: dict[str, bytes], tmp_path: Path, refuse: Refuse
) -> None:
    manifest = json.loads(whole["manifest.json"])
    manifest["files"]["dense.faiss"]["n_bytes"] = 1 << 60
    archive = tar_of(tmp_path / "large.tar", {"manifest.json": json.dumps(manifest).encode()})
    refuse(archive, r"needs 1,152,921,[\d,]+ bytes for the snapshot in archive .*large\.tar; the disk of .* free")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_byte_of_an_archive_gives_more_than_a_sentence(
    data: st.DataObject, whole: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("flipped")
    content = bytearray(tar_of(folder / "bad.tar", whole).read_bytes())
    places = st.one_of(st.integers(0, 2047), st.integers(0, len(content) - 1))
    for place in data.draw(st.lists(places, min_size=1, max_size=6)):
        content[place] = data.draw(st.sampled_from([0, 0xFF, 0x80, ord("7"), ord("x"), ord("g"), ord("L"), ord("S")]))
    (folder / "bad.tar").write_bytes(content)
    with suppress(IndexerError):
        import_snapshot(folder / "bad.tar", folder / "index")
    assert not [name for name in os.listdir(folder) if name not in ("bad.tar", "index")]
