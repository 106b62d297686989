"""What names data on the command line."""

from pathlib import Path

import pytest

from models.training.records import Source
from service.commands.data_sources import distinct_names, parse_dataset, parse_source
from service.commands.faults import CommandError


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a few files and folders in the working directory."""
    for name in ("a", "co:lon/x", "ha#sh", "both#1:two"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("f", "f#3"):
        (tmp_path / name).write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "path", "limit"),
    [("f", "f", None), ("f#7", "f", 7), ("f#3", "f#3", None), ("f#3#2", "f#3", 2), ("ha#sh#1", "ha#sh", 1)],
)
def test_a_source_is_a_path_and_a_number(here: Path, text: str, path: str, limit: int | None) -> None:
    assert parse_source(text) == Source(Path(path), "", limit)


@pytest.mark.parametrize(
    ("text", "path", "split", "limit"),
    [
        ("a", "a", "dev", None),
        ("a:test", "a", "test", None),
        ("a#5", "a", "dev", 5),
        ("a:test#5", "a", "test", 5),
        ("co:lon/x", "co:lon/x", "dev", None),
        ("co:lon/x:test", "co:lon/x", "test", None),
        ("co:lon/x#5", "co:lon/x", "dev", 5),
        ("ha#sh", "ha#sh", "dev", None),
        ("ha#sh:test", "ha#sh", "test", None),
        ("ha#sh:test#5", "ha#sh", "test", 5),
        ("both#1:two:test#5", "both#1:two", "test", 5),
    ],
)
def test_a_data_set_is_a_folder_a_split_and_a_number(
    here: Path, text: str, path: str, split: str, limit: int | None
) -> None:
    assert parse_dataset(text, "dev") == Source(Path(path), split, limit)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("gone", "gone is not there"),
        ("gone#3", "gone is not there"),
        ("f#x", "f#x: what follows # is 'x', not a number of at least 1"),
        ("f#0", "what follows # is '0'"),
        ("f#", "what follows # is ''"),
        ("f#" + "9" * 5000, "not a number of at least 1"),
    ],
)
def test_a_source_that_is_none_is_refused(here: Path, text: str, reason: str) -> None:
    with pytest.raises(CommandError, match=reason):
        parse_source(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [("f", "f is no folder"), ("f:test", "f is no folder"), ("gone:test#3", "gone is not there"), ("a#x", "'x'")],
)
def test_a_data_set_that_is_none_is_refused(here: Path, text: str, reason: str) -> None:
    with pytest.raises(CommandError, match=reason):
        parse_dataset(text, "dev")


def test_names_are_as_long_as_it_takes_to_tell_them_apart() -> None:
    paths = [Path(each) for each in ("/a/x/set", "/b/x/set", "/c/set", "/d/other")]
    assert distinct_names(paths) == ["a/x/set", "b/x/set", "c/set", "other"]
    assert distinct_names([Path("/a/set")]) == ["set"]
    assert distinct_names([Path("/a/set"), Path("/a/set")]) == ["set", "set"]
    assert distinct_names([Path("/set"), Path("/a/set")]) == ["/set", "a/set"]
    assert distinct_names([]) == []
