"""Clients that go on asking in the background, whatever happens to the service, and count what they see."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import httpx

PROBE_SECONDS = 0.05
PAUSE_SECONDS = 0.05  # between two requests of a client: what is tried is not how much it can do

Ask = Callable[[httpx.Client], httpx.Response]


def seen_by(ask: Callable[[], httpx.Response]) -> str:
    """Return what a client sees of one request: the status, or the kind of failure of the connection."""
    try:
        return str(ask().status_code)
    except httpx.TransportError as error:
        return type(error).__name__


class Clients:
    """Threads that each ask one thing after the other; seen counts statuses and failures of connections."""

    def __init__(self, url: str, asks: Sequence[Ask], *, headers: Mapping[str, str] | None = None) -> None:
        self.seen: Counter[str] = Counter()
        self._url, self._headers = url, dict(headers or {})
        self._is_over = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._go_on, args=(ask,)) for ask in asks]

    def __enter__(self) -> "Clients":
        """Start asking."""
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Let each have its last answer."""
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _go_on(self, ask: Ask) -> None:
        with httpx.Client(base_url=self._url, headers=self._headers, timeout=60) as client:
            while not self._is_over.is_set():
                seen = seen_by(lambda: ask(client))
                with self._lock:
                    self.seen[seen] += 1
                time.sleep(PAUSE_SECONDS)


def search(query: str, **body: object) -> Ask:
    """Return what asks /v1/search for a query, a few candidates reranked unless the body says otherwise."""
    whole = {"query": query, "rerank_k": 3, "top_k": 3, **body}
    return lambda client: client.post("/v1/search", json=whole)


class Probe:
    """The slowest answer of /healthz so far in milliseconds, and how many there were none."""

    def __init__(self) -> None:
        self.max_ms = 0.0
        self.n_failed = 0


@contextmanager
def probing(url: str) -> Iterator[Probe]:
    """Ask /healthz again and again as long as the context."""
    probe, is_over = Probe(), threading.Event()

    def go_on() -> None:
        with httpx.Client(base_url=url, timeout=60) as client:
            while not is_over.wait(PROBE_SECONDS):
                started = time.perf_counter()
                if seen_by(lambda: client.get("/healthz")) != "200":
                    probe.n_failed += 1
                probe.max_ms = max(probe.max_ms, 1000 * (time.perf_counter() - started))

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield probe
    finally:
        is_over.set()
        thread.join()
