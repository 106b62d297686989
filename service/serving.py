"""The snapshot that is served, and how another takes its place while requests run.

A request borrows the snapshot that is current when it begins and keeps it to its end; a snapshot that was replaced is
closed when its last borrower is done. All of it happens on one event loop, so nothing here needs a lock.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from indexer.errors import IndexerError
from indexer.publish import current_snapshot
from indexer.snapshot import Snapshot
from models.errors import ModelError

_LOGGER = logging.getLogger(__name__)


class _Shared:
    """A snapshot and how many borrow it."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.n_borrowers = 0
        self.is_retired = False

    def close_if_done(self) -> None:
        if self.is_retired and self.n_borrowers == 0:
            self.snapshot.close()


class ServedSnapshot:
    """Lends the current snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._shared = _Shared(snapshot)

    @property
    def current(self) -> Snapshot:
        """The snapshot that new requests get; who uses it across an await should borrow it instead."""
        return self._shared.snapshot

    @contextmanager
    def borrowed(self) -> Iterator[Snapshot]:
        """Give the current snapshot, which stays open as long as the context."""
        shared = self._shared
        shared.n_borrowers += 1
        try:
            yield shared.snapshot
        finally:
            shared.n_borrowers -= 1
            shared.close_if_done()

    def replace(self, snapshot: Snapshot) -> None:
        """Let new requests get another snapshot; the one before is closed when its borrowers are done."""
        before, self._shared = self._shared, _Shared(snapshot)
        before.is_retired = True
        before.close_if_done()

    def close(self) -> None:
        """Close the current one when its borrowers are done."""
        self._shared.is_retired = True
        self._shared.close_if_done()


class Watcher:
    """Notices that another snapshot of an index was made current, opens it aside, and hands it over warm."""

    def __init__(self, index_path: Path, open_warm: Callable[[], Snapshot], swap: Callable[[Snapshot], None]) -> None:
        """open_warm runs in a thread and may raise; swap takes over what it gave."""
        self._index_path = index_path
        self._open_warm = open_warm
        self._swap = swap
        self._refused: str | None = None

    async def run(self, seconds: float, served_id: Callable[[], str], on_refusal: Callable[[], None]) -> None:
        """Look every so many seconds, until cancelled; a snapshot that cannot be opened is refused once and logged."""
        while True:
            await asyncio.sleep(seconds)
            name = self._current_name()
            if name is not None and name not in (served_id(), self._refused):
                await self._take(name, on_refusal)

    def _current_name(self) -> str | None:
        try:
            folder = current_snapshot(self._index_path)
        except OSError:
            return None
        return None if folder is None else folder.name

    async def _take(self, name: str, on_refusal: Callable[[], None]) -> None:
        try:
            snapshot = await asyncio.to_thread(self._open_warm)
        except Exception as error:  # noqa: BLE001 - whatever it is, the snapshot before is served on, and this goes on
            if self._current_name() == name:  # else another one came meanwhile, and this one may be gone
                self._refused = name
                on_refusal()
                _log_refusal(name, error)
            return
        self._refused = None
        self._swap(snapshot)
        _LOGGER.info("snapshot swapped", extra={"snapshot": snapshot.snapshot_id, "n_passages": snapshot.n_passages})


async def watch_files(served: ServedSnapshot, seconds: float, tell: Callable[[bool], None]) -> None:
    """Look every so many seconds, until cancelled, whether files of the served snapshot are damaged; tell and log it.

    It is served on: an operator may mend the file, or make another snapshot current.
    """
    known: str | None = None
    while True:
        await asyncio.sleep(seconds)
        damage = await _damage(served)
        tell(damage is not None)
        if damage is not None and damage != known:
            _LOGGER.error("served snapshot damaged", extra={"reason": damage})
        known = damage


async def _damage(served: ServedSnapshot) -> str | None:
    with served.borrowed() as snapshot:  # under no name that lasts, which would keep its files mapped
        return await asyncio.to_thread(snapshot.damage)


def _log_refusal(name: str, error: Exception) -> None:
    is_told = isinstance(error, (IndexerError, ModelError, OSError))  # their messages are for operators
    facts = {"snapshot": name, "reason": str(error) if is_told else "a fault of this service"}
    _LOGGER.error("snapshot refused", extra=facts, exc_info=None if is_told else error)
