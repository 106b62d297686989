"""Limits of a key, on a clock that the tests turn: as many as was said, and as soon as was said."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from service.key_limits import Usage
from service.keys import Limits
from service.problems import KeyAtLimit


def retry_after(usage: Usage, now: float) -> int:
    with pytest.raises(KeyAtLimit) as refusal:
        usage.enter(now)
    return int(refusal.value.headers["Retry-After"])


def test_a_minute_s_worth_may_come_at_once_and_then_one_by_one() -> None:
    """Three a minute: after three at 0 s the next is due at 20 s."""
    usage = Usage(Limits(requests_per_minute=3), now=0)
    for _ in range(3):
        usage.enter(0)
    assert retry_after(usage, 0) == 20
    assert retry_after(usage, 19.5) == 1
    usage.enter(20)
    assert retry_after(usage, 20) == 20


def test_what_is_not_used_is_kept_for_a_minute_and_no_longer() -> None:
    usage = Usage(Limits(requests_per_minute=2), now=0)
    for _ in range(2):
        usage.enter(3600)
    assert retry_after(usage, 3600) == 30


def test_the_headers_say_what_is_left_and_when_there_is_more() -> None:
    usage = Usage(Limits(requests_per_minute=60), now=0)
    usage.enter(0)
    assert usage.headers() == {"RateLimit-Policy": '"requests";q=60;w=60', "RateLimit": '"requests";r=59;t=1'}
    for _ in range(59):
        usage.enter(0)
    assert usage.headers()["RateLimit"] == '"requests";r=0;t=1'
    assert Usage(Limits(concurrent=1), now=0).headers() == {}


def test_so_many_run_at_once_and_one_more_when_one_has_ended() -> None:
    usage = Usage(Limits(requests_per_minute=100, concurrent=2), now=0)
    usage.enter(0)
    usage.enter(0)
    assert retry_after(usage, 0) == 1
    assert usage.headers()["RateLimit"].startswith('"requests";r=98;')  # who is refused has used nothing
    usage.leave()
    usage.enter(0)


def test_without_limits_nothing_is_refused() -> None:
    usage = Usage(Limits(), now=0)
    for _ in range(10_000):
        usage.enter(0)


@example(4, [0.0] * 4 + [3.7] * 12)  # whose sums fall short by a rounding error
@given(st.integers(1, 5000), st.lists(st.floats(0, 90), max_size=40))
def test_who_waits_as_long_as_was_said_is_served(per_minute: int, pauses: list[float]) -> None:
    usage, now = Usage(Limits(requests_per_minute=per_minute), now=0), 0.0
    for pause in pauses:
        now += pause
        try:
            usage.enter(now)
        except KeyAtLimit as refusal:
            now += int(refusal.headers["Retry-After"])
            usage.enter(now)


@given(st.integers(1, 120), st.lists(st.floats(0, 5), min_size=1, max_size=200))
def test_never_more_than_was_said(per_minute: int, pauses: list[float]) -> None:
    """In any time t at most a minute's worth and t minutes' worth are served."""
    usage, now, served = Usage(Limits(requests_per_minute=per_minute), now=0), 0.0, 0
    for pause in pauses:
        now += pause
        for _ in range(3):
            try:
                usage.enter(now)
                served += 1
            except KeyAtLimit:
                break
        assert served <= per_minute + now * per_minute / 60 + 1e-6
