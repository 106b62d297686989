"""A real service with tiny models and jobs, and both clients of it asked in the same way."""

import asyncio
import inspect
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest

from service.settings import Settings
from tercet_client import AsyncClient, Client
from tests.service.conftest import Served as Served
from tests.service.conftest import serving as serving
from tests.service.conftest import settings as settings

Ask: TypeAlias = Callable[[Any], Any]


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
