"""HTML, PDF and Office files, read in a process apart, so that whatever one of them does to its parser costs it alone.

One process reads file after file, with a limit of address space, and of processor time for each file; the system ends
it where a file goes beyond, and the next file gets another. It is processor time because a busy machine, or the idle
priority of a job, makes no file worse. Frames go both ways through pipes, each its length in 8 bytes and as many bytes:

    start     one, empty, when the process is ready
    request   two: the ending of the file's name, and its content (of HTML the text, as UTF-8)
    reply     one: an `Extracted`, a `PagedFile` or a `_Refused` in JSON

The process ends when the other end of its standard input is closed, which the system does however its parent ends.
"""

import math
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import IO, TypeAlias

from pydantic import TypeAdapter

from indexer.documents import SkipKind
from indexer.errors import NoDocumentError, SourceError
from indexer.html import read_html
from indexer.markup import Extracted
from indexer.office import read_sheets, read_slides, read_word
from indexer.paged import PagedFile
from indexer.pdf import read_pdf

_Requests: TypeAlias = "SimpleQueue[tuple[str, bytes]]"

_LENGTH_BYTES = 8
_MAX_REPLY_BYTES = 128 << 20  # 16 Mi characters are 96 MiB at most, when all are control characters
_OUT_OF_MEMORY = 3


def _read_html_text(content: bytes) -> Extracted:
    return read_html(content.decode())


HTML = (".html", ".htm", ".xhtml")
EXTRACTED: Mapping[str, Callable[[bytes], Extracted | PagedFile]] = {
    **dict.fromkeys(HTML, _read_html_text),
    ".pdf": read_pdf,
    ".docx": read_word,
    ".pptx": read_slides,
    ".xlsx": read_sheets,
}


@dataclass(frozen=True, slots=True)
class FileLimits:
    """What reading one file may take; the defaults are those of the settings."""

    cpu_seconds: int = 120
    memory_bytes: int = 2_000_000_000


@dataclass(frozen=True, slots=True)
class _Refused:
    """A `NoDocumentError` on its way."""

    kind: SkipKind
    reason: str


_REPLY: TypeAdapter[Extracted | PagedFile | _Refused] = TypeAdapter(Extracted | PagedFile | _Refused)


class _EndedError(Exception):
    """The process ended while it read a file; its code is the only argument, negative for a signal."""


