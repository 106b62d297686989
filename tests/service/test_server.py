"""A real server process: alive at once, ready when warm, drained on SIGTERM, and one sentence when it cannot start."""

import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
import orjson
import pytest

from service.extras import StartupError
from service.server import bind, serve
from service.settings import Settings
from tests.conftest import TinyModels

from .conftest import tiny_settings

SCRIPT = """
import sys
from service.extras import StartupError
from service.logs import configure_logging
from service.server import serve
from service.settings import load_settings
settings = load_settings()
configure_logging(settings.log_level)
try:
    serve(settings, lambda address: print(address, flush=True))
except StartupError as error:
    sys.exit(str(error))
"""


def environment_of(settings: Settings) -> dict[str, str]:
    changed = settings.model_dump(exclude_unset=True)
    return os.environ | {f"TERCET_{name}".upper(): str(value) for name, value in changed.items()} | {"TERCET_PORT": "0"}


@contextmanager
def running(settings: Settings) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start a process and yield it with its address once it is ready."""
    command = [sys.executable, "-c", SCRIPT]
    with subprocess.Popen(
        command, env=environment_of(settings), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        try:
            yield process, address
        finally:
            process.kill()


def test_a_process_serves_and_ends_with_0_on_sigterm(settings: Settings) -> None:
    with running(settings) as (process, address):
        assert httpx2.get(f"{address}/readyz").status_code == 200
        body = httpx2.post(f"{address}/v1/search", json={"query": "who keeps bees"}).json()
        assert body["results"]
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=60)
        assert process.returncode == 0
    lines = [orjson.loads(line) for line in log.splitlines()]
    assert [line["message"] for line in lines] == ["listening", "ready", "request"]
    assert "bees" not in log


def test_while_it_drains_a_process_refuses_new_requests_and_says_so(settings: Settings) -> None:
    with running(settings.model_copy(update={"drain_seconds": 60.0})) as (process, address):
        with httpx2.Client(base_url=address) as client:
            assert client.get("/readyz").status_code == 200
            process.send_signal(signal.SIGTERM)
            statuses = iter(lambda: client.get("/readyz").status_code, 503)
            assert set(statuses) <= {200}
            assert client.post("/v1/search", json={"query": "bees"}).status_code == 503
            assert client.get("/healthz").status_code == 200
        process.send_signal(signal.SIGTERM)  # the second one does not wait
        assert process.wait(60) == 0


def test_a_taken_port_is_one_sentence() -> None:
    taken = bind("127.0.0.1", 0)
    port = taken.getsockname()[1]
    with pytest.raises(StartupError, match=rf"^Cannot listen on 127\.0\.0\.1 port {port}: Address already in use;"):
        bind("127.0.0.1", port)
    taken.close()


def test_an_unknown_host_is_one_sentence() -> None:
    with pytest.raises(StartupError, match=r"^Cannot listen on nowhere\.invalid: "):
        bind("nowhere.invalid", 0)


def refusal(settings: Settings) -> str:
    """Return what `serve` says when it cannot start; it runs in a thread, so that no signal handler is touched."""
    said: queue.SimpleQueue[str] = queue.SimpleQueue()

    def run() -> None:
        try:
            serve(settings, lambda address: said.put("ready"))
        except StartupError as error:
            said.put(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    return said.get(timeout=1)


def test_a_missing_index_is_one_sentence_that_names_it(settings: Settings) -> None:
    sentence = refusal(settings.model_copy(update={"index": "absent", "port": 0}))
    assert re.fullmatch(rf"There is no index 'absent' in .*; there are: .*\b{settings.index}\b.*\.", sentence)


def test_a_missing_model_is_one_sentence_that_names_it(settings: Settings) -> None:
    assert "'absent' is neither" in refusal(settings.model_copy(update={"reader": "absent", "port": 0}))


def test_an_index_of_another_encoder_is_refused_with_both_sides(settings: Settings, other_encoder: str) -> None:
    """Case 6: equal dimensions are not enough."""
    sentence = refusal(settings.model_copy(update={"dual_encoder": other_encoder, "port": 0}))
    assert re.fullmatch(r"Index 'default' was built with .* but the configured encoder has fingerprint .*\.", sentence)


def test_a_device_that_is_not_there_is_one_sentence(tiny_models: TinyModels, settings: Settings) -> None:
    cuda = tiny_settings(tiny_models, settings.data_path, device="cuda", port=0)
    assert "'cuda' was asked for" in refusal(cuda)


def test_port_0_takes_a_free_port() -> None:
    listening = bind("localhost", 0)
    assert listening.getsockname()[1] > 0
    assert listening.family in (socket.AF_INET, socket.AF_INET6)
    listening.close()
