"""The watcher of snapshots goes on, whatever opening one raises."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from models.errors import DeviceError
from service.serving import Watcher


def _published(index_path: Path, name: str) -> None:
    (index_path / "snapshots" / name).mkdir(parents=True)
    (index_path / "next").symlink_to(f"snapshots/{name}")
    (index_path / "next").replace(index_path / "current")


@pytest.mark.parametrize(
    ("error", "reason", "n_places"),
    [
        (DeviceError("FAISS finds no GPU"), "FAISS finds no GPU", 0),
        (RuntimeError("quotes a text"), "a fault of this service", 1),
    ],
)
def test_a_snapshot_that_cannot_be_opened_is_refused_once_and_the_next_one_is_tried(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: Exception, reason: str, n_places: int
) -> None:
    tried: list[str] = []

    def fails() -> None:
        tried.append((tmp_path / "current").resolve().name)
        raise error

    async def until(is_so: Callable[[], bool]) -> None:
        while not is_so():
            await asyncio.sleep(0.001)

    async def watch() -> None:
        refusals: list[None] = []
        watcher = Watcher(tmp_path, fails, lambda snapshot: None)  # type: ignore[arg-type]  # it never returns
        running = asyncio.create_task(watcher.run(0.001, lambda: "served", lambda: refusals.append(None)))
        for n, name in enumerate(("first", "second"), 1):
            _published(tmp_path, name)
            await asyncio.wait_for(until(lambda: len(refusals) == n), 10)  # noqa: B023
            await asyncio.sleep(0.02)
        running.cancel()

    with caplog.at_level(logging.ERROR):
        asyncio.run(watch())
    assert tried == ["first", "second"]
    assert [vars(record)["reason"] for record in caplog.records] == [reason, reason]
    assert [record.exc_info is not None for record in caplog.records] == [n_places > 0] * 2
