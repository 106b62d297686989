"""Who is let in: known keys in time, by either header; what changes in the file counts, a damaged file does not."""

import asyncio
import gc
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import Headers

from service import keys
from service.access import Access, open_access
from service.extras import StartupError
from service.key_file import KeyFile, KeyFileError
from service.keys import Limits, new_key
from service.metrics import Metrics
from service.problems import KeyAtLimit, KeyMissing, KeyRefused, ScopeMissing
from service.scopes import KeyScope
from service.settings import Settings

from .keyed import add_key, at, bearer, revoke
from .test_metrics import exposed


@dataclass
class Clock:
    """A clock that the tests turn."""

    now: float = 1_000_000_000.0

    def __call__(self) -> float:
        return self.now


def access_of(folder: Path, *, mode: Literal["auto", "on", "off"] = "on", clock: Clock | None = None) -> Access:
    return Access(KeyFile(folder), mode=mode, metrics=Metrics(), clock=clock if clock is not None else Clock())


def name_of(access: Access, **headers: str) -> str:
    return access.holder(Headers({name.replace("_", "-"): value for name, value in headers.items()})).key.name


def refusal(access: Access, text: str) -> str:
    with pytest.raises(KeyRefused) as refused:
        access.holder(Headers(bearer(text)))
    assert refused.value.detail is not None
    return refused.value.detail


def test_a_key_is_taken_from_either_header_and_in_any_spelling_of_bearer(tmp_path: Path) -> None:
    text = add_key(tmp_path, "web")
    access = access_of(tmp_path)
    assert name_of(access, authorization=f"Bearer {text}") == "web"
    assert name_of(access, authorization=f"bearer   {text} ") == "web"
    assert name_of(access, x_api_key=text) == "web"
    assert name_of(access, x_api_key=text, authorization=f"Bearer {text}") == "web"
    assert name_of(access, x_api_key=text, authorization="Basic dXNlcjpwYXNz") == "web"


@pytest.mark.parametrize(
    "headers",
    [{}, {"authorization": ""}, {"authorization": "Bearer"}, {"authorization": "Bearer "}, {"x-api-key": " "},
     {"authorization": "Basic dXNlcjpwYXNz"}, {"cookie": "key=KEY"}, {"authorization": "KEY"}],
)  # fmt: skip
def test_without_a_key_the_answer_says_how_to_send_one(tmp_path: Path, headers: dict[str, str]) -> None:
    text = add_key(tmp_path, "web")
    with pytest.raises(KeyMissing, match="Authorization: Bearer KEY") as missing:
        access_of(tmp_path).holder(Headers({name: value.replace("KEY", text) for name, value in headers.items()}))
    assert missing.value.headers == {"WWW-Authenticate": 'Bearer realm="tercet"'}


def test_two_different_keys_are_none(tmp_path: Path) -> None:
    first, second = add_key(tmp_path, "web"), add_key(tmp_path, "ops")
    access = access_of(tmp_path)
    with pytest.raises(KeyRefused, match="Several different keys"):
        access.holder(Headers(bearer(first) | {"x-api-key": second}))
    lines = [(b"authorization", f"Bearer {text}".encode()) for text in (first, second)]
    with pytest.raises(KeyRefused, match="Several different keys"):
        access.holder(Headers(raw=lines))


def test_a_typo_is_told_from_an_unknown_key_but_a_wrong_id_not_from_a_wrong_secret(tmp_path: Path) -> None:
    text = add_key(tmp_path, "web")
    access = access_of(tmp_path)
    unknown_id, key = new_key("other", [KeyScope.SEARCH], limits=Limits())
    wrong_secret = same_id_as(text)
    assert key.key_id != text[7:15]
    assert "mistyped" in refusal(access, text[:-1])
    assert refusal(access, unknown_id) == refusal(access, wrong_secret)
    assert "id" not in refusal(access, unknown_id).split()


def same_id_as(text: str) -> str:
    """Return a well-formed key with the id of another."""
    unchecked = text[:16] + new_key("x", [KeyScope.SEARCH], limits=Limits())[0][16:59]
    return unchecked + keys._checksum(unchecked)


def calls(access: Access, text: str) -> list[str]:
    """Return the names of the functions in C that a refusal calls, in order."""
    called: list[str] = []
    gc.disable()  # a collection in between calls what others hung onto it
    sys.setprofile(lambda frame, event, function: called.append(function.__name__) if event == "c_call" else None)
    try:
        access.holder(Headers(bearer(text)))
    except KeyRefused:
        pass
    finally:
        sys.setprofile(None)
        gc.enable()
    return called


