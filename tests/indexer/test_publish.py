import errno
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from indexer.build import build_snapshot
from indexer.documents import Document
from indexer.errors import BuildError
from indexer.publish import building, current_snapshot
from indexer.recipe import IndexModels
from indexer.snapshot import Snapshot

_ONE, _TWO, _THREE = ([Document("a", text)] for text in ("fog", "ferry", "drum"))


def _hang(index_path: Path, *, before: str) -> "subprocess.Popen[str]":
    """Start a process that builds and stops just before the named call of `indexer.publish.Path`'s methods."""
    program = f"""
import pathlib, sys, time
import indexer.publish as publish
def stop(*arguments, **options):
    print("there", flush=True)
    time.sleep(600)
with publish.building(pathlib.Path({str(index_path)!r})) as folder:
    (folder / "manifest.json").write_text("{{}}")
    publish.Path.{before} = stop
    publish.publish(folder, pathlib.Path({str(index_path)!r}), "killed")
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "there\n"
    return process


@pytest.mark.parametrize("before", ["rename", "symlink_to", "replace"])
def test_a_killed_build_is_never_seen_and_the_next_one_cleans_up(
    tmp_path: Path, index_models: IndexModels, before: str
) -> None:
    index_path = tmp_path / "docs"
    first = build_snapshot(_ONE, index_path=index_path, models=index_models)
    with _hang(index_path, before=before) as process:
        with pytest.raises(BuildError, match="another build of index 'docs' is running"):
            build_snapshot(_TWO, index_path=index_path, models=index_models)
        process.send_signal(signal.SIGKILL)
    assert current_snapshot(index_path) == first.path
    second = build_snapshot(_TWO, index_path=index_path, models=index_models)
    assert current_snapshot(index_path) == second.path
    assert sorted(path.name for path in (index_path / "snapshots").iterdir()) == sorted(
        [first.snapshot_id, second.snapshot_id]
    )
    assert sorted(path.name for path in index_path.iterdir()) == ["current", "history", "lock", "snapshots"]


def test_the_current_and_the_previous_snapshot_stay_and_so_does_one_in_use(
    tmp_path: Path, index_models: IndexModels
) -> None:
    index_path, encoder = tmp_path / "docs", index_models.dual_encoder
    build_snapshot(_ONE, index_path=index_path, models=index_models)
    held = Snapshot.open(index_path, encoder_fingerprint=encoder.fingerprint, dimension=encoder.dimension)
    ids = [
        build_snapshot(documents, index_path=index_path, models=index_models).snapshot_id
        for documents in (_TWO, _THREE)
    ]
    kept = {path.name for path in (index_path / "snapshots").iterdir()}
    assert kept == {held.snapshot_id, *ids}
    assert held.search_bm25("fog", 1).rows.tolist() == [0]
    held.close()
    ids.append(build_snapshot(_ONE, index_path=index_path, models=index_models).snapshot_id)
    assert {path.name for path in (index_path / "snapshots").iterdir()} == set(ids[-2:])


def test_the_same_content_again_in_the_same_second_gets_another_id(tmp_path: Path, index_models: IndexModels) -> None:
    built = [build_snapshot(each, index_path=tmp_path / "docs", models=index_models) for each in (_ONE, _TWO, _ONE)]
    assert len({each.snapshot_id for each in built}) == 3


def test_current_is_a_relative_link_so_that_the_folder_may_move(tmp_path: Path, index_models: IndexModels) -> None:
    build_snapshot(_ONE, index_path=tmp_path / "docs", models=index_models)
    (tmp_path / "docs").rename(tmp_path / "moved")
    encoder = index_models.dual_encoder
    Snapshot.open(tmp_path / "moved", encoder_fingerprint=encoder.fingerprint, dimension=encoder.dimension).close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_write_permission_is_one_sentence(tmp_path: Path, index_models: IndexModels) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(BuildError, match=r"cannot be written to .*: no permission to write"):
        build_snapshot(_ONE, index_path=tmp_path / "docs", models=index_models)
    tmp_path.chmod(0o700)


def test_a_path_that_cannot_be_a_folder_is_one_sentence(tmp_path: Path, index_models: IndexModels) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BuildError, match=r"index 'docs' cannot be written to .*: Not a directory"):
        build_snapshot(_ONE, index_path=tmp_path / "file" / "docs", models=index_models)


@pytest.mark.parametrize("limit", [1 << 12, 1 << 15, 1 << 17, 1 << 19, 1 << 21])
def test_a_full_disk_is_one_sentence_and_leaves_nothing(tmp_path: Path, index_models: IndexModels, limit: int) -> None:
    """A limit on the size of files stands for a full disk: at each of them another file of the build is refused."""
    documents = [Document(str(i), f"{i} " * 200) for i in range(4000)]
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, old[1]))
    try:
        with pytest.raises(BuildError, match="index 'docs' cannot be written to"):
            build_snapshot(documents, index_path=tmp_path / "docs", models=index_models)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, handler)
    assert list((tmp_path / "docs" / "snapshots").iterdir()) == []


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.ENOSPC, "no space is left, or a quota is used up"),
        (errno.EDQUOT, "no space is left, or a quota is used up"),
        (errno.EROFS, "no permission to write"),
        (errno.EACCES, "no permission to write"),
        (errno.EIO, os.strerror(errno.EIO)),
    ],
)
def test_what_the_disk_refuses_is_one_sentence(tmp_path: Path, number: int, reason: str) -> None:
    with pytest.raises(BuildError) as caught, building(tmp_path / "docs"):
        raise OSError(number, os.strerror(number))
    assert str(caught.value) == f"index 'docs' cannot be written to {tmp_path / 'docs'}: {reason}"


def test_an_error_of_the_build_itself_is_not_taken_for_the_disks(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), building(tmp_path / "docs"):
        _ = 1 / 0
