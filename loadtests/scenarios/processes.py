"""The processes that a scenario starts, on loopback only: `tercet` commands, and a service that can be killed."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from target import TargetError

PROGRAM = str(Path(sys.executable).with_name("tercet"))
START_SECONDS = 300.0
COMMAND_SECONDS = 900.0
POLL_SECONDS = 0.05
PATIENCE_SECONDS = 180.0  # for what takes a second or two on an idle machine
JOBS_SECONDS = 1_200.0  # for jobs, which get what others leave


@dataclass(frozen=True, slots=True)
class Finished:
    """A command that has ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def sentence(self) -> str:
        """The last line that it said on stderr."""
        lines = self.stderr.strip().splitlines()
        return lines[-1] if lines else ""

    @property
    def is_one_sentence(self) -> bool:
        """Whether it failed the way a command may: a sentence, no traceback."""
        return self.code == 1 and "Traceback" not in self.stderr and self.sentence.startswith("tercet: ")

    @property
    def json(self) -> Any:
        """What it printed as JSON."""
        return json.loads(self.stdout)


def free_port() -> int:
    """Return a port of 127.0.0.1 that is free now."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def wait_until(holds: Callable[[], bool], what: str, *, seconds: float = START_SECONDS) -> float:
    """Return after how many seconds the condition held.

    Raises:
        TargetError: it does not in time.
    """
    started = time.monotonic()
    while not holds():
        if time.monotonic() > started + seconds:
            raise TargetError(f"Not within {seconds:.0f} s: {what}.")
        time.sleep(POLL_SECONDS)
    return time.monotonic() - started


@dataclass(slots=True)
class Tercet:
    """Commands with one data folder and settings (names without their prefix); extra goes into the environment."""

    folder: Path
    settings: dict[str, str] = field(default_factory=dict)
    extra: dict[str, str] = field(default_factory=dict)

    @property
    def data(self) -> Path:
        """The data folder."""
        return Path(self.settings.get("DATA_PATH", str(self.folder / "data")))

    def environment(self) -> dict[str, str]:
        """Return the environment of its processes."""
        others = {name: value for name, value in os.environ.items() if not name.upper().startswith("TERCET_")}
        given = {"DATA_PATH": str(self.data), **self.settings}
        return others | {f"TERCET_{name}": value for name, value in given.items()} | self.extra

    def start(self, *arguments: str | Path, **options: Any) -> subprocess.Popen[str]:
        """Start a command."""
        return subprocess.Popen(
            [PROGRAM, *map(str, arguments)],
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )

    def __call__(self, *arguments: str | Path) -> Finished:
        """Run a command to its end."""
        with self.start(*arguments) as process:
            try:
                stdout, stderr = process.communicate(timeout=COMMAND_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return Finished(process.returncode, stdout, stderr)

    def must(self, *arguments: str | Path) -> Finished:
        """Run a command that has to succeed.

        Raises:
            TargetError: it does not.
        """
        done = self(*arguments)
        if done.code != 0:
            raise TargetError(f"`tercet {arguments[0]}` ended with {done.code}: {done.sentence}")
        return done

    def current(self, index: str = "default") -> str:
        """Return the id of an index's current snapshot, empty where there is none."""
        link = self.data / index / "current"
        return link.readlink().name if link.is_symlink() else ""

    @contextmanager
    def serving(self, *, is_ready: bool = True) -> Iterator["Server"]:
        """Give a service that is ready; it is killed at the end if it runs."""
        server = Server(self)
        try:
            server.start()
            if is_ready:
                server.wait_ready()
            yield server
        finally:
            server.kill()


class Server:
    """`tercet serve` on one port; its log goes on over restarts."""

    def __init__(self, tercet: Tercet) -> None:
        self.tercet = tercet
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log_path = tercet.folder / f"service-{self.port}.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process."""
        environment = self.tercet.environment() | {"TERCET_PORT": str(self.port)}
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [PROGRAM, "serve"], env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    @property
    def pid(self) -> int:
        """The process's id."""
        assert self.process is not None
        return self.process.pid

    def ended(self) -> int | None:
        """Return the exit code, negative for a signal, None while it runs."""
        assert self.process is not None
        return self.process.poll()

    def wait_ready(self) -> float:
        """Return after how many seconds /readyz said yes.

        Raises:
            TargetError: it does not in time, or the process ends.
        """

        def is_ready() -> bool:
            if self.ended() is not None:
                raise TargetError(f"`tercet serve` ended with {self.ended()} before it was ready: {self.last_line()}")
            try:
                return httpx.get(f"{self.url}/readyz", timeout=5).status_code == 200
            except httpx.TransportError:
                return False

        return wait_until(is_ready, f"{self.url} is ready")

    def kill(self) -> None:
        """End the process as `kill -9` does."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        if self.process is not None:
            self.process.wait()

    def restart(self) -> float:
        """Kill the process, start another, and return the seconds from the kill until that one is ready."""
        started = time.monotonic()
        self.kill()
        self.start()
        self.wait_ready()
        return time.monotonic() - started

    def refusal(self) -> Finished:
        """Start it where it should refuse to start, and return how it ended."""
        before = self.log_path.stat().st_size if self.log_path.exists() else 0
        self.kill()
        self.start()
        assert self.process is not None
        try:
            code = self.process.wait(timeout=START_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        return Finished(code, "", self.log_path.read_text(errors="replace")[before:])

    def last_line(self) -> str:
        """Return the last line of the log."""
        lines = self.log_path.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""

    def log(self) -> list[dict[str, Any]]:
        """Return the lines of the log that are JSON objects."""
        return [json.loads(line) for line in self.log_path.read_text().splitlines() if line.startswith("{")]

    def served(self, headers: Mapping[str, str] | None = None) -> str:
        """Return the id of the snapshot that is served."""
        found = httpx.get(f"{self.url}/v1/indexes", headers=dict(headers or {}), timeout=60).json()
        served: str = found["indexes"][0]["snapshot"]
        return served

    def metric(self, name: str) -> float | None:
        """Return the value of a series, None if there is none of that name and labels."""
        for line in httpx.get(f"{self.url}/metrics", timeout=60).text.splitlines():
            if line.startswith(f"{name} "):
                return float(line.split()[-1])
        return None
