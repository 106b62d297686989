"""What calls about indexing jobs return, as `responses` has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from tercet_client.options import OnError

JobState: TypeAlias = Literal["queued", "running", "succeeded", "failed", "cancelled", "interrupted"]


@dataclass(frozen=True, slots=True)
class JobProgress:
    """How far a build is; `total` is None while it is unknown."""

    stage: str
    done: int
    total: int | None


@dataclass(frozen=True, slots=True)
class Job:
    """One build of an index, of a `source` that the service can read or of a file that was sent. Times are UTC."""

    job_id: str
    state: JobState
    index: str
    source: str | None
    file_name: str | None
    on_error: OnError
    created_at: datetime
    update: bool = False
    started_at: datetime | None = None
    ended_at: datetime | None = None
    progress: JobProgress | None = None
    cpu_seconds: float | None = None
    result: Mapping[str, object] | None = None
    error: str | None = None

    @property
    def is_over(self) -> bool:
        """Whether nothing about it will change any more."""
        return self.ended_at is not None


@dataclass(frozen=True, slots=True)
class JobList:
    """Jobs, the newest first."""

    jobs: tuple[Job, ...]
