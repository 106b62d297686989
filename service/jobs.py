"""Indexing jobs: in which order they run, what becomes of them, and what is remembered.

The oldest waiting job whose index is not being built runs next, as long as fewer than `jobs_at_once` run. A job that
waits survives a restart; one that runs is interrupted by it. All of this happens on one event loop, files and builds
aside, so nothing here needs a lock.
"""

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

from indexer.publish import is_locked
from service.commands.faults import explanation
from service.extras import StartupError
from service.job_history import JobHistory
from service.job_paths import located, real_folder
from service.job_process import Ended, Launch, build_command, run_build
from service.job_store import Job, JobStore, Order, new_job
from service.job_uploads import UploadLimits, save_upload
from service.metrics import Metrics
from service.problems import JobOver, NoSpace, TooManyJobs
from service.settings import Settings, environment_of

_LOGGER = logging.getLogger(__name__)

FOLDER = ".jobs"  # in the data folder; an index's name never begins with a dot

_GRACE_SECONDS = 5.0  # from SIGTERM to SIGKILL; a build that obeys takes a fraction of one
_RETRY_SECONDS = 60
_DYING_SECONDS, _DYING_POLL_SECONDS = 60.0, 0.1

Reason: TypeAlias = Literal["cancelled", "interrupted"]
Command: TypeAlias = Callable[[Job, Path, Path], Sequence[str]]


@dataclass(slots=True)
class _Run:
    """A job that runs, and why it is to end before its time, if it is."""

    index: str
    ending: asyncio.Event = field(default_factory=asyncio.Event)
    reason: Reason | None = None
    task: "asyncio.Task[None] | None" = None

    async def end(self, reason: Reason) -> None:
        """Return when it has ended; of several reasons the first counts."""
        self.reason = reason if self.reason is None else self.reason
        self.ending.set()
        if self.task is not None:
            await asyncio.wait([self.task])


