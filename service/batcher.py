"""Merge the inputs of concurrent requests into batches for one model, of which a few run at once.

The contract, each clause of which is a test:

1. A batch is what is waiting when fewer than n_in_flight batches run, up to a token budget. There is no timer, so a
   lone request waits for nobody. Two in flight leave no thread of a model idle while the last inputs of a batch end.
2. The oldest request gets half of the budget. The rest is dealt one input at a time to all who wait, first to those of
   whom the fewest tokens have been taken. So a long request is cut into slices, a short one joins the very next batch
   however many wait, and no request starves. Of a request that wants all its outputs the longest inputs go first, as
   those of one length run faster together.
3. Callers who have left (their task was cancelled) cost no more model time.
4. An exception reaches every caller of its batch and nobody else; the next batch runs.
5. A caller may take what is done by some time: the outputs of its first inputs; the others cost no more model time.
6. Stopping fails every waiter, and everybody who comes later.

Left out: a limit to the queue, which is `service/admission.py`; padding. A batch is only a list to the sessions, and
an input's score cannot depend on its neighbours.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count, takewhile
from typing import Generic, Protocol, TypeVar

from service.problems import NotReady

Item = TypeVar("Item")
Output = TypeVar("Output")


class QueueObserver(Protocol):
    """Who is told what happens in a queue."""

    def batch(self, n_items: int) -> None:
        """Note that a batch has run."""
        ...


@dataclass(slots=True, eq=False)
class _Waiter(Generic[Item, Output]):
    """One caller: what of its inputs still waits, and what came back, by input position.

    order holds the positions as they are taken, costs are in that order.
    """

    items: Sequence[Item]
    order: Sequence[int]
    costs: list[int]
    done: asyncio.Future[list[Output]]
    outputs: dict[int, Output] = field(default_factory=dict)
    n_taken: int = 0
    taken_tokens: int = 0

    def next_cost(self) -> int | None:
        return self.costs[self.n_taken] if self.n_taken < len(self.items) else None

    def waiting_tokens(self) -> int:
        return sum(self.costs[self.n_taken :])


class MicroBatcher(Generic[Item, Output]):
    """The queue of one model. `run` maps inputs to as many outputs, in order; it may block and may raise."""

    def __init__(
        self,
        run: Callable[[Sequence[Item]], Sequence[Output]],
        *,
        cost: Callable[[Item], int],
        max_batch_tokens: int,
        observer: QueueObserver,
        n_in_flight: int = 1,
    ) -> None:
        self._run = run
        self._cost = cost
        self._max_batch_tokens = max_batch_tokens
        self._observer = observer
        self._n_in_flight = n_in_flight
        self._places = asyncio.Semaphore(n_in_flight)
        self._last_end = 0.0
        self._queue: deque[_Waiter[Item, Output]] = deque()
        self._arrival = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None
        self._threads: ThreadPoolExecutor | None = None
        self.tokens_per_second = 0.0  # as measured of the last batches

    @property
    def waiting_tokens(self) -> int:
        """Tokens in the queue, those of running batches not counted."""
        return sum(waiter.waiting_tokens() for waiter in self._queue if not waiter.done.done())

    @property
    def n_waiting(self) -> int:
        """Inputs in the queue, those of running batches not counted."""
        return sum(len(waiter.items) - waiter.n_taken for waiter in self._queue if not waiter.done.done())

    def start(self) -> None:
        """Start the worker; belongs to the running event loop."""
        assert self._worker is None, "a batcher starts once"
        self._threads = ThreadPoolExecutor(self._n_in_flight, thread_name_prefix="model")
        self._worker = asyncio.create_task(self._work())

    async def stop(self) -> None:
        """Fail every waiter, then wait for the batches that run."""
        worker, self._worker = self._worker, None
        if worker is None or self._threads is None:
            return
        worker.cancel()
        for waiter in self._queue:
            _fail(waiter, NotReady("The service is stopping."))
        self._queue.clear()
        await asyncio.gather(worker, return_exceptions=True)
        await asyncio.to_thread(self._threads.shutdown)

    async def submit(self, items: Sequence[Item]) -> list[Output]:
        """Return one output per item, in order; an empty list at once for no items.

        Raises:
            NotReady: the batcher is stopped.
            Exception: whatever `run` raised for a batch with one of these items.
        """
        longest_first = sorted(range(len(items)), key=lambda position: -self._cost(items[position]))
        return await self._enter(items, longest_first).done if items else []

    async def submit_until(self, items: Sequence[Item], at: float) -> list[Output]:
        """Return the outputs of as many items, from the first on, as are done by a time of the event loop's clock.

        Raises: as `submit`.
        """
        if not items or at <= asyncio.get_running_loop().time():
            return []
        waiter = self._enter(items, range(len(items)))
        limit = asyncio.timeout_at(at)
        try:
            async with limit:
                return await waiter.done
        except TimeoutError:
            if not limit.expired():
                raise
            return [waiter.outputs[i] for i in takewhile(waiter.outputs.__contains__, count())]

    def _enter(self, items: Sequence[Item], order: Sequence[int]) -> _Waiter[Item, Output]:
        if self._worker is None:
            raise NotReady("The service is stopping.")
        costs = [self._cost(items[position]) for position in order]
        waiter = _Waiter[Item, Output](items, order, costs, asyncio.get_running_loop().create_future())
        self._queue.append(waiter)
        self._arrival.set()
        return waiter

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as running:
            while True:
                await self._places.acquire()
                while not (batch := self._take()):
                    self._arrival.clear()
                    await self._arrival.wait()
                running.create_task(self._run_batch(batch))

    def _take(self) -> list[tuple[_Waiter[Item, Output], int]]:
        """Remove the next batch from the queue; (waiter, input position) pairs, empty when nobody waits."""
        self._queue = deque(waiter for waiter in self._queue if not waiter.done.done())
        budget = self._max_batch_tokens
        batch = self._deal([self._queue[0]] if self._queue else [], budget // 2, at_least=1)
        spent = sum(self._cost(waiter.items[position]) for waiter, position in batch)
        least_served = sorted(self._queue, key=lambda waiter: waiter.taken_tokens)  # of equals the oldest
        batch += self._deal(least_served, budget - spent, at_least=0)
        self._queue = deque(waiter for waiter in self._queue if waiter.next_cost() is not None)
        return batch

    def _deal(
        self, waiters: list[_Waiter[Item, Output]], budget: int, *, at_least: int
    ) -> list[tuple[_Waiter[Item, Output], int]]:
        """Take one input after the other from the waiters in turn, `at_least` that many even beyond the budget."""
        dealt: list[tuple[_Waiter[Item, Output], int]] = []
        turns = deque(waiters)
        while turns:
            waiter = turns.popleft()
            cost = waiter.next_cost()
            if cost is None:
                continue
            if cost > budget and len(dealt) >= at_least:
                break
            dealt.append((waiter, waiter.order[waiter.n_taken]))
            waiter.n_taken += 1
            waiter.taken_tokens += cost
            budget -= cost
            turns.append(waiter)
        return dealt

    async def _run_batch(self, batch: list[tuple[_Waiter[Item, Output], int]]) -> None:
        assert self._threads is not None
        items = [waiter.items[position] for waiter, position in batch]
        started = time.perf_counter()
        running = asyncio.get_running_loop().run_in_executor(self._threads, self._run, items)
        try:
            outputs = await running
            pairs = list(zip(batch, outputs, strict=True))
        except asyncio.CancelledError:
            for waiter, _ in batch:
                _fail(waiter, NotReady("The service is stopping."))
            raise
        except Exception as error:  # noqa: BLE001 - the fan-out: the callers of this batch, and only they, see it
            for waiter, _ in batch:
                _fail(waiter, error)
            return
        finally:
            self._places.release()
        self._measure(sum(self._cost(item) for item in items), started)
        self._observer.batch(len(batch))
        for (waiter, position), output in pairs:
            waiter.outputs[position] = output
            if len(waiter.outputs) == len(waiter.items) and not waiter.done.done():
                waiter.done.set_result([waiter.outputs[i] for i in range(len(waiter.items))])

    def _measure(self, tokens: int, started: float) -> None:
        """Move the measured rate a fifth of the way to that of the last batch, less the time it shared with another."""
        end = time.perf_counter()
        rate = tokens / max(end - max(started, self._last_end), 1e-9)
        self._last_end = end
        self.tokens_per_second += (rate - self.tokens_per_second) * (0.2 if self.tokens_per_second else 1.0)


def _fail(waiter: _Waiter[Item, Output], error: Exception) -> None:
    if not waiter.done.done():
        waiter.done.set_exception(error)
