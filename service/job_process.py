"""Run one `tercet index` in a process of its own: start it, follow its news, end it with all its workers."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import orjson

from service.job_clock import watch_clock
from service.job_store import Job, JobProgress

_LINE_BYTES = 16_384  # of a line that the process says; longer ones are cut
_COMPLAINT = b"tercet: "

Tell: TypeAlias = Callable[[JobProgress | float], None]


@dataclass(frozen=True, slots=True)
class Launch:
    """What to start, where its paths begin (for people, so that they see theirs), and how long it may take to end."""

    command: Sequence[str]
    environment: Mapping[str, str]
    root: Path
    grace_seconds: float
    job_id: str


@dataclass(slots=True)
class Ended:
    """How a build's process ended.

    Its code (negative: the signal that killed it; None: it did not start), what it printed, the sentence in which it
    complained, for a fault of ours the places that the exception came through, and how long its job ran.
    """

    code: int | None = None
    result: dict[str, object] | None = None
    complaint: str | None = None
    exception: object = None
    seconds: float | None = None

    @property
    def failure(self) -> str:
        """One sentence on why there is no result."""
        if self.complaint is not None:
            return self.complaint
        if self.code is not None and self.code < 0:
            return f"The build was killed by signal {-self.code}, which the system also sends when memory is short."
        return f"The build failed for a reason of its own (exit code {self.code}); the log says where."


def build_command(job: Job, root: Path, source: Path) -> list[str]:
    """Return the command line that builds a job's index from a source below root, both real paths."""
    arguments = ["index", "--json", "--progress", "json", "--on-error", job.on_error, "--index", job.index]
    arguments += ["--update"] if job.update else []
    # -P: a folder named `service` where this process was started is none of ours.
    return [sys.executable, "-P", "-m", "service.job_child", str(root), str(source), *arguments, "--", str(source)]


async def run_build(launch: Launch, *, ending: asyncio.Event, tell: Tell) -> Ended:
    """Run the process to its end, which `ending` brings nearer; tell takes its progress, and its processor time.

    Raises:
        OSError: it cannot be started.
    """
    process = await asyncio.create_subprocess_exec(
        *launch.command,
        env=launch.environment,
        stdin=asyncio.subprocess.PIPE,  # by whose end it learns that this process has ended
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    ended = Ended()
    stopping = asyncio.create_task(_stop(process, ending, launch.grace_seconds))
    watching = asyncio.create_task(watch_clock(process.pid, tell, launch.job_id))
    reading = asyncio.gather(process.stdout.read(), _follow(process.stderr, ended, tell))
    try:
        ended.code = await process.wait()
    finally:
        _signal(process, signal.SIGKILL)  # its workers, which would hold the pipes open
        stopping.cancel()
        watching.cancel()
        printed, _ = await reading
        await asyncio.gather(stopping, watching, return_exceptions=True)
    if ended.code == 0:
        ended.result = orjson.loads(printed)
    if ended.complaint is not None:
        ended.complaint = ended.complaint.replace(f"{launch.root}/", "")
    return ended


async def _stop(process: asyncio.subprocess.Process, ending: asyncio.Event, grace_seconds: float) -> None:
    await ending.wait()
    _signal(process, signal.SIGTERM)
    await asyncio.sleep(grace_seconds)
    _signal(process, signal.SIGKILL)


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):  # macOS gives the latter for a group of zombies
        os.killpg(process.pid, number)


async def _follow(stream: asyncio.StreamReader, ended: Ended, tell: Tell) -> None:
    """Read what the process says to its end; of that only progress, complaints and faults are kept."""
    async for line in _lines(stream):
        with suppress(ValueError):  # of JSON, in a line that was cut
            if line.startswith(_COMPLAINT):
                ended.complaint = line.removeprefix(_COMPLAINT).decode(errors="replace")
            elif line.startswith(b'{"exception":'):
                ended.exception = orjson.loads(line)["exception"]
            elif line.startswith(b'{"stage":'):
                tell(JobProgress.model_validate_json(line))


async def _lines(stream: asyncio.StreamReader) -> AsyncIterator[bytes]:
    rest = b""
    while chunk := await stream.read(_LINE_BYTES):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line[:_LINE_BYTES]
        rest = rest[:_LINE_BYTES]
    yield rest
