"""What is known of indexing jobs, kept over restarts.

<data>/.jobs/lock                held (flock) by the one service that runs jobs of this data folder
<data>/.jobs/<job id>.json       a job, replaced by one rename
<data>/.jobs/uploads/<job id>/   the file that was sent with it, until it is over
"""

import errno
import fcntl
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Literal, TypeAlias

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from service.extras import StartupError
from service.problems import NoSpace

_LOGGER = logging.getLogger(__name__)

State: TypeAlias = Literal["queued", "running", "succeeded", "failed", "cancelled", "interrupted"]
OnError: TypeAlias = Literal["skip", "fail"]

_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class JobProgress(BaseModel):
    """How far a build is: documents in "read" and "chunk", passages in "embed"; total null while it is unknown."""

    model_config = ConfigDict(frozen=True)

    stage: str
    done: int
    total: int | None


class Job(BaseModel):
    """One build of an index, as its file and the API have it. Times are UTC."""

    model_config = ConfigDict(frozen=True)

    job_id: str
    state: State
    index: str
    source: str | None = Field(description="Path below TERCET_JOBS_PATH; null for an upload.")
    file_name: str | None = Field(description="Name of the file that was sent; null for a source.")
    on_error: OnError
    update: bool = Field(default=False, description="Whether the documents that are there stay, or give way.")
    created_at: AwareDatetime
    started_at: AwareDatetime | None = None
    ended_at: AwareDatetime | None = None
    progress: JobProgress | None = Field(default=None, description="The last that the build told, since the start.")
    cpu_seconds: float | None = Field(
        default=None,
        description="Processor time of its build so far, looked at every two seconds; null while unknown, and where "
        "the system is not Linux. If it stands still while the job runs, other work keeps the processors busy.",
    )
    result: dict[str, object] | None = Field(
        default=None, description="What `tercet index --json` prints; null unless the job has succeeded."
    )
    error: str | None = Field(default=None, description="One sentence on why it failed or was interrupted.")


@dataclass(frozen=True, slots=True)
class Order:
    """What a client wants built: an index, from a source below the jobs' folder or from a file that it sends."""

    index: str
    on_error: OnError
    update: bool = False
    source: str | None = None
    file_name: str | None = None


def new_job(job_id: str, order: Order) -> Job:
    """Return a job that waits from now on."""
    return Job(job_id=job_id, state="queued", created_at=datetime.now(UTC), **asdict(order))


class _Kept(BaseModel):
    """What is in a job's file."""

    number: int
    job: Job


class JobStore:
    """The folder of jobs, held by one process at a time."""

    def __init__(self, folder: Path) -> None:
        """Make the folder if it is not there, and take it.

        Raises:
            StartupError: another service has it, or it cannot be written.
        """
        self._folder, self._uploads = folder, folder / "uploads"
        self._numbers: dict[str, int] = {}  # in which order jobs came; a clock that is set back does not change it
        self._next_number = count()
        try:
            self._uploads.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise StartupError(
                f"Another service runs the jobs of {folder.parent}; unset TERCET_JOBS_PATH for all but one."
            ) from None
        except OSError as error:
            raise StartupError(f"Jobs cannot be kept in {folder}: {error.strerror}.") from error

    def close(self) -> None:
        """Let another process have the folder."""
        os.close(self._lock)

    def load(self) -> list[Job]:
        """Return all jobs in the order in which they came; remove what a killed service left over."""
        for path in self._folder.glob("*.new"):
            path.unlink()
        found = [kept for kept in map(_read, self._folder.glob("*.json")) if kept is not None]
        self._numbers = {kept.job.job_id: kept.number for kept in found}
        self._next_number = count(max(self._numbers.values(), default=0) + 1)
        jobs = [kept.job for kept in found]
        waiting = {job.job_id for job in jobs if job.state == "queued"}
        for path in self._uploads.iterdir():
            if path.name not in waiting:
                shutil.rmtree(path)
        return sorted(jobs, key=lambda job: (self._numbers[job.job_id], job.created_at, job.job_id))

    def save(self, job: Job) -> None:
        """Write a job; a reader, or a machine that lost its power, has either the old or the new one.

        Raises:
            NoSpace: the disk is full.
        """
        path = self._path(job.job_id)
        with space_needed(), path.with_suffix(".new").open("wb") as file:
            file.write(_Kept(number=self._number(job.job_id), job=job).model_dump_json(indent=2).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        path.with_suffix(".new").replace(path)

    def forget(self, job_id: str) -> None:
        """Remove a job."""
        self._path(job_id).unlink(missing_ok=True)
        self._numbers.pop(job_id, None)

    def upload_folder(self, job_id: str) -> Path:
        """Return where a job's upload lies; that folder is there only while it is needed."""
        return self._uploads / job_id

    def remove_upload(self, job_id: str) -> None:
        """Remove a job's upload, if there is one."""
        shutil.rmtree(self.upload_folder(job_id), ignore_errors=True)

    def _number(self, job_id: str) -> int:
        return self._numbers.setdefault(job_id, next(self._next_number))

    def _path(self, job_id: str) -> Path:
        return self._folder / f"{job_id}.json"


@contextmanager
def space_needed() -> Iterator[None]:
    """Turn a full disk into the problem that it is.

    Raises:
        NoSpace: it is full, or a quota is used up.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _NO_SPACE:
            raise NoSpace("The disk of the data folder is full, or a quota is used up.") from error
        raise


def _read(path: Path) -> _Kept | None:
    try:
        kept = _Kept.model_validate_json(path.read_bytes())
    except (ValidationError, OSError):
        kept = None
    if kept is None or kept.job.job_id != path.stem:
        _LOGGER.warning("a job's file cannot be read, or is another job's", extra={"job_id": path.stem})
        return None
    return kept