def test_an_unknown_id_costs_what_a_wrong_secret_costs(tmp_path: Path) -> None:
    text = add_key(tmp_path, "web")
    access = access_of(tmp_path)
    unknown = calls(access, new_key("other", [KeyScope.SEARCH], limits=Limits())[0])
    assert unknown == calls(access, same_id_as(text))
    assert [name for name in unknown if "digest" in name] == ["hmac_digest", "compare_digest"]


@given(st.binary(max_size=90))
def test_no_bytes_in_a_header_are_a_fault_of_ours(value: bytes) -> None:
    access = Access(KeyFile(Path("nowhere")), mode="on", metrics=Metrics(), clock=Clock())
    for lines in ([(b"authorization", b"Bearer " + value)], [(b"x-api-key", value)], [(b"authorization", value)]):
        with pytest.raises((KeyMissing, KeyRefused)):
            access.holder(Headers(raw=lines))


def test_a_key_is_refused_from_its_last_moment_on(tmp_path: Path) -> None:
    clock = Clock()
    text = add_key(tmp_path, "web", expires_at=at(clock.now + 60))
    access = access_of(tmp_path, clock=clock)
    clock.now += 59.9
    assert name_of(access, x_api_key=text) == "web"
    clock.now += 0.1
    assert refusal(access, text) == "This key has expired."


def test_a_rate_does_not_go_by_the_clock_that_an_operator_may_set(tmp_path: Path) -> None:
    clock = Clock()
    text = add_key(tmp_path, "web", limits=Limits(requests_per_minute=2))
    access = access_of(tmp_path, clock=clock)
    holder = access.holder(Headers(bearer(text)))
    for _ in range(2):
        access.enter(holder, KeyScope.SEARCH)
    for days in (1, -2):
        clock.now += 86_400 * days
        with pytest.raises(KeyAtLimit):
            access.enter(holder, KeyScope.SEARCH)


def test_a_scope_opens_its_routes_and_admin_all(tmp_path: Path) -> None:
    texts = {scope: add_key(tmp_path, scope.value, scope) for scope in KeyScope}
    access = access_of(tmp_path)
    for scope, text in texts.items():
        holder = access.holder(Headers(bearer(text)))
        for needed in KeyScope:
            if scope in (needed, KeyScope.ADMIN):
                access.enter(holder, needed)
            else:
                with pytest.raises(ScopeMissing, match=f"`{needed}`") as missing:
                    access.enter(holder, needed)
                assert f'error="insufficient_scope", scope="{needed}"' in missing.value.headers["WWW-Authenticate"]
        access.enter(holder, "any key")


def look(access: Access) -> None:
    asyncio.run(access.look())


def test_keys_that_are_made_and_revoked_count_without_a_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    first = add_key(tmp_path, "web")
    access = access_of(tmp_path)
    second = add_key(tmp_path, "ops")
    assert "not known" in refusal(access, second)
    look(access)
    assert name_of(access, x_api_key=second) == "ops"
    revoke(tmp_path, ["web"])
    look(access)
    assert "revoked" in refusal(access, first)
    assert name_of(access, x_api_key=second) == "ops"
    look(access)
    assert [record.getMessage() for record in caplog.records if record.name == "service.access"] == [
        "keys taken over"
    ] * 2


def damage(folder: Path) -> None:
    (folder / ".keys.json").write_text('{"format": 1, "keys": [')


def deny(folder: Path) -> None:
    (folder / ".keys.json").unlink()
    (folder / ".keys.json").mkdir()


