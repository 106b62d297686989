"""`tercet keys` as an operator runs it."""

import json
import re
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import typer

from service.cli_keys import expiry
from service.key_file import MOST_KEYS, KeyFile
from service.keys import Limits, id_in, new_key
from service.scopes import KeyScope
from tests.service.commands import Tercet, tercet_with
from tests.service.conftest import TinyModels

NOW = datetime(2031, 3, 1, 12, 30, 15, 999, tzinfo=UTC)


@pytest.fixture
def tercet(tiny_models: TinyModels, tmp_path: Path) -> Tercet:
    return tercet_with(tiny_models, tmp_path / "data")


def test_a_key_is_printed_once_listed_and_revoked(tercet: Tercet, tmp_path: Path) -> None:
    limits = ["--requests-per-minute", "60", "--concurrent", "2"]
    made = tercet(
        "keys", "create", "--name", "web", "--scope", "search", "--scope", "index", *limits, "--expires", "90d"
    )
    assert made.code == 0
    text = made.stdout.removesuffix("\n")
    key_id = id_in(text)
    assert key_id is not None
    assert re.fullmatch(
        rf"Key 'web' \({key_id}\) for search, index, expires: 20[0-9-]+ [0-9:]+ UTC. It is shown only now:\n"
        r"From now on services over this data folder want a key for each request, .* TERCET_AUTH=off asks for none.\n",
        made.stderr,
    )
    assert tercet("keys", "create", "--name", "ops", "--scope", "admin").code == 0
    kept = tmp_path / "data" / ".keys.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert text[16:] not in kept.read_text()
    shown = tercet("keys", "ls").stdout.splitlines()
    assert shown[0].split() == ["name", "id", "scopes", "created", "expires", "a", "minute", "at", "once"]
    assert re.fullmatch(rf"web +{key_id} +search, index +[0-9-]+ +[0-9-]+ [0-9:]+ UTC +60 +2", shown[1])
    assert re.fullmatch(r"ops +[0-9a-z]{8} +admin +[0-9-]+ +never *", shown[2])
    listed = tercet("keys", "ls", "--json").result["keys"]
    assert [key["name"] for key in listed] == ["web", "ops"]
    assert not {"salt", "hash"} & set(listed[0])
    revoked = tercet("keys", "revoke", key_id)
    assert revoked.stderr == f"Key 'web' ({key_id}) is revoked; a running service refuses it within seconds.\n"
    assert tercet("keys", "revoke", "ops").code == 0
    assert tercet("keys", "ls", "--json").result == {"keys": []}


def test_a_program_gets_the_key_as_json(tercet: Tercet) -> None:
    made = tercet("keys", "create", "--name", "web", "--scope", "search", "--json")
    assert id_in(made.result["key"]) == made.result["key_id"]
    assert made.result["expires_at"] is None


def test_what_cannot_be_done_is_one_sentence(tercet: Tercet, tmp_path: Path) -> None:
    assert tercet("keys", "revoke", "web").sentence.endswith("No such file or directory.")
    assert not (tmp_path / "data").exists()
    key_id = tercet("keys", "create", "--name", "web", "--scope", "search", "--json").result["key_id"]
    for name in ("web", key_id):
        taken = tercet("keys", "create", "--name", name, "--scope", "search")
        assert (taken.code, taken.sentence) == (1, f"There is a key {name!r} already.")
    assert tercet("keys", "revoke", "none").sentence == "There is no key 'none'; `tercet keys ls` lists them."
    (tmp_path / "data" / ".keys.json").write_text("{")
    for command in (["ls"], ["revoke", "web"], ["create", "--name", "ops", "--scope", "search"]):
        assert "is damaged" in tercet("keys", *command).sentence
    assert (tmp_path / "data" / ".keys.json").read_text() == "{"


def test_there_is_a_most_of_keys(tercet: Tercet, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with KeyFile(tmp_path / "data").changed() as keys:
        keys += [new_key(f"key-{i}", [KeyScope.SEARCH], limits=Limits())[1] for i in range(MOST_KEYS)]
    assert tercet("keys", "create", "--name", "web", "--scope", "search").sentence.startswith(
        "There are 1000 keys already"
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["create", "--name", "web"],
        ["create", "--scope", "search"],
        ["create", "--name", "web", "--scope", "everything"],
        ["create", "--name", "a b", "--scope", "search"],
        ["create", "--name", "../web", "--scope", "search"],
        ["create", "--name", "web", "--scope", "search", "--concurrent", "0"],
        ["create", "--name", "web", "--scope", "search", "--expires", "soon"],
        ["create", "--name", "web", "--scope", "search", "--expires", "2020-01-01"],
        ["revoke"],
    ],
)
def test_wrong_use_exits_with_2_and_makes_nothing(tercet: Tercet, tmp_path: Path, arguments: list[str]) -> None:
    done = tercet("keys", *arguments)
    assert (done.code, done.stdout) == (2, "")
    assert "Usage: tercet keys" in done.stderr
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("90d", NOW.replace(microsecond=0) + timedelta(days=90)),
        ("12h", NOW.replace(microsecond=0) + timedelta(hours=12)),
        ("2031-12-31", datetime(2031, 12, 31, tzinfo=UTC)),
        ("2031-03-01T12:31", datetime(2031, 3, 1, 12, 31, tzinfo=UTC)),
        ("2031-03-01T14:31+02:00", datetime(2031, 3, 1, 12, 31, tzinfo=UTC)),
    ],
)
def test_a_time_may_be_said_as_a_span_or_a_date(text: str, moment: datetime) -> None:
    assert expiry(text, NOW) == moment


@pytest.mark.parametrize(
    "text", ["", "90", "d", "-1d", "0d", "1.5d", "9999999d", "2031-02-30", "2031-03-01", "tomorrow", "1m"]
)
def test_what_is_no_time_to_come_is_wrong_use(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        expiry(text, NOW)


def test_a_service_beyond_loopback_without_a_key_says_what_to_do(tercet: Tercet, tmp_path: Path) -> None:
    for command in ("serve", "demo"):
        refused = tercet(command, "--host", "0.0.0.0", "--port", "0")
        assert refused.code == 1
        said = refused.stderr.splitlines()[-1]
        assert said.startswith("tercet: Other machines can reach 0.0.0.0, and there is no API key in ")
        assert "`tercet keys create" in said
        assert "TERCET_AUTH=off" in said
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / ".keys.json").write_text(json.dumps({"format": 7, "keys": []}))
    assert ".keys.json is damaged (format: " in tercet("serve", "--port", "0").stderr
