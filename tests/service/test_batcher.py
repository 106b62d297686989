"""Each clause of the batcher's contract. Items are numbers, an item's cost is its value, its output its negative."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

import pytest

from service.batcher import MicroBatcher
from service.problems import NotReady


class Model:
    """Negates numbers; waits while the gate is closed, as it does itself at one number; fails on 13."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self.stops_at = 0

    def run(self, items: Sequence[int]) -> list[int]:
        self.batches.append(list(items))
        if self.stops_at in items:
            self.gate.clear()
        self.entered.set()
        assert self.gate.wait(10)
        if 13 in items:
            raise RuntimeError("thirteen")
        return [-item for item in items]


class Tally:
    """Counts what a queue tells its observer."""

    def __init__(self) -> None:
        self.batch_items: list[int] = []

    def batch(self, n_items: int) -> None:
        self.batch_items.append(n_items)


Batcher = MicroBatcher[int, int]
Scenario = Callable[[Batcher, Model], Awaitable[None]]


def play(scenario: Scenario, *, max_batch_tokens: int = 8, n_in_flight: int = 1) -> tuple[Model, Tally]:
    model, tally = Model(), Tally()

    async def main() -> None:
        batcher = Batcher(
            model.run,
            cost=lambda item: item,
            max_batch_tokens=max_batch_tokens,
            observer=tally,
            n_in_flight=n_in_flight,
        )
        batcher.start()
        try:
            await scenario(batcher, model)
        finally:
            model.gate.set()
            await batcher.stop()

    asyncio.run(main())
    return model, tally


async def hold(batcher: Batcher, model: Model) -> asyncio.Task[list[int]]:
    """Let one batch of one item run, and keep it running until the gate opens."""
    model.gate.clear()
    held = asyncio.create_task(batcher.submit([1]))
    await asyncio.to_thread(model.entered.wait, 10)
    return held


async def enter(*coroutines: Coroutine[Any, Any, list[int]]) -> list[asyncio.Task[list[int]]]:
    """Start callers in this order and let each of them reach the queue."""
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    await asyncio.sleep(0)
    return tasks


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not is_so():
            await asyncio.sleep(0.01)


def test_outputs_come_back_in_the_order_of_the_items() -> None:
    async def scenario(batcher: Batcher, model: Model) -> None:
        assert await batcher.submit([5, 1, 4, 2, 3]) == [-5, -1, -4, -2, -3]
        assert await batcher.submit([]) == []

    play(scenario)


def test_a_lone_request_waits_for_nobody() -> None:
    async def scenario(batcher: Batcher, model: Model) -> None:
        assert await batcher.submit([3]) == [-3]

    model, _ = play(scenario)
    assert model.batches == [[3]]


def test_a_batch_is_what_waited_while_the_worker_was_busy() -> None:
    async def scenario(batcher: Batcher, model: Model) -> None:
        held = await hold(batcher, model)
        waiting = await enter(batcher.submit([2]), batcher.submit([3]))
        assert (batcher.n_waiting, batcher.waiting_tokens) == (2, 5)
        model.gate.set()
        assert await asyncio.gather(held, *waiting) == [[-1], [-2], [-3]]

    model, tally = play(scenario)
    assert model.batches == [[1], [2, 3]]
    assert tally.batch_items == [1, 2]


def test_as_many_batches_run_at_once_as_may_be_in_flight() -> None:
    async def scenario(batcher: Batcher, model: Model) -> None:
        held = await hold(batcher, model)
        waiting = await enter(batcher.submit([2]), batcher.submit([3]))
        await until(lambda: len(model.batches) == 2)
        assert (batcher.n_waiting, model.batches) == (0, [[1], [2, 3]])
        last = await enter(batcher.submit([4]))
        assert batcher.n_waiting == 1
        model.gate.set()
        assert await asyncio.gather(held, *waiting, *last) == [[-1], [-2], [-3], [-4]]

    play(scenario, n_in_flight=2)


