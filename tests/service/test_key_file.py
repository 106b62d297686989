"""The file of keys: whole at any moment, private, and one sentence where it is damaged."""

import json
import stat
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from service.key_file import KeyFile, KeyFileError
from service.keys import ApiKey, Limits, new_key
from service.scopes import KeyScope


def key(name: str) -> ApiKey:
    return new_key(name, [KeyScope.SEARCH], limits=Limits(concurrent=3))[1]


def add(file: KeyFile, *keys: ApiKey) -> None:
    with file.changed() as known:
        known += keys


def test_keys_come_back_as_they_were_written_and_only_their_owner_may_read_them(tmp_path: Path) -> None:
    file = KeyFile(tmp_path)
    assert file.read() == []
    first, second = key("web"), key("ops")
    add(file, first)
    add(file, second)
    assert file.read() == [first, second]
    for path in (tmp_path / ".keys.json", tmp_path / ".keys.lock"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert {path.name for path in tmp_path.iterdir()} == {".keys.json", ".keys.lock"}


def test_what_fails_changes_nothing(tmp_path: Path) -> None:
    file = KeyFile(tmp_path)
    add(file, key("web"))
    before = file.path.read_bytes()
    with suppress(ZeroDivisionError), file.changed() as keys:
        keys.clear()
        raise ZeroDivisionError
    with pytest.raises(ValueError, match="two keys have one name"):
        add(file, key("web"))
    assert file.path.read_bytes() == before


def test_what_a_killed_process_left_half_written_is_in_nobody_s_way(tmp_path: Path) -> None:
    file = KeyFile(tmp_path)
    (tmp_path / ".keys.new").write_text('{"format": 1, "ke')
    add(file, key("web"))
    assert [each.name for each in file.read()] == ["web"]


def test_many_who_change_it_at_once_lose_nothing(tmp_path: Path) -> None:
    names = [f"key-{i}" for i in range(24)]
    threads = [threading.Thread(target=lambda name: add(KeyFile(tmp_path), key(name)), args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(each.name for each in KeyFile(tmp_path).read()) == sorted(names)


def test_its_stamp_changes_with_it(tmp_path: Path) -> None:
    file = KeyFile(tmp_path)
    stamps = [file.stamp()]
    for name in ("web", "ops"):
        add(file, key(name))
        stamps.append(file.stamp())
    assert len(set(stamps)) == 3
    assert file.stamp() == stamps[-1]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '{"format": 2, "keys": []}',
        '{"format": 1}',
        '{"format": 1, "keys": [{"key_id": "SECRET"}]}',
        "\udcff",
    ],
)
def test_a_damaged_file_is_one_sentence_that_names_it_and_quotes_nothing(tmp_path: Path, content: str) -> None:
    file = KeyFile(tmp_path)
    file.path.write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(KeyFileError, match=r"^The file of API keys .*\.keys\.json is damaged \(.*\): .*\.$") as fault:
        file.read()
    assert "SECRET" not in str(fault.value)
    with pytest.raises(KeyFileError):
        add(file, key("web"))
    assert file.path.read_bytes() == content.encode(errors="surrogateescape")


def test_two_keys_of_one_id_are_damage(tmp_path: Path) -> None:
    file = KeyFile(tmp_path)
    add(file, key("web"))
    content = json.loads(file.path.read_text())
    content["keys"].append(content["keys"][0] | {"name": "other"})
    file.path.write_text(json.dumps(content))
    with pytest.raises(KeyFileError, match="two keys have one name or one id"):
        file.read()


def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / ".keys.json").mkdir()
    with pytest.raises(KeyFileError, match=r"cannot be read: Is a directory\.$"):
        KeyFile(tmp_path).read()
