"""The process that reads HTML, PDF and Office files: its limits, its end, and what of it reaches the next file."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from indexer.errors import NoDocumentError, SourceError
from indexer.extractor import EXTRACTED, Extractor, FileLimits
from tests.indexer.small_files import pdf, sheets, slides, word

FILES = {".html": b"<html lang=en><title>Fog</title><li>one", ".pdf": pdf(["a", ""], damaged=2), ".docx": word()}
FILES |= {".pptx": slides(), ".xlsx": sheets()}

# Each stands for what a library can do to its process; it takes the place of pypdf.
BUSY = "for i in range(10**10): pass"
GREEDY = "all = []\nwhile True: all.append(bytes(1 << 20))"
FATAL = "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)"
MISSING = "raise ImportError"


@pytest.fixture
def extractor() -> Iterator[Extractor]:
    with closing(Extractor(FileLimits(cpu_seconds=1, memory_bytes=400_000_000))) as extractor:
        yield extractor


@pytest.fixture
def pypdf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the process takes for pypdf."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    return tmp_path / "pypdf.py"


def process_of(extractor: Extractor) -> int:
    assert extractor._process is not None
    return extractor._process.pid


def refusal(extractor: Extractor, content: bytes = b"%PDF", *, suffix: str = ".pdf") -> tuple[str, str]:
    with pytest.raises(NoDocumentError) as refused:
        extractor.read(suffix, content)
    return refused.value.kind, str(refused.value)


def test_one_process_says_what_the_readers_say_and_refuses_what_they_refuse(extractor: Extractor) -> None:
    processes = set()
    broken = b"<p>&#" + b"9" * 5000 + b";"
    for suffix, content in FILES.items():
        assert extractor.read(suffix, content) == EXTRACTED[suffix](content)
        with pytest.raises(NoDocumentError) as refused:
            EXTRACTED[suffix](broken)
        assert refusal(extractor, broken, suffix=suffix) == (refused.value.kind, str(refused.value))
        processes.add(process_of(extractor))
    assert len(processes) == 1


@pytest.mark.parametrize(
    ("library", "kind", "reason"),
    [
        (BUSY, "too-long", "takes over 1 s of processor time to read"),
        (GREEDY, "too-long", "takes over 400000000 bytes of memory to read"),
        (FATAL, "damaged", "ended the process that read it (signal 11)"),
        (MISSING, "missing-extra", "needs the extra `files`: run pip install --editable '.[files]' in Tercet's folder"),
    ],
)
def test_what_a_file_does_to_its_library_costs_it_alone(
    extractor: Extractor, pypdf: Path, library: str, kind: str, reason: str
) -> None:
    pypdf.write_text(library)
    assert refusal(extractor) == (kind, reason)
    assert extractor.read(".docx", FILES[".docx"]) == EXTRACTED[".docx"](FILES[".docx"])


def test_only_its_parent_ends_the_process_and_else_a_file_is_read_again_in_a_new_one(extractor: Extractor) -> None:
    extractor.read(".html", b"<p>a")
    first = process_of(extractor)
    os.kill(first, signal.SIGINT)  # as Ctrl-C in a terminal does to both
    extractor.read(".html", b"<p>a")
    assert process_of(extractor) == first
    os.kill(first, signal.SIGKILL)
    assert extractor.read(".pdf", FILES[".pdf"]) == EXTRACTED[".pdf"](FILES[".pdf"])
    assert process_of(extractor) != first


def test_a_reply_that_is_longer_than_any_can_be_is_not_read(
    extractor: Extractor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("indexer.extractor._MAX_REPLY_BYTES", 100)
    assert refusal(extractor, b"a" * 101, suffix=".html") == ("damaged", "ended the process that read it (signal 9)")


def test_a_reply_that_comes_after_ctrl_c_is_not_taken_for_that_of_the_next_file(
    extractor: Extractor, pypdf: Path
) -> None:
    pypdf.write_text(f"import os, signal, time\nos.kill({os.getpid()}, signal.SIGUSR1)\ntime.sleep(1)")
    handler = signal.signal(signal.SIGUSR1, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            extractor.read(".pdf", b"%PDF")
    finally:
        signal.signal(signal.SIGUSR1, handler)
    assert extractor.read(".html", b"<p>a") == EXTRACTED[".html"](b"<p>a")


def test_a_process_that_does_not_start_is_no_fault_of_the_file(
    extractor: Extractor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(SourceError, match="HTML, PDF and Office files ended with code 1 when it was started"):
        extractor.read(".html", b"a")
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(SourceError, match="cannot be started: No such file or directory"):
        extractor.read(".html", b"a")


PARENT = """
import signal
from contextlib import closing
from indexer.extractor import Extractor
signal.signal(signal.SIGINT, signal.default_int_handler)  # which what runs in the background begins without
with closing(Extractor()) as extractor:
    extractor.read(".html", b"a")
    print(extractor._process.pid, flush=True)
    extractor.read(".pdf", b"%PDF")
"""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="this system cannot wait for a process of another")
@pytest.mark.parametrize(
    ("number", "is_for_both"), [(signal.SIGKILL, False), (signal.SIGTERM, False), (signal.SIGINT, True)]
)
def test_the_process_ends_with_its_parent_in_the_middle_of_a_file(
    pypdf: Path, number: signal.Signals, *, is_for_both: bool
) -> None:
    pypdf.write_text(BUSY)
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=pipe, stderr=pipe, start_new_session=True) as parent:
        assert parent.stdout is not None
        assert parent.stderr is not None
        process = os.pidfd_open(int(parent.stdout.readline()))
        try:
            (os.killpg if is_for_both else os.kill)(parent.pid, number)
            assert parent.wait() == -number
            ended, _, _ = select.select([process], [], [], 60)
            assert ended
        finally:
            os.close(process)
        assert parent.stderr.read().count(b"Traceback") == (number == signal.SIGINT)
