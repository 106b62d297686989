"""Jobs on the disk: whole or not at all, one owner, nothing left over."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from service.extras import StartupError
from service.job_store import Job, JobStore, Order, new_job
from service.problems import NoSpace


def queued(job_id: str, second: int = 0) -> Job:
    job = new_job(job_id, Order("docs", "skip", source="fog.txt"))
    return job.model_copy(update={"created_at": datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC)})


def test_jobs_come_back_as_they_were_in_the_order_in_which_they_came_whatever_the_clock_said(tmp_path: Path) -> None:
    store = JobStore(tmp_path / ".jobs")
    jobs = [queued("b", 2), queued("c", 1), queued("a", 2)]
    for job in (*jobs, jobs[0]):
        store.save(job)
    store.close()
    again = JobStore(tmp_path / ".jobs")
    assert again.load() == jobs
    again.save(queued("d", 0))
    again.close()
    assert JobStore(tmp_path / ".jobs").load() == [*jobs, queued("d", 0)]


def test_a_second_owner_is_refused_until_the_first_is_gone(tmp_path: Path) -> None:
    store = JobStore(tmp_path / ".jobs")
    with pytest.raises(StartupError, match=r"^Another service runs the jobs of .*; unset TERCET_JOBS_PATH"):
        JobStore(tmp_path / ".jobs")
    store.close()
    JobStore(tmp_path / ".jobs").close()


def kept(job: Job, **fields: object) -> bytes:
    return json.dumps({"number": 0, "job": job.model_dump(mode="json") | fields}).encode()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"job_id": "x"',
        b"[]",
        b"\xff",
        kept(queued("b"), created_at="2026-01-01T00:00:00"),
        kept(queued("x/y")),
    ],
)
def test_a_file_that_is_no_job_is_left_aside(tmp_path: Path, content: bytes) -> None:
    store = JobStore(tmp_path / ".jobs")
    store.save(queued("a"))
    (tmp_path / ".jobs" / "b.json").write_bytes(content)
    (tmp_path / ".jobs" / "c.new").write_bytes(b"half")
    assert store.load() == [queued("a")]
    assert not (tmp_path / ".jobs" / "c.new").exists()


def test_an_upload_that_no_job_waits_for_is_removed(tmp_path: Path) -> None:
    store = JobStore(tmp_path / ".jobs")
    store.save(queued("waits"))
    store.save(queued("over").model_copy(update={"state": "failed"}))
    for job_id in ("waits", "over", "unknown"):
        store.upload_folder(job_id).mkdir()
    store.load()
    assert [path.name for path in (tmp_path / ".jobs" / "uploads").iterdir()] == ["waits"]


def test_a_write_that_fails_leaves_the_job_as_it_was(tmp_path: Path) -> None:
    store = JobStore(tmp_path / ".jobs")
    store.save(queued("a"))
    (tmp_path / ".jobs" / "a.new").symlink_to("/dev/full")
    with pytest.raises(NoSpace):
        store.save(queued("a", 5))
    assert store.load() == [queued("a")]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_stops_the_start(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(StartupError, match="Jobs cannot be kept in"):
        JobStore(tmp_path / ".jobs")
    tmp_path.chmod(0o700)
