"""A key's text is recognised whole or not at all, and its record knows it and no other."""

import re
import string
import zlib
from datetime import UTC, datetime

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import ValidationError

from service.keys import ApiKey, Limits, id_in, new_key
from service.scopes import KeyScope

TEXT, KEY = new_key("web", [KeyScope.SEARCH], limits=Limits())
DIGITS = string.digits + string.ascii_uppercase + string.ascii_lowercase


def test_a_key_has_a_prefix_an_id_and_256_random_bits() -> None:
    texts = {new_key("web", [KeyScope.SEARCH], limits=Limits())[0] for _ in range(200)}
    assert len(texts) == 200
    for text in texts:
        assert re.fullmatch(r"tercet_[0-9a-z]{8}_[0-9A-Za-z]{49}", text)
        assert id_in(text) == text[7:15]
    assert 62**43 > 2**256
    assert set("".join(text[16:59] for text in texts)) == set(DIGITS)  # 8,600 draws leave none of 62 out


def test_the_checksum_is_crc_32_in_base_62() -> None:
    value = 0
    for character in TEXT[-6:]:
        value = value * 62 + DIGITS.index(character)
    assert value == zlib.crc32(TEXT[:-6].encode())


def test_what_is_kept_holds_neither_the_key_nor_a_hash_that_two_keys_share() -> None:
    kept = KEY.model_dump_json()
    assert TEXT[16:] not in kept
    assert TEXT[16:59] not in kept
    again = KEY.model_copy(update={"salt": "00" * 16})
    assert KEY.is_of(TEXT)
    assert not again.is_of(TEXT)


def test_a_record_knows_its_key_and_no_other() -> None:
    other, record = new_key("web", [KeyScope.SEARCH], limits=Limits())
    assert record.is_of(other)
    assert not record.is_of(TEXT)
    assert not KEY.is_of(other)


def mutations() -> st.SearchStrategy[str]:
    place, character = st.integers(0, len(TEXT)), st.characters(max_codepoint=0x2FF)
    return st.one_of(
        st.builds(lambda i, c: TEXT[:i] + c + TEXT[i + 1 :], place, character),  # replace
        st.builds(lambda i, c: TEXT[:i] + c + TEXT[i:], place, character),  # insert
        st.builds(lambda i, j: TEXT[:i] + TEXT[j:], place, place),  # delete or repeat
        st.builds(lambda i: TEXT[:i] + TEXT[i:].swapcase(), place),
        st.builds(lambda i, j: TEXT[:i] + TEXT[i : i + j][::-1] + TEXT[i + j :], place, st.integers(2, 9)),
        st.text(alphabet=DIGITS + "_", min_size=49, max_size=49).map(lambda tail: TEXT[:16] + tail),
        st.text(max_size=80),
    )


@given(mutations())
def test_no_mutation_of_a_key_is_accepted(mutated: str) -> None:
    assume(mutated != TEXT)
    assert id_in(mutated) is None or not KEY.is_of(mutated)
    assert not KEY.is_of(mutated)


@given(st.integers(0, 64), st.sampled_from(DIGITS))
def test_one_mistyped_character_is_always_told_from_an_unknown_key(place: int, character: str) -> None:
    assume(TEXT[place] != character)
    assert id_in(TEXT[:place] + character + TEXT[place + 1 :]) is None


@given(st.integers(0, 63))
def test_two_exchanged_characters_are_too(place: int) -> None:
    assume(TEXT[place] != TEXT[place + 1])
    assert id_in(TEXT[:place] + TEXT[place + 1] + TEXT[place] + TEXT[place + 2 :]) is None


def test_a_key_is_over_from_its_last_moment_on() -> None:
    moment = datetime(2031, 1, 1, tzinfo=UTC)
    _, key = new_key("web", [KeyScope.SEARCH], limits=Limits(), expires_at=moment)
    assert [key.is_expired(moment.timestamp() + seconds) for seconds in (-1, 0, 1)] == [False, True, True]
    assert not KEY.is_expired(moment.timestamp() + 1e9)


@pytest.mark.parametrize(
    "change",
    [
        {"name": "a b"}, {"name": ""}, {"scopes": []}, {"scopes": ["everything"]}, {"salt": "00"}, {"hash": "0" * 63},
        {"key_id": "ABCDEFGH"}, {"created_at": "2031-01-01T00:00:00"}, {"limits": {"concurrent": 0}}, {"more": 1},
    ],
)  # fmt: skip
def test_a_record_that_was_altered_is_no_record(change: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ApiKey.model_validate(KEY.model_dump(mode="json") | change)
