"""The jobs that are known: in memory for whoever asks, on the disk for the service that comes after this one."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice

from service.job_store import Job, JobProgress, JobStore, State
from service.metrics import Metrics
from service.problems import UnknownJob


class JobHistory:
    """Every job that waits or runs, and the last n_kept that are over. What changes is in memory before it is saved."""

    def __init__(self, store: JobStore, metrics: Metrics, *, n_kept: int) -> None:
        """Load the jobs; those that ran when the last service died are interrupted."""
        self._store, self._metrics, self._n_kept = store, metrics, n_kept
        self._jobs = {job.job_id: job for job in store.load()}  # the one that came first first
        over = [(job.ended_at, job.job_id) for job in self._jobs.values() if job.ended_at is not None]
        self._over = [job_id for _, job_id in sorted(over)]  # the one that ended first first, whatever its clock said
        ran = [job for job in self._jobs.values() if job.state == "running"]
        self.left_building = frozenset(job.index for job in ran)  # by builds that may not have died yet
        for job in ran:
            store.save(self.end(job, "interrupted", error="The service ended while the job ran."))
        metrics.watch_jobs(self.count)

    def newest(self, limit: int) -> list[Job]:
        """Return at most limit jobs, the newest first."""
        return list(islice(reversed(self._jobs.values()), limit))

    def waiting(self) -> Iterator[Job]:
        """Yield the jobs that wait, the oldest first."""
        return (job for job in list(self._jobs.values()) if job.state == "queued")

    def count(self, state: str) -> int:
        """Return how many jobs are in a state."""
        return sum(job.state == state for job in self._jobs.values())

    def job(self, job_id: str) -> Job:
        """Return a job.

        Raises:
            UnknownJob: there is none of this id.
        """
        if job_id not in self._jobs:
            raise UnknownJob(f"There is no job of that id; the last {self._n_kept} that are over are kept.")
        return self._jobs[job_id]

    async def add(self, job: Job) -> None:
        """Save a new job, then know it.

        Raises:
            NoSpace: the disk is full.
        """
        await self.save(job)
        self._jobs[job.job_id] = job

    async def save(self, job: Job) -> None:
        """Write a job to the disk.

        Raises:
            NoSpace: the disk is full.
        """
        await asyncio.to_thread(self._store.save, job)

    def begin(self, job: Job) -> Job:
        """Return the job as one that runs."""
        return self._change(job, state="running", started_at=datetime.now(UTC))

    def tell(self, job_id: str, news: JobProgress | float) -> None:
        """Take the news of a job that runs: how far it is, or how many seconds of a processor it has had."""
        if isinstance(news, JobProgress):
            self._change(self._jobs[job_id], progress=news)
        else:
            self._change(self._jobs[job_id], cpu_seconds=news)

    def end(
        self,
        job: Job,
        state: State,
        *,
        result: dict[str, object] | None = None,
        error: str | None = None,
        seconds: float | None = None,
    ) -> Job:
        """Return the job as one that is over, count it, and forget the one that was over first if too many are.

        seconds is how long it ran; None if it did not, or nobody knows.
        """
        over = self._change(job, state=state, ended_at=datetime.now(UTC), result=result, error=error)
        self._metrics.jobs_over.labels(state).inc()
        if seconds is not None:
            self._metrics.job_duration_seconds.labels(state).observe(seconds)
        self._over.append(job.job_id)
        self._forget()
        return over

    def _change(self, job: Job, **values: object) -> Job:
        changed = self._jobs[job.job_id] = job.model_copy(update=values)
        return changed

    def _forget(self) -> None:
        forgotten, self._over = self._over[: -self._n_kept], self._over[-self._n_kept :]
        for job_id in forgotten:
            del self._jobs[job_id]
            self._store.forget(job_id)