class Extractor:
    """The process, started for the first file and again for the one after each that ended it; not thread-safe."""

    def __init__(self, limits: FileLimits | None = None) -> None:
        self._limits = FileLimits() if limits is None else limits
        self._process: subprocess.Popen[bytes] | None = None

    def read(self, suffix: str, content: bytes) -> Extracted | PagedFile:
        """Return what a file says whose name ends in suffix, one of EXTRACTED, whatever was read before it.

        Raises:
            NoDocumentError: it has nothing to say, goes beyond a limit, or ended the process.
            SourceError: the process cannot be started.
        """
        if self._process is not None:
            with suppress(_EndedError):  # maybe by what the files before left in it
                return self._ask(suffix, content)
        self._start()
        try:
            return self._ask(suffix, content)
        except _EndedError as error:
            (code,) = error.args
            if code == _OUT_OF_MEMORY:
                reason = f"takes over {self._limits.memory_bytes} bytes of memory to read"
                raise NoDocumentError("too-long", reason) from error
            how = f"signal {-code}" if code < 0 else f"code {code}"
            raise NoDocumentError("damaged", f"ended the process that read it ({how})") from error

    def _ask(self, suffix: str, content: bytes) -> Extracted | PagedFile:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            _send(self._process.stdin, suffix.encode())
            _send(self._process.stdin, content)
            reply = _REPLY.validate_json(_received(self._process.stdout, at_most=_MAX_REPLY_BYTES))
        except (BrokenPipeError, EOFError) as error:
            code = self._end()
            if code == -signal.SIGXCPU:
                reason = f"takes over {self._limits.cpu_seconds} s of processor time to read"
                raise NoDocumentError("too-long", reason) from error
            raise _EndedError(code) from error
        except BaseException:  # such as Ctrl-C: the reply to this must not be taken for one to the next
            self._end()
            raise
        if isinstance(reply, _Refused):
            raise NoDocumentError(reply.kind, reply.reason)
        return reply

    def _start(self) -> None:
        limits = str(self._limits.cpu_seconds), str(self._limits.memory_bytes)
        what = "the process that reads HTML, PDF and Office files"
        try:
            self._process = subprocess.Popen(  # noqa: S603 - this module, by this interpreter, with two numbers
                [sys.executable, "-P", "-m", "indexer.extractor", *limits],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            assert self._process.stdout is not None
            _received(self._process.stdout)
        except OSError as error:
            raise SourceError(f"{what} cannot be started: {error.strerror}") from error
        except EOFError as error:
            raise SourceError(f"{what} ended with code {self._end()} when it was started") from error

    def close(self) -> None:
        """End the process."""
        self._end()

    def _end(self) -> int:
        """End the process, if there is one, and return its code, which is its own if it had ended before."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.kill()
        with suppress(BrokenPipeError), process:  # closes the pipes, of which one may hold what was not sent, and waits
            pass
        return process.returncode


def _send(stream: IO[bytes], frame: bytes) -> None:
    stream.write(len(frame).to_bytes(_LENGTH_BYTES))
    stream.write(frame)
    stream.flush()


def _received(stream: IO[bytes], *, at_most: int = sys.maxsize) -> bytes:
    """Return the next frame.

    Raises:
        EOFError: it is not there, not to its end, or longer than at_most bytes.
    """
    length = stream.read(_LENGTH_BYTES)
    n_bytes = int.from_bytes(length)
    if len(length) < _LENGTH_BYTES or n_bytes > at_most:
        raise EOFError
    frame = stream.read(n_bytes)
    if len(frame) < n_bytes:
        raise EOFError
    return frame


def _main() -> None:
    """Read files until standard input is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, by whose end this process ends
    cpu_seconds, memory_bytes = map(int, sys.argv[1:])
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # for what a parser prints
    sys.modules["numpy"] = None  # type: ignore[assignment]  # openpyxl would load it for types that no file holds
    requests: _Requests = SimpleQueue()
    threading.Thread(target=_listen, args=(requests,), daemon=True).start()
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_AS, memory_bytes)
    _send(replies, b"")
    with _ends_when_out_of_memory():
        while True:
            suffix, content = requests.get()
            _limit(resource.RLIMIT_CPU, math.ceil(time.process_time()) + cpu_seconds)
            _send(replies, _reply(suffix, content))


def _listen(requests: _Requests) -> None:
    """Pass requests on, in a thread of its own, so that their end ends what is being read as well."""
    try:
        with _ends_when_out_of_memory():
            while True:
                requests.put((_received(sys.stdin.buffer).decode(), _received(sys.stdin.buffer)))
    finally:
        os._exit(0)


@contextmanager
def _ends_when_out_of_memory() -> Iterator[None]:
    try:
        yield
    except MemoryError:
        os._exit(_OUT_OF_MEMORY)


def _limit(what: int, value: int) -> None:
    """Set a limit of this process, or as much of it as its own parents left."""
    _, hard = resource.getrlimit(what)
    with suppress(ValueError, OSError):  # macOS takes no limit of address space
        resource.setrlimit(what, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def _reply(suffix: str, content: bytes) -> bytes:
    try:
        reply = _REPLY.dump_json(EXTRACTED[suffix](content))
    except NoDocumentError as error:
        return _REPLY.dump_json(_Refused(error.kind, str(error)))
    if len(reply) > _MAX_REPLY_BYTES:
        return _REPLY.dump_json(_Refused("too-long", f"takes {len(reply)} bytes; at most {_MAX_REPLY_BYTES} are read"))
    return reply


if __name__ == "__main__":
    _main()
