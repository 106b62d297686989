"""How much processor time a build gets: one of the lowest priority gets none while others want all of it.

Read from Linux's `/proc`; elsewhere nobody knows. See proc(5).
"""

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

_LOGGER = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
STARVING_SECONDS = 60.0
STARVING_SHARE = 0.05  # of one core, over that time

_PROC = Path("/proc")
_GROUP, _TIMES = 2, slice(11, 15)  # fields of `stat` after the name: its group; user, system, and those of its children


async def watch_clock(group: int, tell: Callable[[float], None], job_id: str) -> None:
    """Tell the processor time of a process group every few seconds, until cancelled; log once if it starves."""
    clock = asyncio.get_running_loop().time
    seen: deque[tuple[float, float]] = deque()
    has_starved = False
    while (seconds := await asyncio.to_thread(cpu_seconds, group)) is not None:
        tell(seconds)
        seen.append((clock(), seconds))
        while len(seen) > 1 and seen[1][0] <= seen[-1][0] - STARVING_SECONDS:
            seen.popleft()
        if not has_starved and is_starving(seen):
            has_starved = True
            _LOGGER.warning("a job gets hardly any processor time", extra={"job_id": job_id, "cpu_seconds": seconds})
        await asyncio.sleep(LOOK_SECONDS)


def is_starving(seen: Sequence[tuple[float, float]]) -> bool:
    """Whether what was seen spans a minute in which it had less than a share of one core.

    Args:
        seen: pairs of a time and the processor time until then, both in seconds, in order.
    """
    (began, before), (now, after) = seen[0], seen[-1]
    return now - began >= STARVING_SECONDS and after - before < STARVING_SHARE * (now - began)


def cpu_seconds(group: int) -> float | None:
    """Return what the processes of a group and the children that they waited for have used, None if none is there."""
    ticks: list[int] = []
    for path in _PROC.glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            fields = path.read_bytes().rpartition(b")")[2].split()
            if int(fields[_GROUP]) == group:
                ticks += map(int, fields[_TIMES])
    return sum(ticks) / os.sysconf("SC_CLK_TCK") if ticks else None
