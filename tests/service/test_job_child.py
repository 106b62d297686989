"""A job's own process: the lowest priority for all of it, no life without the service, nothing from outside."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

# Stands in for `service.cli`: tells its priority and that of a worker, then waits.
PROGRAM = """
import os, subprocess, sys, time, types
def run(arguments):
    tell = "import os, sys; print(os.getpid(), os.getpriority(0, 0), os.sched_getscheduler(0), flush=True)"
    exec(tell)
    worker = [sys.executable, "-S", "-c", tell + "; import time; time.sleep(20); print('alive')"]
    subprocess.Popen(worker, stdin=subprocess.DEVNULL)
    time.sleep(600)
sys.modules["service.cli"] = types.SimpleNamespace(run=run)
from service.job_child import main
main()
"""


def child(root: Path, *, program: str = PROGRAM) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", program, str(root), str(root), "index"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def told(process: "subprocess.Popen[str]") -> list[int]:
    assert process.stdout is not None
    return [int(number) for number in process.stdout.readline().split()]


def said(process: "subprocess.Popen[str]") -> str:
    """All that it says until it ends; `communicate` would close its standard input first."""
    assert process.stderr is not None
    return process.stderr.read()


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="this system has no SCHED_IDLE")
def test_the_build_and_its_workers_have_the_lowest_priority_and_die_with_the_service(tmp_path: Path) -> None:
    with child(tmp_path) as process:
        for _, nice, policy in (told(process), told(process)):
            assert (nice, policy) == (19, os.SCHED_IDLE)
        assert process.stdin is not None
        process.stdin.close()  # as the kernel does when the service ends
        assert process.stdout is not None
        assert process.stdout.read() == ""  # the end: the worker, which held it too, is gone
        assert process.wait() == -signal.SIGKILL


def test_sigterm_lets_the_build_tidy_up(tmp_path: Path) -> None:
    program = PROGRAM.replace("    time.sleep(600)\nsys", "    os.kill(os.getpid(), 15); time.sleep(600)\nsys")
    with child(tmp_path, program=program.replace("subprocess.Popen(worker", "dict(worker=worker")) as process:
        complaints = said(process)
        assert json.loads(complaints.splitlines()[-1])["exception"][0]["type"] == "KeyboardInterrupt"


def test_a_link_that_leads_out_of_the_root_ends_the_job_before_it_begins(tmp_path: Path) -> None:
    (tmp_path / "out.txt").symlink_to("/etc/passwd")
    with child(tmp_path) as process:
        complaints = said(process)
        assert process.wait() == 1
    assert complaints == f"tercet: {tmp_path}/out.txt is a link that leads out of the folder that jobs may read.\n"


def test_a_fault_of_ours_is_told_without_its_message(tmp_path: Path) -> None:
    program = PROGRAM.replace("    exec(tell)\n", "    raise ValueError('secret')\n")
    with child(tmp_path, program=program) as process:
        complaints = said(process)
    assert json.loads(complaints)["exception"][0]["type"] == "ValueError"
    assert "secret" not in complaints
