"""What runs in a job's own process: it takes the lowest priority, dies with the service, then runs a command line.

`python -m service.job_child ROOT SOURCE ARGUMENT...` runs `tercet ARGUMENT...` if SOURCE and its links stay below ROOT.

**Priority.** Linux's SCHED_IDLE runs a thread only where no other wants the core, and whoever wakes takes the core
from it at once; nice 19 alone would keep its share of a busy core (15 of 1,039 parts against one other thread) and
make a waking thread wait. Nice 19 is set too, for systems without SCHED_IDLE and for the order of disk reads.

**Death.** The service holds the other end of this process's standard input and never writes to it. However the service
ends, the kernel closes that end, and this process kills its group, so that its workers die too. PR_SET_PDEATHSIG would
be sent when the *thread* that started the process ends, and only Linux has it.

This module imports little, because it works before the priority is taken.
"""

import contextlib
import os
import signal
import sys
import threading
from pathlib import Path
from types import TracebackType

import orjson

from service.job_paths import leaving_link
from service.logs import describe

_STDIN = 0


def main() -> None:
    """Run the command line, and exit with its code."""
    take_lowest_priority()
    threading.Thread(target=_die_with_service, daemon=True).start()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that what was begun is tidied up
    sys.excepthook = _tell_places
    root, source, *arguments = sys.argv[1:]
    link = leaving_link(Path(root), Path(source))
    if link is not None:
        sys.exit(f"tercet: {link} is a link that leads out of the folder that jobs may read.")
    from service.cli import run

    sys.exit(run(arguments))


def take_lowest_priority() -> None:
    """Let this process, and all that it starts, have what no other wants of the processor and of the disk."""
    os.setpriority(os.PRIO_PROCESS, 0, 19)
    if hasattr(os, "SCHED_IDLE"):
        with contextlib.suppress(OSError):  # some sandboxes refuse it; nice 19 remains
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def _die_with_service() -> None:
    os.read(_STDIN, 1)  # nothing is ever written, so this is the end of the file
    os.killpg(0, signal.SIGKILL)


def _tell_places(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    """Write a fault of ours as the service's log would have it: its places, without its message."""
    sys.stderr.write(orjson.dumps({"exception": describe(error)}).decode() + "\n")


if __name__ == "__main__":
    main()
