import os
import shutil
from pathlib import Path

import pytest

from indexer.documents import Skipped
from indexer.errors import SourceError
from indexer.files import Entry, files_below


def _names(folder: Path) -> list[str]:
    return [entry.name for entry in files_below(folder) if isinstance(entry, Entry)]


def _skipped(folder: Path) -> list[tuple[str, str, str]]:
    found = (each for each in files_below(folder) if isinstance(each, Skipped))
    return [(Path(each.file).name, each.kind, each.reason) for each in found]


def test_files_come_sorted_at_every_depth_without_hidden_ones(tmp_path: Path) -> None:
    for name in ("b/c/z.txt", "b/a.txt", "a/x.txt", "y.txt", ".git/x.txt", "b/.hidden.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert _names(tmp_path) == ["y.txt", "a/x.txt", "b/a.txt", "b/c/z.txt"]


def test_loops_of_links_end_and_links_to_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "real.txt").touch()
    (tmp_path / "a" / "up").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "one").symlink_to(tmp_path / "two")
    (tmp_path / "two").symlink_to(tmp_path / "one")
    (tmp_path / "broken.txt").symlink_to(tmp_path / "missing")
    (tmp_path / "good.txt").symlink_to(tmp_path / "a" / "real.txt")
    assert _names(tmp_path) == ["good.txt", "a/real.txt"]
    assert _skipped(tmp_path) == [
        ("broken.txt", "unreadable", "is a link that leads nowhere"),
        ("one", "unreadable", "is a link that leads nowhere"),
        ("two", "unreadable", "is a link that leads nowhere"),
        ("up", "link", "is a link to a folder, which is not followed"),
    ]


def test_what_is_no_regular_file_is_of_another_kind(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.txt")
    assert _skipped(tmp_path) == [("pipe.txt", "other-kind", "is no regular file")]


def test_files_and_folders_that_vanish_meanwhile_are_told(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt", "c/d.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    entries = files_below(tmp_path)
    assert isinstance(next(entries), Entry)
    (tmp_path / "b.txt").unlink()
    shutil.rmtree(tmp_path / "c")
    rest = [(each.kind, each.reason) for each in entries if isinstance(each, Skipped)]
    assert rest == [
        ("unreadable", "vanished before it was read"),
        ("unreadable", "cannot be read: No such file or directory"),
    ]


def test_a_folder_that_cannot_be_listed_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="missing cannot be read: No such file or directory"):
        list(files_below(tmp_path / "missing"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_below_without_permission_is_told(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir(mode=0)
    assert _skipped(tmp_path) == [("a", "unreadable", "cannot be read: Permission denied")]
