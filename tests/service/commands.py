"""Run the real `tercet` command in a process of its own, with tiny random models."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.service.conftest import TinyModels

TIMEOUT_SECONDS = 120


@dataclass(frozen=True)
class Finished:
    """How a command ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def result(self) -> dict[str, Any]:
        """What a command with --json printed, which is nothing but one JSON object."""
        value = json.loads(self.stdout)
        assert isinstance(value, dict)
        return value

    @property
    def sentence(self) -> str:
        """The one line in which a command that failed says why."""
        assert self.stdout == ""
        assert "Traceback" not in self.stderr
        [line] = self.stderr.strip().splitlines()[-1:]
        assert line.startswith("tercet: ")
        assert line.endswith((".", "!", "?"))
        return line.removeprefix("tercet: ")


@dataclass(frozen=True)
class Tercet:
    """Runs commands with these models and this data folder."""

    environment: Mapping[str, str]

    def __call__(self, *arguments: str | Path, before: Callable[[], None] | None = None, **settings: str) -> Finished:
        """Run one; settings are names without their prefix; `before` runs in the new process."""
        done = subprocess.run(
            [sys.executable, "-m", "service", *map(str, arguments)],
            env={**self.environment, **{f"TERCET_{name}": value for name, value in settings.items()}},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            preexec_fn=before,
        )
        return Finished(done.returncode, done.stdout, done.stderr)

    def buffered(self) -> "Tercet":
        """Return the same whose Python holds back what it prints, as it does by itself."""
        return Tercet({**self.environment, "PYTHONUNBUFFERED": ""})

    def start(self, *arguments: str | Path) -> subprocess.Popen[str]:
        """Start one and leave it running."""
        return subprocess.Popen(
            [sys.executable, "-m", "service", *map(str, arguments)],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=_take_interrupts,
        )


def _take_interrupts() -> None:
    """Undo that a shell's background jobs, and all they start, ignore SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def tercet_with(models: TinyModels, data_path: Path) -> Tercet:
    """Return the command with these models."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TERCET_")}
    folders = {"DUAL_ENCODER": models.dual_encoder, "CROSS_ENCODER": models.cross_encoder, "READER": models.reader}
    environment |= {f"TERCET_{name}": str(path) for name, path in folders.items()}
    return Tercet(environment | {"TERCET_DATA_PATH": str(data_path), "TERCET_N_THREADS": "1"})
