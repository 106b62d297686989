"""What Linux tells of a machine, from files as it writes them."""

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

from service.machine import Cpu, Memory, this_cpu, this_memory


def write(folder: Path, **texts: str) -> Path:
    for name, text in texts.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_info"), reason="another C library than glibc")
@pytest.mark.parametrize(("first", "is_shared"), [("share_heap()", True), ("pass", False)])
def test_threads_share_a_heap(first: str, *, is_shared: bool) -> None:
    program = f"""
import ctypes, threading
from service.machine import share_heap
{first}
libc, wait = ctypes.CDLL(None), threading.Barrier(8)
libc.malloc.restype = libc.fdopen.restype = ctypes.c_void_p
def allocate():
    wait.wait()
    libc.malloc(100_000)
    wait.wait()
threads = [threading.Thread(target=allocate) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
out = ctypes.c_void_p(libc.fdopen(1, b"w"))
libc.malloc_info(0, out)
libc.fflush(out)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    n_heaps = done.stdout.count("<heap nr=")
    assert (n_heaps == 1) is is_shared, n_heaps


def test_a_cpu_is_named_with_the_units_that_matter(tmp_path: Path) -> None:
    processor = "processor\t: {}\nmodel name\t: {}\nflags\t\t: fpu avx2 amx_bf16 avx512_vnni\n\n"
    proc = write(tmp_path, cpuinfo=processor.format(0, "Some CPU: fast") + processor.format(1, "another"))
    found = this_cpu(proc)
    assert (found.name, found.multipliers) == ("Some CPU: fast", ("AMX-BF16", "AVX512-VNNI"))
    assert found.n_cores >= 1


def test_a_cpu_that_says_little_is_named_by_its_architecture(tmp_path: Path) -> None:
    found = this_cpu(write(tmp_path, cpuinfo="processor : 0\nFeatures : fp asimddp bf16\n"))
    assert found.multipliers == ("dot products", "BF16")
    assert found.name != ""
    assert isinstance(this_cpu(tmp_path / "none"), Cpu)


def test_memory_is_what_the_limit_leaves_and_files_in_it_count_for_nothing(tmp_path: Path) -> None:
    proc = write(tmp_path, meminfo="MemTotal:  4000 kB\nMemFree:  1 kB\nMemAvailable:  3000 kB\n")
    assert this_memory(proc, tmp_path / "none").usable == 3000 * 1024
    cgroup = tmp_path / "v2"
    cgroup.mkdir()
    stat = "anon 900\ninactive_file 400\n"
    write(cgroup, memory__max="2000000\n", memory__current="1000000\n", memory__stat=stat)
    assert this_memory(proc, cgroup) == Memory(4096000, 3072000, 2000000, 999600)
    assert this_memory(proc, cgroup).usable == 1000400
    write(cgroup, memory__max="max\n")
    assert this_memory(proc, cgroup).limit is None


def test_version_1_of_cgroups_says_no_limit_by_a_large_one(tmp_path: Path) -> None:
    proc = write(tmp_path, meminfo="MemTotal: 4000 kB\nMemAvailable: 3000 kB\n")
    (tmp_path / "memory").mkdir()
    for limit, expected in (("9223372036854771712", None), ("1000000", 1000000)):
        write(tmp_path / "memory", memory__limit_in_bytes=limit, memory__usage_in_bytes="300", memory__stat="")
        assert this_memory(proc, tmp_path).limit == expected


def test_a_machine_that_tells_nothing_is_no_fault(tmp_path: Path) -> None:
    assert this_memory(tmp_path, tmp_path) == Memory(None, None, None, None)
    assert this_memory(tmp_path, tmp_path).usable is None
