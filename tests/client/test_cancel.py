"""A call that is cancelled costs the service nothing more."""

import asyncio
import threading
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from service.settings import Settings
from tercet_client import AsyncClient
from tests.client.conftest import serving
from tests.e2e.processes import wait_until


def test_cancelling_a_call_ends_its_work_on_the_service(settings: Settings) -> None:
    with serving(settings) as running:
        engine = running.app.state.engine
        begun, goes_on = threading.Event(), threading.Event()
        encode = engine.encoding._run

        def slow(items: Any) -> Any:
            begun.set()
            goes_on.wait(60)
            return encode(items)

        engine.encoding._run = slow

        async def main() -> None:
            async with AsyncClient(running.url) as client:
                searching = asyncio.create_task(client.search("bees"))
                await asyncio.to_thread(begun.wait, 60)
                searching.cancel()
                [outcome] = await asyncio.gather(searching, return_exceptions=True)
                assert isinstance(outcome, asyncio.CancelledError)
                await asyncio.to_thread(wait_until, lambda: left(running.url) == 1, "the service has noticed")
                goes_on.set()
                assert (await client.search("bees")).results  # and the client can be used on

        try:
            asyncio.run(main())
        finally:
            goes_on.set()
        assert left(running.url) == 1


def left(url: str) -> float:
    families = text_string_to_metric_families(httpx.get(f"{url}/metrics", timeout=60).text)
    samples = [sample for family in families for sample in family.samples if sample.name == "tercet_requests_total"]
    return sum(sample.value for sample in samples if sample.labels["status"] == "499")
