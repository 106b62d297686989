"""Real processes for the end-to-end tests: start them, wait until they are up, read their logs, stop them."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

ROOT = Path(__file__).parents[2]
DEADLINE_SECONDS = 60.0
POLL_SECONDS = 0.02


def tool(name: str) -> str:
    """A program of the environment that the tests run in."""
    return str(Path(sys.executable).with_name(name))


def system_program(name: str) -> str:
    """A program that pip does not bring. Without it a test is skipped, except in continuous integration."""
    found = shutil.which(name)
    if found is None:
        refuse = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        refuse(f"there is no {name} on this machine")
    return found


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def wait_until(holds: Callable[[], bool], what: str, *, process: subprocess.Popen[bytes] | None = None) -> None:
    """Return as soon as the condition holds; fail when it never does, or the process it depends on ends."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not holds():
        if process is not None and process.poll() is not None:
            pytest.fail(f"the process ended with {process.returncode} before {what}")
        if time.monotonic() > deadline:
            pytest.fail(f"not within {DEADLINE_SECONDS:.0f} s: {what}")
        time.sleep(POLL_SECONDS)


def answers_with(url: str, status: int) -> bool:
    try:
        return httpx.get(url, timeout=5).status_code == status
    except httpx.TransportError:
        return False


@dataclass(frozen=True)
class RunningService:
    url: str
    process: subprocess.Popen[bytes]
    log_path: Path
    home: Path

    def log_text(self) -> str:
        return self.log_path.read_text()

    def log(self) -> list[dict[str, Any]]:
        """Every line of the log; fails if one is not a JSON object."""
        lines = [json.loads(line) for line in self.log_text().splitlines()]
        assert all(isinstance(line, dict) for line in lines)
        return lines

    def post(self, path: str, **body: object) -> httpx.Response:
        return httpx.post(self.url + path, json=body, timeout=60)

    def get(self, path: str) -> httpx.Response:
        return httpx.get(self.url + path, timeout=60)

    def stop(self) -> int:
        """Ask the process to stop, as an orchestrator does, and return its exit code."""
        self.process.terminate()
        return self.process.wait(timeout=DEADLINE_SECONDS)


@contextmanager
def running_service(settings: Mapping[str, str], *, folder: Path) -> Iterator[RunningService]:
    """Run `tercet serve` with these settings (names without their prefix) until the block ends, its user new here."""
    port = free_port()
    log_path, home = folder / "service.log", folder / "home"
    home.mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TERCET_", "XDG_"))}
    environment |= {f"TERCET_{name}": value for name, value in settings.items()} | {
        "TERCET_PORT": str(port),
        "HOME": str(home),
    }
    with log_path.open("wb") as log:
        command = [tool("tercet"), "serve"]
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    service = RunningService(f"http://127.0.0.1:{port}", process, log_path, home)
    try:
        wait_until(lambda: answers_with(f"{service.url}/readyz", 200), "the service is ready", process=process)
        yield service
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
