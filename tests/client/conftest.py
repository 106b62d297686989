"""A real service on a real port, with tiny models and jobs, and both clients of it asked in the same way."""

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import pytest
import uvicorn
from fastapi import FastAPI

from service.app import Outcome, create_app
from service.server import bind
from service.settings import Settings
from tercet_client import AsyncClient, Client
from tests.service.conftest import settings as settings

Ask: TypeAlias = Callable[[Any], Any]


@dataclass(frozen=True)
class Served:
    url: str
    app: FastAPI


@contextmanager
def serving(settings: Settings) -> Iterator[Served]:
    """Serve an application on a free port, in a thread of its own; give it when it is ready."""
    ready = threading.Event()
    outcome = Outcome(lambda _: ready.set())
    app = create_app(settings, outcome)
    listening = bind("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        assert ready.wait(60)
        assert outcome.failure is None, outcome.failure
        yield Served(f"http://127.0.0.1:{listening.getsockname()[1]}", app)
    finally:
        server.should_exit = True
        thread.join(60)
        listening.close()


@pytest.fixture(scope="session")
def served(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service that takes jobs of a folder with one document, for all tests that change nothing in it."""
    root = tmp_path_factory.mktemp("root")
    (root / "manuals").mkdir()
    (root / "manuals" / "fog.txt").write_text("Fog over the harbour.")
    with serving(settings.model_copy(update={"jobs_path": root})) as running:
        yield running


class Both:
    """Asks a service by one of the two clients; a test that has it runs with each."""

    def __init__(self, is_async: bool) -> None:
        self.is_async = is_async

    def __call__(self, url: str, ask: Ask, **settings: Any) -> Any:
        """Return what a function of a client returns, with what it awaits."""
        if not self.is_async:
            with Client(url, **settings) as client:
                return ask(client)

        async def main() -> Any:
            async with AsyncClient(url, **settings) as client:
                found = ask(client)
                return await found if inspect.isawaitable(found) else found

        return asyncio.run(main())


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def both(request: pytest.FixtureRequest) -> Both:
    return Both(request.param)