class Jobs:
    """Takes, runs and remembers jobs."""

    def __init__(self, settings: Settings, *, metrics: Metrics, command: Command = build_command) -> None:
        """Take the folder of jobs; those that ran when the last service died are interrupted.

        Raises:
            StartupError: there is no folder for jobs to read, or the one of jobs cannot be had.
        """
        assert settings.jobs_path is not None
        if not settings.jobs_path.is_dir():
            raise StartupError(f"TERCET_JOBS_PATH is {settings.jobs_path}, which is no folder.")
        self._root = real_folder(settings.jobs_path)
        self._settings, self._command = settings, command
        self._store = JobStore(settings.data_path / FOLDER)
        self.history = JobHistory(self._store, metrics, n_kept=settings.jobs_kept)
        self._runs: dict[str, _Run] = {}
        self._n_arriving = 0
        self._is_running = False

    def start(self) -> None:
        """Run what waits, from now on."""
        self._is_running = True
        self._run_next()

    async def stop(self) -> None:
        """Interrupt what runs; what waits goes on waiting."""
        self._is_running = False
        await asyncio.gather(*(run.end("interrupted") for run in self._runs.values()))

    def close(self) -> None:
        """Let another service have the folder."""
        self._store.close()

    async def finds(self, source: str) -> bool:
        """Return whether a source names something below the folder that jobs may read."""
        return await asyncio.to_thread(located, self._root, source) is not None

    async def submit(self, order: Order) -> Job:
        """Queue a job.

        Raises:
            TooManyJobs, NoSpace: it is not taken.
        """
        self._refuse_too_many()
        return await self._accept(uuid.uuid4().hex, order)

    async def submit_upload(self, order: Order, stream: AsyncIterator[bytes], limits: UploadLimits) -> Job:
        """Take the file that the order names, and queue its job; nothing of it remains if that fails.

        Raises:
            TooManyJobs, NoSpace: it is not taken.
            BodyTooLarge, RequestTooSlow, ClientLeft: as `save_upload`.
        """
        assert order.file_name is not None
        self._refuse_too_many()
        job_id = uuid.uuid4().hex
        with ExitStack() as undoing:
            undoing.callback(self._store.remove_upload, job_id)
            self._n_arriving += 1
            try:
                await save_upload(stream, self._store.upload_folder(job_id) / order.file_name, limits)
            finally:
                self._n_arriving -= 1
            job = await self._accept(job_id, order)
            undoing.pop_all()
        return job

    async def cancel(self, job_id: str) -> Job:
        """Return the job when it is cancelled, which takes seconds if it runs.

        Raises:
            UnknownJob: there is none of this id.
            JobOver: it ended otherwise.
        """
        job = self.history.job(job_id)
        if job_id in self._runs:
            await self._runs[job_id].end("cancelled")
        elif job.state == "queued":
            await self._finish(job, Ended(), "cancelled")
        job = self.history.job(job_id)
        if job.state != "cancelled":
            raise JobOver(f"Its state is {job.state}.")
        return job

    def _refuse_too_many(self) -> None:
        limit = self._settings.jobs_waiting
        if self.history.count("queued") + self._n_arriving >= limit:
            raise TooManyJobs(f"The limit is {limit} that wait.", retry_after_seconds=_RETRY_SECONDS)

    async def _accept(self, job_id: str, order: Order) -> Job:
        job = new_job(job_id, order)
        await self.history.add(job)
        _LOGGER.info("job queued", extra={"job_id": job_id, "n_queued": self.history.count("queued")})
        self._run_next()
        return job

    def _run_next(self) -> None:
        for job in self.history.waiting():
            if not self._is_running or len(self._runs) >= self._settings.jobs_at_once:
                return
            if job.index not in {run.index for run in self._runs.values()}:
                run = self._runs[job.job_id] = _Run(job.index)
                run.task = asyncio.create_task(self._run(self.history.begin(job), run))
                run.task.add_done_callback(_log_fault)

    async def _run(self, job: Job, run: _Run) -> None:
        ended, began = Ended(), time.monotonic()
        try:
            await self.history.save(job)
            _LOGGER.info("job started", extra={"job_id": job.job_id})
            await self._outlive_left_build(job.index, run)
            launch = await asyncio.to_thread(self._launch, job)
            tell = partial(self.history.tell, job.job_id)
            ended = await run_build(launch, ending=run.ending, tell=tell)
        except (OSError, NoSpace) as error:
            ended.complaint = explanation(error)
        except asyncio.CancelledError:
            run.reason = "interrupted"
            raise
        finally:
            ended.seconds = time.monotonic() - began  # a clock that is set may say anything
            await self._finish(self.history.job(job.job_id), ended, run.reason)
            self._runs.pop(job.job_id)
            self._run_next()

    async def _outlive_left_build(self, index: str, run: _Run) -> None:
        """Return when the build that the service before left of an index is dead, or seems to be somebody else's.

        It dies by itself, but at its priority that takes a while on a busy machine, and its lock would fail this job.
        """
        path, until = self._settings.data_path / index, time.monotonic() + _DYING_SECONDS
        while index in self.history.left_building and await asyncio.to_thread(is_locked, path):
            if run.ending.is_set() or time.monotonic() > until:
                return
            await asyncio.sleep(_DYING_POLL_SECONDS)

    def _launch(self, job: Job) -> Launch:
        """Return what to start for a job.

        Raises:
            FileNotFoundError: its source is not there any more.
        """
        settings = self._settings
        if job.file_name is None:
            root, source = self._root, located(self._root, job.source or "")
        else:
            root = real_folder(self._store.upload_folder(job.job_id))
            source = located(root, job.file_name)
        if source is None:
            raise FileNotFoundError("The source is not there any more")
        return Launch(
            command=self._command(job, root, source),
            environment=environment_of(settings.model_copy(update={"n_threads": settings.jobs_threads})),
            root=root,
            grace_seconds=min(_GRACE_SECONDS, settings.shutdown_seconds / 2),
            job_id=job.job_id,
        )

    async def _finish(self, job: Job, ended: Ended, reason: Reason | None) -> None:
        """Let a job be over, in memory at once and then on the disk."""
        if ended.result is not None:
            over = self.history.end(job, "succeeded", result=ended.result, seconds=ended.seconds)
        elif reason is not None:
            stopped = "The service was stopped while the job ran."
            error = stopped if reason == "interrupted" else None
            over = self.history.end(job, reason, error=error, seconds=ended.seconds)
        else:
            over = self.history.end(job, "failed", error=ended.failure, seconds=ended.seconds)
        _log_end(over, ended)
        try:
            await self.history.save(over)
        except (OSError, NoSpace):
            _LOGGER.error("the end of a job cannot be written", exc_info=True, extra={"job_id": job.job_id})
        await asyncio.to_thread(self._store.remove_upload, job.job_id)


@asynccontextmanager
async def open_jobs(settings: Settings, *, metrics: Metrics) -> AsyncIterator[Jobs | None]:
    """Give the jobs of the data folder, None where the operator wants none; those that run at the end are interrupted.

    Raises:
        StartupError: as `Jobs`.
    """
    if settings.jobs_path is None:
        yield None
        return
    jobs = await asyncio.to_thread(Jobs, settings, metrics=metrics)
    try:
        yield jobs
    finally:
        await jobs.stop()
        jobs.close()


def _log_end(job: Job, ended: Ended) -> None:
    """Log how a job ended; the exception of a fault of ours as places, without its message."""
    facts = {"job_id": job.job_id, "state": job.state, "exit_code": ended.code, "duration_seconds": ended.seconds}
    if job.state == "failed" and ended.exception is not None:
        _LOGGER.error("job ended", extra=facts | {"exception": ended.exception})
    else:
        _LOGGER.info("job ended", extra=facts)


def _log_fault(task: "asyncio.Task[None]") -> None:
    fault = None if task.cancelled() else task.exception()
    if fault is not None:
        _LOGGER.error("a job could not be run", exc_info=fault)
