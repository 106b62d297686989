"""What becomes of jobs: their order, their ends, and what a restart makes of them. A program stands for a build."""

import asyncio
import fcntl
import json
import logging
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from service.extras import StartupError
from service.job_clock import is_starving
from service.job_store import Job, Order
from service.job_uploads import UploadLimits
from service.jobs import Jobs
from service.metrics import Metrics
from service.problems import BodyTooLarge, JobOver, RequestTooSlow, TooManyJobs, UnknownJob
from service.settings import Settings

from .test_metrics import exposed

HANG = 'say(\'{"stage":"read","done":1,"total":null}\'); time.sleep(600)'
PROGRAMS = {
    "ok": 'say(\'{"stage":"embed","done":3,"total":3}\'); print(\'{"n_documents": 3}\')',
    "hang": HANG,
    "stubborn": f"signal.signal(signal.SIGTERM, signal.SIG_IGN); {HANG}",
    "bad": "say('Skipped a file'); say('tercet: ' + sys.argv[1] + '/bad.jsonl is no good.'); sys.exit(1)",
    "fault": 'say(\'{"exception":[{"type":"ValueError","places":[]}]}\'); sys.exit(1)',
    "killed": "os.kill(os.getpid(), signal.SIGKILL)",
    "busy": "while True: pass",
    "locks": "file = open(os.environ['TERCET_DATA_PATH'] + '/docs/lock'); fcntl.flock(file, 6); print('{}')",
}
HEAD = "import fcntl, os, signal, sys, time\ndef say(line): print(line, file=sys.stderr, flush=True)\n"
DEADLINE_SECONDS = 30


def program(job: Job, root: Path, source: Path) -> list[str]:
    return [sys.executable, "-S", "-c", HEAD + PROGRAMS[job.source or "ok"], str(root)]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "root").mkdir()
    for name in PROGRAMS:
        (tmp_path / "root" / name).touch()
    return Settings(data_path=tmp_path / "data", jobs_path=tmp_path / "root", jobs_waiting=5, shutdown_seconds=0.5)


def with_jobs(settings: Settings, work: Callable[[Jobs], Coroutine[Any, Any, None]], *, starts: bool = True) -> Metrics:
    """Do the work on jobs that run, then stop them; return what was counted."""
    metrics = Metrics()

    async def main() -> None:
        jobs = Jobs(settings, metrics=metrics, command=program)
        if starts:
            jobs.start()
        try:
            await asyncio.wait_for(work(jobs), DEADLINE_SECONDS)
        finally:
            await jobs.stop()
            jobs.close()

    asyncio.run(main())
    return metrics


def order(source: str, index: str = "docs") -> Order:
    return Order(index, "skip", source=source)


async def reached(jobs: Jobs, job: Job, *states: str) -> Job:
    while jobs.history.job(job.job_id).state not in states:
        await asyncio.sleep(0.01)
    return jobs.history.job(job.job_id)


async def begun(jobs: Jobs, job: Job) -> Job:
    while jobs.history.job(job.job_id).progress is None:
        await asyncio.sleep(0.01)
    return jobs.history.job(job.job_id)


async def ended(jobs: Jobs, job: Job) -> Job:
    return await reached(jobs, job, "succeeded", "failed", "cancelled", "interrupted")


def on_disk(settings: Settings) -> dict[str, str]:
    return {
        job["job_id"]: job["state"]
        for job in (json.loads(path.read_text())["job"] for path in (settings.data_path / ".jobs").glob("*.json"))
    }