def test_the_longest_inputs_go_first_where_all_are_wanted() -> None:
    async def scenario(batcher: Batcher, model: Model) -> None:
        assert await batcher.submit([2, 7, 1, 5]) == [-2, -7, -1, -5]

    model, _ = play(scenario, max_batch_tokens=8)
    assert model.batches == [[7], [5, 2, 1]]


def test_a_batch_keeps_to_the_token_budget() -> None:
    async def scenario(batcher: Batcher, model: Model) -> None:
        await batcher.submit([3] * 7)

    model, _ = play(scenario, max_batch_tokens=8)
    assert max(sum(batch) for batch in model.batches) <= 8
    assert sum(len(batch) for batch in model.batches) == 7


def test_an_item_beyond_the_budget_runs_alone() -> None:
    async def scenario(batcher: Batcher, model: Model) -> None:
        assert await batcher.submit([100, 1]) == [-100, -1]

    model, _ = play(scenario, max_batch_tokens=8)
    assert model.batches == [[100], [1]]


def test_a_short_request_joins_the_next_batch_of_a_long_one() -> None:
    async def scenario(batcher: Batcher, model: Model) -> None:
        held = await hold(batcher, model)
        long, short = await enter(batcher.submit([1] * 100), batcher.submit([2]))
        model.gate.set()
        await asyncio.gather(held, long, short)

    model, _ = play(scenario, max_batch_tokens=8)
    assert 2 in model.batches[1]


def test_the_oldest_request_gets_half_of_the_budget_and_the_rest_is_dealt() -> None:
    async def scenario(batcher: Batcher, model: Model) -> None:
        held = await hold(batcher, model)
        waiting = await enter(batcher.submit([1] * 50), batcher.submit([2] * 50), batcher.submit([1] * 50))
        model.gate.set()
        await asyncio.gather(held, *waiting)

    model, _ = play(scenario, max_batch_tokens=8)
    assert model.batches[1] == [1, 1, 1, 1, 2, 1, 1]  # four of the oldest; then of those that had none, then of all


def test_a_short_request_joins_the_next_batch_however_many_wait() -> None:
    async def scenario(batcher: Batcher, model: Model) -> None:
        held = await hold(batcher, model)
        waiting = await enter(*(batcher.submit([1] * 20) for _ in range(30)))
        model.gate.set()
        await until(lambda: len(model.batches) > 5)
        n_before = len(model.batches)
        await batcher.submit([2])
        assert sum(2 in batch for batch in model.batches[: n_before + 2]) == 1
        await asyncio.gather(held, *waiting)

    play(scenario, max_batch_tokens=8)


def test_the_longest_wait_is_shared() -> None:
    """Thirty alike: when the first is done, the others have got nearly as much as each other."""

    async def scenario(batcher: Batcher, model: Model) -> None:
        held = await hold(batcher, model)
        waiting = await enter(*(batcher.submit([1] * 20) for _ in range(30)))
        model.gate.set()
        await waiting[0]
        taken = [waiter.n_taken for waiter in batcher._queue]
        assert max(taken[1:]) - min(taken[1:]) <= 1
        await asyncio.gather(held, *waiting)

    play(scenario, max_batch_tokens=8)


def test_no_request_starves_behind_a_stream_of_younger_ones() -> None:
    async def scenario(batcher: Batcher, model: Model) -> None:
        held = await hold(batcher, model)
        [old] = await enter(batcher.submit([4] * 10))
        young = await enter(*(batcher.submit([4]) for _ in range(40)))
        model.gate.set()
        await old
        assert sum(not task.done() for task in young) > 20
        await asyncio.gather(held, *young)

    play(scenario, max_batch_tokens=8)


