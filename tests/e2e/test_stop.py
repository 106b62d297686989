"""A service that is told to stop finishes what it has begun, refuses what is new, and exits with 0."""

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from .processes import RunningService, answers_with, running_service, tool, wait_until

SENTENCE = "The keeper of the lighthouse wrote into the log that the lamp had been lit before the storm came. "


def is_working(service: RunningService) -> bool:
    """Whether inputs wait for the reader, which they do only behind a batch that is running."""
    lines = service.get("/metrics").text.splitlines()
    waiting = [line for line in lines if line.startswith('tercet_queue_waiting{model="reader"}')]
    return bool(waiting) and float(waiting[0].split()[-1]) > 0


def long_request(service: RunningService) -> httpx.Response:
    """Read forty long passages: more than a second of work for the reader."""
    passages = [{"id": str(i), "text": SENTENCE * 20} for i in range(40)]
    return service.post("/v1/answer", query="who lit the lamp", passages=passages)


@pytest.mark.usefixtures("bundled_models")  # a tiny model is done before anyone can look
def test_a_request_under_way_is_answered_before_the_process_ends(
    service_settings: dict[str, str], tmp_path: Path
) -> None:
    settings = {**service_settings, "DRAIN_SECONDS": "2"}
    with running_service(settings, folder=tmp_path) as service, ThreadPoolExecutor(1) as background:
        response = background.submit(long_request, service)
        wait_until(lambda: is_working(service), "the reader works")
        service.process.terminate()
        wait_until(lambda: answers_with(f"{service.url}/readyz", 503), "it says that it is not ready any more")
        assert response.result().status_code == 200
        assert service.process.wait(timeout=60) == 0
        levels = {line["level"] for line in service.log()}
        assert levels <= {"info", "warning"}


def test_a_second_service_on_a_taken_port_fails_with_one_sentence(
    service: RunningService, service_settings: dict[str, str]
) -> None:
    port = service.url.rpartition(":")[2]
    environment = os.environ | {f"TERCET_{k}": v for k, v in service_settings.items()} | {"TERCET_PORT": port}
    second = subprocess.run([tool("tercet"), "serve"], env=environment, capture_output=True, text=True, timeout=120)
    assert second.returncode == 1
    assert port in second.stderr
    assert "Traceback" not in second.stderr
