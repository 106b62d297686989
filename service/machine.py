"""What this machine has, its CPU and its memory, as Linux tells; elsewhere little is known. How its heap is shared."""

import ctypes
import os
from dataclasses import dataclass
from pathlib import Path

_PROC, _CGROUP = Path("/proc"), Path("/sys/fs/cgroup")
# what multiplies small numbers fast, by its name in /proc/cpuinfo
_MULTIPLIERS = {
    "amx_bf16": "AMX-BF16",
    "avx512_bf16": "AVX512-BF16",
    "avx512_vnni": "AVX512-VNNI",
    "avx_vnni": "AVX-VNNI",
    "asimddp": "dot products",
    "bf16": "BF16",
    "i8mm": "I8MM",
}
_M_ARENA_MAX = -8  # of glibc's malloc.h


def share_heap() -> None:
    """Let all threads of this process allocate from one heap, where the C library is glibc; call it before they start.

    Each of its threads would else keep a heap of its own, with what it freed: a tenth of a service's memory.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)


@dataclass(frozen=True, slots=True)
class Cpu:
    """A CPU's name, which of its units multiply bfloat16 or int8, and how many cores the machine has of it."""

    name: str
    multipliers: tuple[str, ...]
    n_cores: int


@dataclass(frozen=True, slots=True)
class Memory:
    """In bytes, None where it is not known: what the machine has, what of it is free to use, the cgroup's limit."""

    total: int | None
    available: int | None
    limit: int | None
    used_of_limit: int | None

    @property
    def usable(self) -> int | None:
        """What one more process may take before something is ended or swapped."""
        left = None if self.limit is None or self.used_of_limit is None else max(0, self.limit - self.used_of_limit)
        known = [each for each in (self.available, left) if each is not None]
        return min(known) if known else None


def this_cpu(proc: Path = _PROC) -> Cpu:
    """Return the CPU of this machine."""
    facts = _facts(proc / "cpuinfo")
    flags = facts.get("flags", facts.get("Features", "")).split()
    name = facts.get("model name", os.uname().machine)
    return Cpu(name, tuple(shown for flag, shown in _MULTIPLIERS.items() if flag in flags), os.cpu_count() or 1)


def this_memory(proc: Path = _PROC, cgroup: Path = _CGROUP) -> Memory:
    """Return the memory of this machine and of this process's cgroup (v2 or v1), seen from inside it.

    Of what the cgroup uses, files that the kernel keeps and could drop are not counted.
    """
    facts = _facts(proc / "meminfo")
    total, available = (_kilobytes(facts.get(name)) for name in ("MemTotal", "MemAvailable"))
    limit = _number(cgroup / "memory.max")
    used, counters = _number(cgroup / "memory.current"), _counters(cgroup / "memory.stat")
    if limit is None:
        v1 = cgroup / "memory"
        limit, used = _number(v1 / "memory.limit_in_bytes"), _number(v1 / "memory.usage_in_bytes")
        counters = _counters(v1 / "memory.stat")
    if limit is None or (total is not None and limit >= total):  # v1 says "no limit" by a very large one
        return Memory(total, available, None, None)
    return Memory(total, available, limit, None if used is None else used - counters.get("inactive_file", 0))


def _facts(path: Path) -> dict[str, str]:
    """Return lines of `name: value`, of a name that comes again the first; none where there is no file."""
    lines = _text(path).splitlines()
    pairs = (line.partition(":") for line in reversed(lines))
    return {name.strip(): value.strip() for name, _, value in pairs}


def _counters(path: Path) -> dict[str, int]:
    pairs = (line.split() for line in _text(path).splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdigit() else None


def _kilobytes(text: str | None) -> int | None:
    number = "" if text is None else text.split()[0]
    return int(number) * 1024 if number.isdigit() else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