def test_callers_who_have_left_cost_no_more_model_time() -> None:
    async def scenario(batcher: Batcher, model: Model) -> None:
        held = await hold(batcher, model)
        leaver, stayer = await enter(batcher.submit([7] * 20), batcher.submit([2]))
        leaver.cancel()
        await asyncio.gather(leaver, return_exceptions=True)
        assert batcher.waiting_tokens == 2
        model.gate.set()
        await asyncio.gather(held, stayer)

    model, _ = play(scenario)
    assert model.batches == [[1], [2]]


def test_a_failed_batch_fails_only_its_callers_and_the_next_batch_runs() -> None:
    async def scenario(batcher: Batcher, model: Model) -> None:
        held = await hold(batcher, model)
        waiting = await enter(batcher.submit([13]), batcher.submit([2]), batcher.submit([15]))
        model.gate.set()
        thirteen, with_it, apart = await asyncio.gather(*waiting, return_exceptions=True)
        assert await held == [-1]
        assert isinstance(thirteen, RuntimeError)
        assert isinstance(with_it, RuntimeError)
        assert apart == [-15]

    play(scenario, max_batch_tokens=15)


def test_a_model_that_returns_too_few_outputs_fails_its_callers() -> None:
    async def main() -> None:
        batcher = Batcher(lambda items: [], cost=lambda item: item, max_batch_tokens=8, observer=Tally())
        batcher.start()
        with pytest.raises(ValueError, match="shorter"):
            await batcher.submit([1])
        await batcher.stop()

    asyncio.run(main())


def test_what_is_done_by_a_time_comes_in_order_and_the_rest_costs_nothing() -> None:
    async def scenario(batcher: Batcher, model: Model) -> None:
        now = asyncio.get_running_loop().time()
        assert await batcher.submit_until([2, 3], now + 10) == [-2, -3]
        assert await batcher.submit_until([9], now) == []  # which the model never sees
        assert await batcher.submit_until([], now) == []
        held = await hold(batcher, model)  # a batch that no time hastens
        late = asyncio.create_task(batcher.submit_until([4, 4, 4, 4], now + 10))
        assert await batcher.submit_until([5, 6], asyncio.get_running_loop().time() + 0.01) == []
        model.entered.clear()
        model.gate.set()
        await asyncio.to_thread(model.entered.wait, 10)
        assert await late == [-4] * 4
        await held

    model, _ = play(scenario)
    assert model.batches == [[2, 3], [1], [4, 4], [4, 4]]


def test_what_was_done_before_the_time_is_kept() -> None:
    async def scenario(batcher: Batcher, model: Model) -> None:
        model.stops_at = 7
        assert await batcher.submit_until([8, 7, 6], asyncio.get_running_loop().time() + 0.3) == [-8]
        assert batcher.n_waiting == 0
        model.gate.set()
        assert await batcher.submit([5]) == [-5]

    model, _ = play(scenario)
    assert model.batches == [[8], [7], [5]]


def test_what_was_done_by_a_time_is_without_gaps() -> None:
    """A later batch may end before an earlier one; what it gave is of no use."""
    slow = threading.Event()

    def run(items: Sequence[int]) -> list[int]:
        assert 7 not in items or slow.wait(10)
        return [-item for item in items]

    async def main() -> None:
        batcher = Batcher(run, cost=lambda item: item, max_batch_tokens=8, observer=Tally(), n_in_flight=2)
        batcher.start()
        soon = asyncio.get_running_loop().time() + 0.2
        assert await batcher.submit_until([8, 7, 6], soon) == [-8]
        slow.set()
        await batcher.stop()

    asyncio.run(main())


def test_stopping_fails_every_waiter_and_everybody_who_comes_later() -> None:
    async def scenario(batcher: Batcher, model: Model) -> None:
        held = await hold(batcher, model)
        waiting = await enter(batcher.submit([2]), batcher.submit([3]))
        stopping = asyncio.create_task(batcher.stop())
        outcomes = await asyncio.gather(held, *waiting, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [NotReady] * 3
        model.gate.set()
        await stopping
        with pytest.raises(NotReady):
            await batcher.submit([4])

    model, _ = play(scenario)
    assert model.batches == [[1]]