def test_a_job_succeeds_with_the_result_and_the_last_progress_of_its_build(settings: Settings) -> None:
    async def work(jobs: Jobs) -> None:
        taken = await jobs.submit(order("ok"))
        assert (taken.state, taken.source, taken.started_at) == ("queued", "ok", None)
        over = await ended(jobs, taken)
        assert (over.state, over.result, over.error) == ("succeeded", {"n_documents": 3}, None)
        assert over.progress is not None
        assert (over.progress.stage, over.progress.done, over.progress.total) == ("embed", 3, 3)
        assert over.started_at is not None
        assert over.ended_at is not None
        assert taken.created_at <= over.started_at <= over.ended_at

    metrics = with_jobs(settings, work)
    assert set(on_disk(settings).values()) == {"succeeded"}
    assert metrics.registry.get_sample_value("tercet_jobs_over_total", {"state": "succeeded"}) == 1
    assert metrics.registry.get_sample_value("tercet_job_duration_seconds_count", {"state": "succeeded"}) == 1
    assert metrics.registry.get_sample_value("tercet_jobs", {"state": "running"}) == 0


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("bad", "bad.jsonl is no good."),
        ("killed", "The build was killed by signal 9, which the system also sends when memory is short."),
        ("fault", "The build failed for a reason of its own (exit code 1); the log says where."),
    ],
)
def test_a_job_that_fails_says_why_in_one_sentence_and_the_next_runs(
    settings: Settings, source: str, error: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(jobs: Jobs) -> None:
        failed = await ended(jobs, await jobs.submit(order(source)))
        assert (failed.state, failed.error, failed.result) == ("failed", error, None)
        assert (await ended(jobs, await jobs.submit(order("ok")))).state == "succeeded"

    with_jobs(settings, work)
    is_ours = any(record.levelno == logging.ERROR for record in caplog.records)
    assert is_ours == (source == "fault")
    assert "bad.jsonl" not in caplog.text


def test_jobs_run_in_order_and_never_two_of_one_index(settings: Settings) -> None:
    async def work(jobs: Jobs) -> None:
        first = await begun(jobs, await jobs.submit(order("hang")))
        same = await jobs.submit(order("hang"))
        other = await begun(jobs, await jobs.submit(order("hang", "other")))
        third = await jobs.submit(order("hang", "third"))
        states = [jobs.history.job(job.job_id).state for job in (first, same, other, third)]
        assert states == ["running", "queued", "running", "queued"]
        assert jobs.history.newest(2) == [jobs.history.job(third.job_id), jobs.history.job(other.job_id)]
        await jobs.cancel(other.job_id)
        await begun(jobs, third)
        assert jobs.history.job(same.job_id).state == "queued"
        await jobs.cancel(first.job_id)
        await begun(jobs, same)

    with_jobs(settings.model_copy(update={"jobs_at_once": 2}), work)


def test_one_build_runs_at_a_time_by_default(settings: Settings) -> None:
    async def work(jobs: Jobs) -> None:
        await begun(jobs, await jobs.submit(order("hang")))
        other = await jobs.submit(order("hang", "other"))
        assert jobs.history.job(other.job_id).state == "queued"

    with_jobs(settings, work)


@pytest.mark.parametrize("source", ["hang", "stubborn"])
def test_cancelling_ends_a_running_job_and_may_be_repeated(settings: Settings, source: str) -> None:
    async def work(jobs: Jobs) -> None:
        running = await begun(jobs, await jobs.submit(order(source)))
        both = await asyncio.gather(jobs.cancel(running.job_id), jobs.cancel(running.job_id))
        assert [job.state for job in both] == ["cancelled", "cancelled"]
        assert (await jobs.cancel(running.job_id)).state == "cancelled"
        assert (await ended(jobs, await jobs.submit(order("ok")))).state == "succeeded"

    metrics = with_jobs(settings, work)
    assert metrics.registry.get_sample_value("tercet_jobs_over_total", {"state": "cancelled"}) == 1


def test_a_waiting_job_is_cancelled_at_once_and_never_runs(settings: Settings) -> None:
    async def work(jobs: Jobs) -> None:
        await begun(jobs, await jobs.submit(order("hang")))
        waiting = await jobs.submit(order("ok"))
        assert (await jobs.cancel(waiting.job_id)).state == "cancelled"
        assert jobs.history.job(waiting.job_id).started_at is None

    with_jobs(settings, work)


def test_what_is_over_or_unknown_cannot_be_cancelled(settings: Settings) -> None:
    async def work(jobs: Jobs) -> None:
        over = await ended(jobs, await jobs.submit(order("ok")))
        with pytest.raises(JobOver, match="Its state is succeeded"):
            await jobs.cancel(over.job_id)
        with pytest.raises(UnknownJob):
            await jobs.cancel("nothing")

    with_jobs(settings, work)


def test_only_so_many_may_wait(settings: Settings) -> None:
    async def work(jobs: Jobs) -> None:
        for _ in range(5):
            await jobs.submit(order("ok"))
        with pytest.raises(TooManyJobs, match="limit is 5"):
            await jobs.submit(order("ok"))

    with_jobs(settings, work, starts=False)


def test_stopping_interrupts_what_runs_and_what_waits_goes_on_after_a_restart(settings: Settings) -> None:
    known: list[Job] = []

    async def stops(jobs: Jobs) -> None:
        known.append(await begun(jobs, await jobs.submit(order("hang"))))
        known.append(await jobs.submit(order("ok")))

    async def goes_on(jobs: Jobs) -> None:
        interrupted = jobs.history.job(known[0].job_id)
        assert (interrupted.state, interrupted.error) == ("interrupted", "The service was stopped while the job ran.")
        assert (await ended(jobs, known[1])).state == "succeeded"

    with_jobs(settings, stops)
    assert on_disk(settings) == {known[0].job_id: "interrupted", known[1].job_id: "queued"}
    with_jobs(settings, goes_on)


def test_a_job_that_ran_when_the_service_died_is_interrupted_and_says_so(settings: Settings) -> None:
    async def nothing(jobs: Jobs) -> None:
        known.extend(jobs.history.newest(9))

    known: list[Job] = []
    with_jobs(settings, lambda jobs: take(jobs, known), starts=False)
    path = settings.data_path / ".jobs" / f"{known.pop().job_id}.json"
    path.write_text(path.read_text().replace('"queued"', '"running"'))
    with_jobs(settings, nothing)
    assert [(job.state, job.error) for job in known] == [("interrupted", "The service ended while the job ran.")]
    assert set(on_disk(settings).values()) == {"interrupted"}


def test_a_job_waits_for_the_death_of_the_build_that_a_killed_service_left(settings: Settings) -> None:
    async def submit(jobs: Jobs) -> None:
        known.extend([await jobs.submit(order("hang")), await jobs.submit(order("locks"))])

    async def release_soon(jobs: Jobs) -> None:
        asyncio.get_running_loop().call_later(0.5, left.close)
        assert (await ended(jobs, known[1])).state == "succeeded"

    known: list[Job] = []
    with_jobs(settings, submit, starts=False)
    path = settings.data_path / ".jobs" / f"{known[0].job_id}.json"
    path.write_text(path.read_text().replace('"queued"', '"running"'))
    (settings.data_path / "docs").mkdir()
    left = (settings.data_path / "docs" / "lock").open("w")
    fcntl.flock(left, fcntl.LOCK_EX)
    with_jobs(settings, release_soon)


async def take(jobs: Jobs, taken: list[Job]) -> None:
    taken.append(await jobs.submit(order("hang")))


def test_only_the_last_that_are_over_are_kept(settings: Settings) -> None:
    async def work(jobs: Jobs) -> None:
        over = [await ended(jobs, await jobs.submit(order("ok"))) for _ in range(4)]
        assert [job.job_id for job in jobs.history.newest(9)] == [over[3].job_id, over[2].job_id]

    with_jobs(settings.model_copy(update={"jobs_kept": 2}), work)
    assert len(on_disk(settings)) == 2


def test_a_job_that_ends_after_the_clock_was_set_back_is_not_forgotten_for_it(settings: Settings) -> None:
    async def two(jobs: Jobs) -> None:
        for _ in range(2):
            await ended(jobs, await jobs.submit(order("ok")))

    async def one_more(jobs: Jobs) -> None:
        last = await ended(jobs, await jobs.submit(order("ok")))
        assert jobs.history.newest(9)[0] == last
        assert len(jobs.history.newest(9)) == 2

    settings = settings.model_copy(update={"jobs_kept": 2})
    with_jobs(settings, two)
    for path in (settings.data_path / ".jobs").glob("*.json"):
        kept = json.loads(path.read_text())
        kept["job"] |= dict.fromkeys(("created_at", "started_at", "ended_at"), "2100-01-01T00:00:00Z")
        path.write_text(json.dumps(kept))
    metrics = with_jobs(settings, one_more)
    assert exposed(metrics)["tercet_job_duration_seconds_count"][(("state", "succeeded"),)] == 1


def test_a_source_that_has_gone_meanwhile_fails_its_job(settings: Settings) -> None:
    async def work(jobs: Jobs) -> None:
        await begun(jobs, hanging := await jobs.submit(order("hang")))
        gone = await jobs.submit(order("ok"))
        assert settings.jobs_path is not None
        (settings.jobs_path / "ok").unlink()
        await jobs.cancel(hanging.job_id)
        assert (await ended(jobs, gone)).error == "The source is not there any more."

    with_jobs(settings, work)


def test_a_job_says_how_much_of_a_processor_it_has_had(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.job_clock.LOOK_SECONDS", 0.05)

    async def work(jobs: Jobs) -> None:
        job = await jobs.submit(order("busy"))
        while (jobs.history.job(job.job_id).cpu_seconds or 0) < 0.5:
            await asyncio.sleep(0.05)
        over = await jobs.cancel(job.job_id)
        assert over.cpu_seconds is not None

    with_jobs(settings, work)


def test_a_job_that_starves_is_told_once(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="service.job_clock")
    monkeypatch.setattr("service.job_clock.LOOK_SECONDS", 0.01)
    monkeypatch.setattr("service.job_clock.STARVING_SECONDS", 0.2)

    def told() -> list[logging.LogRecord]:
        return [each for each in caplog.records if each.message == "a job gets hardly any processor time"]

    async def work(jobs: Jobs) -> None:
        await begun(jobs, job := await jobs.submit(order("hang")))
        while not told():
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)  # for more of them, were there any
        await jobs.cancel(job.job_id)

    with_jobs(settings, work)
    assert len(told()) == 1


@pytest.mark.parametrize(
    ("seen", "starves"),
    [
        ([(5, 0)], False),
        ([(5, 1), (64, 1)], False),
        ([(5, 1), (35, 1), (65, 3.9)], True),
        ([(5, 1), (35, 1), (65, 4.1)], False),
        ([(5, 1), (205, 10.9)], True),
    ],
)
def test_less_than_a_twentieth_of_a_core_for_a_minute_is_starving(
    seen: list[tuple[float, float]], starves: bool
) -> None:
    assert is_starving(seen) == starves


def test_an_upload_lies_on_the_disk_until_its_job_is_over(settings: Settings) -> None:
    async def work(jobs: Jobs) -> None:
        await begun(jobs, hanging := await jobs.submit(order("hang")))
        sent = await jobs.submit_upload(Order("docs", "skip", file_name="fog.txt"), pieces(3), UploadLimits(9, 5, 0))
        [path] = (settings.data_path / ".jobs" / "uploads").glob("*/fog.txt")
        assert path.read_bytes() == b"abcabcabc"
        await jobs.cancel(hanging.job_id)
        assert (await ended(jobs, sent)).state == "succeeded"

    with_jobs(settings, work)
    assert list((settings.data_path / ".jobs" / "uploads").iterdir()) == []


@pytest.mark.parametrize(("limits", "problem"), [((8, 5), BodyTooLarge), ((9, 0.01), RequestTooSlow)])
def test_an_upload_that_is_refused_leaves_nothing(
    settings: Settings, limits: tuple[int, float], problem: type[Exception]
) -> None:
    async def work(jobs: Jobs) -> None:
        stream = pieces(3, pause_seconds=1 if problem is RequestTooSlow else 0)
        with pytest.raises(problem):
            await jobs.submit_upload(Order("docs", "skip", file_name="fog.txt"), stream, UploadLimits(*limits, 0))
        assert jobs.history.newest(9) == []
        assert list((settings.data_path / ".jobs" / "uploads").iterdir()) == []

    with_jobs(settings, work)


async def pieces(n: int, *, pause_seconds: float = 0) -> AsyncIterator[bytes]:
    for _ in range(n):
        await asyncio.sleep(pause_seconds)
        yield b"abc"


def test_a_root_that_is_no_folder_stops_the_start(settings: Settings, tmp_path: Path) -> None:
    with pytest.raises(StartupError, match=r"TERCET_JOBS_PATH is .*/nothing, which is no folder"):
        Jobs(settings.model_copy(update={"jobs_path": tmp_path / "nothing"}), metrics=Metrics())
