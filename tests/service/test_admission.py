"""Each clause of the admission's contract, at a rate of 100 tokens a second."""

import asyncio
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from service.admission import Admission, Cost, Refusal
from service.problems import DeadlineExceeded, Overloaded
from service.stages import Deadline

RATE = 100.0


class Desk:
    """An admission, and what it told of those it turned away."""

    def __init__(self, *, max_tokens: int = 1000, rate: float = RATE) -> None:
        self.refusals: list[Refusal] = []
        self.admission = Admission(max_tokens, tokens_per_second=lambda: rate, refused=self.refusals.append)
        self.under_way = ExitStack()

    def take(self, tokens: int, least: int = 0, seconds: float = 3600) -> None:
        """Let one more request be under way."""
        self.under_way.enter_context(self.admission.admitted(Cost(tokens, least), Deadline.after(seconds)))

    def refuse(self, problem: type[Exception], tokens: int, least: int = 0, seconds: float = 3600) -> Exception:
        with pytest.raises(problem) as refusal:
            self.take(tokens, least, seconds)
        return refusal.value


def at_desk(scenario: Callable[[Desk], None], **options: float) -> None:
    async def main() -> None:
        scenario(Desk(**options))  # type: ignore[arg-type]  # max_tokens is whole wherever it is given

    asyncio.run(main())


def retry_after(problem: Exception) -> int:
    assert isinstance(problem, Overloaded)
    return int(problem.headers["Retry-After"])


def test_the_limit_holds_for_all_requests_together_and_ends_with_them() -> None:
    def scenario(desk: Desk) -> None:
        desk.take(600)
        desk.take(400)
        desk.refuse(Overloaded, 1)
        assert (desk.admission.tokens, desk.admission.n_requests, desk.refusals) == (1000, 2, ["full"])
        desk.under_way.close()
        assert (desk.admission.tokens, desk.admission.n_requests) == (0, 0)
        desk.take(1000)

    at_desk(scenario)


def test_an_idle_service_takes_a_request_of_any_length() -> None:
    def scenario(desk: Desk) -> None:
        desk.take(50_000)
        desk.refuse(Overloaded, 1)

    at_desk(scenario)


def test_retry_after_is_how_long_it_takes_until_there_is_room() -> None:
    def scenario(desk: Desk) -> None:
        desk.take(1000)
        assert retry_after(desk.refuse(Overloaded, 250)) == 3
        assert retry_after(desk.refuse(Overloaded, 5000)) == 10  # when nothing is under way any more
        desk.under_way.close()
        desk.take(10_000_000)
        assert retry_after(desk.refuse(Overloaded, 1_000_000)) == 60

    at_desk(scenario)


def test_what_takes_longer_than_its_deadline_even_alone_is_a_passed_deadline() -> None:
    def scenario(desk: Desk) -> None:
        desk.refuse(DeadlineExceeded, 500, least=101, seconds=1)
        assert desk.refusals == ["deadline"]
        desk.take(500, least=99, seconds=1)

    at_desk(scenario)


def test_under_load_a_request_counts_on_its_share_and_is_told_to_come_back() -> None:
    def scenario(desk: Desk) -> None:
        desk.take(400)
        desk.take(50, least=50, seconds=1.01)  # it and one other in turn: 100 tokens
        problem = desk.refuse(Overloaded, 50, least=50, seconds=1.01)  # with two others: 150
        assert (retry_after(problem), desk.refusals) == (5, ["deadline"])
        desk.take(50, least=50, seconds=1.6)

    at_desk(scenario)


def test_a_request_waits_for_no_more_than_what_is_under_way() -> None:
    def scenario(desk: Desk) -> None:
        desk.take(10)
        desk.take(100, least=100, seconds=1.2)  # 110 tokens, not 200

    at_desk(scenario)


def test_as_long_as_no_rate_is_known_nobody_is_refused_for_a_deadline() -> None:
    def scenario(desk: Desk) -> None:
        desk.take(1000, least=1000, seconds=0.001)
        assert retry_after(desk.refuse(Overloaded, 1)) == 1

    at_desk(scenario, rate=0.0)


def test_a_request_that_fails_gives_its_tokens_back() -> None:
    def scenario(desk: Desk) -> None:
        with pytest.raises(RuntimeError), desk.admission.admitted(Cost(10, 0), Deadline.after(1)):
            raise RuntimeError
        assert desk.admission.tokens == 0

    at_desk(scenario)
