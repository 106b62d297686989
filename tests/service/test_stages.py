"""A request's stages are timed once each and end at its deadline."""

import asyncio

import pytest

from service.metrics import Metrics
from service.problems import DeadlineExceeded
from service.stages import Deadline, Stages


def test_a_stage_that_waits_ends_at_the_deadline() -> None:
    async def main() -> None:
        stages = Stages(Metrics(), Deadline.after(0.01))
        with pytest.raises(DeadlineExceeded, match="`rerank`"):
            async with stages.stage("rerank"):
                await asyncio.Event().wait()
        assert stages.seconds["rerank"] > 0

    asyncio.run(main())


def test_a_stage_is_not_begun_after_the_deadline() -> None:
    async def main() -> None:
        stages = Stages(Metrics(), Deadline.after(-1))
        with pytest.raises(DeadlineExceeded, match="`fuse`"):
            async with stages.stage("fuse"):
                raise AssertionError("begun")
        assert stages.seconds == {}

    asyncio.run(main())


def test_a_timeout_of_something_else_is_not_the_deadline() -> None:
    async def main() -> None:
        stages = Stages(Metrics(), Deadline.after(60))
        with pytest.raises(TimeoutError):
            async with stages.stage("read"):
                raise TimeoutError

    asyncio.run(main())


def test_a_stage_is_observed_once_and_belongs_to_the_total() -> None:
    async def main() -> None:
        metrics = Metrics()
        stages = Stages(metrics, Deadline.after(60))
        for name in ("encode", "fuse"):
            async with stages.stage(name):
                pass
        timings = stages.timings()
        assert list(timings) == ["encode", "fuse", "total"]
        assert timings["encode"] + timings["fuse"] <= timings["total"]
        assert b'tercet_stage_duration_seconds_count{stage="encode"} 1.0' in metrics.expose()

    asyncio.run(main())