@pytest.mark.parametrize("harm", [damage, deny])
def test_of_a_damaged_file_nothing_is_taken_over_and_the_log_says_so_once(
    tmp_path: Path, harm: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    text = add_key(tmp_path, "web")
    whole = (tmp_path / ".keys.json").read_bytes()
    access = access_of(tmp_path)
    harm(tmp_path)
    for _ in range(3):
        look(access)
    assert access.is_required
    assert name_of(access, x_api_key=text) == "web"
    [record] = [record for record in caplog.records if record.name == "service.access"]
    assert (record.levelno, record.getMessage()) == (logging.ERROR, "keys refused")
    assert "The file of API keys" in vars(record)["reason"]
    assert exposed(access._metrics)["tercet_key_file_damaged"][()] == 1
    if harm is deny:
        (tmp_path / ".keys.json").rmdir()
    (tmp_path / ".keys.json").write_bytes(whole)
    revoke(tmp_path, ["web"])
    look(access)
    assert "revoked" in refusal(access, text)
    assert exposed(access._metrics)["tercet_key_file_damaged"][()] == 0


def test_a_damaged_file_stops_the_start(tmp_path: Path) -> None:
    damage(tmp_path)
    for mode in ("auto", "on", "off"):
        with pytest.raises(KeyFileError, match=r"is damaged"):
            open_access(Settings(data_path=tmp_path, auth=mode), metrics=Metrics())


def test_a_file_that_is_removed_leaves_no_key_and_opens_nothing(tmp_path: Path) -> None:
    text = add_key(tmp_path, "web")
    access = access_of(tmp_path, mode="auto")
    (tmp_path / ".keys.json").unlink()
    look(access)
    assert access.is_required
    assert "not known" in refusal(access, text)


def test_the_first_key_closes_a_running_service_and_the_last_that_goes_does_not_open_it(tmp_path: Path) -> None:
    access = access_of(tmp_path, mode="auto")
    assert not access.is_required
    add_key(tmp_path, "web")
    look(access)
    assert access.is_required
    revoke(tmp_path, ["web"])
    look(access)
    assert (access.n_keys, access.is_required) == (0, True)


def test_a_service_that_shall_ask_for_no_key_never_does(tmp_path: Path) -> None:
    add_key(tmp_path, "web")
    access = access_of(tmp_path, mode="off")
    look(access)
    assert not access.is_required


def test_what_a_key_has_used_stays_when_others_change(tmp_path: Path) -> None:
    text = add_key(tmp_path, "web", limits=Limits(requests_per_minute=1))
    access = access_of(tmp_path)
    access.enter(access.holder(Headers(bearer(text))), KeyScope.SEARCH)
    add_key(tmp_path, "ops")
    look(access)
    with pytest.raises(KeyAtLimit):
        access.enter(access.holder(Headers(bearer(text))), KeyScope.SEARCH)


def test_requests_are_counted_by_key_for_keys_that_there_are(tmp_path: Path) -> None:
    text = add_key(tmp_path, "web", limits=Limits(requests_per_minute=1))
    access = access_of(tmp_path)
    holder = access.holder(Headers(bearer(text)))
    for needed, problem in ((KeyScope.INDEX, ScopeMissing), (KeyScope.SEARCH, None), (KeyScope.SEARCH, KeyAtLimit)):
        if problem is None:
            access.enter(holder, needed)
        else:
            with pytest.raises(problem):
                access.enter(holder, needed)
    assert exposed(access._metrics)["tercet_key_requests_total"] == {
        (("key", "web"), ("outcome", outcome)): 1 for outcome in ("admitted", "scope_missing", "at_limit")
    }
    revoke(tmp_path, ["web"])
    add_key(tmp_path, "ops")
    look(access)
    assert {dict(labels)["key"] for labels in exposed(access._metrics)["tercet_key_requests_total"]} == {"ops"}


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_beyond_loopback_a_service_without_a_key_does_not_start_and_says_what_to_do(tmp_path: Path, host: str) -> None:
    for auth in ("auto", "on"):
        with pytest.raises(StartupError) as refused:
            open_access(Settings(data_path=tmp_path, host=host, auth=auth), metrics=Metrics())
        sentence = str(refused.value)
        assert sentence.startswith(f"Other machines can reach {host}, and there is no API key in {tmp_path}: ")
        assert "`tercet keys create --name NAME --scope search`" in sentence
        assert "TERCET_AUTH=off" in sentence
    assert not open_access(Settings(data_path=tmp_path, host=host, auth="off"), metrics=Metrics()).is_required
    add_key(tmp_path, "web")
    assert open_access(Settings(data_path=tmp_path, host=host), metrics=Metrics()).is_required


def test_on_loopback_keys_are_asked_for_where_there_are_any(tmp_path: Path) -> None:
    for host in ("127.0.0.1", "::1", "localhost"):
        assert not open_access(Settings(data_path=tmp_path, host=host), metrics=Metrics()).is_required
    with pytest.raises(StartupError, match=r"^TERCET_AUTH is on, and there is no API key in "):
        open_access(Settings(data_path=tmp_path, auth="on"), metrics=Metrics())
    add_key(tmp_path, "web")
    assert open_access(Settings(data_path=tmp_path), metrics=Metrics()).is_required
