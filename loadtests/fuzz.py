"""Fuzz the properties of `tests/fuzz` with inputs that coverage guides, one process a target.

    python loadtests/fuzz.py [TARGET…] --seconds 60 [--jobs 2] [--out DIR]

Every fault with another place in the code is counted once; its first input, with the traceback beside it, is saved
under DIR/<target>, as is an input that crashes or hangs the process, and the slowest. A later run begins with what an
earlier one found. Ends with 1 if there was a fault. `--grow` instead repeats pieces of inputs, and says which of them
take time that grows faster than they do.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
HANGS_AFTER_SECONDS = 20
_STATS = "stats.json"
_WORKER = "--worker"
_GROWN_BYTES = (4_000, 32_000)
_BEGINNINGS = (b"", b"# a", b"+++\n")
_GROWS_TOO_FAST = 3.0  # times as much time a byte at the greater size
_LEAST_SECONDS = 0.1

sys.path.insert(0, str(ROOT))  # of `tests`, which is no installed package


@dataclass
class Stats:
    """What a worker has seen so far: faults by where they are raised, and the slowest input."""

    slowest_seconds: float = 0.0
    faults: dict[str, str] = field(default_factory=dict)

    def save(self, folder: Path) -> None:
        """Write them, for whatever ends the process."""
        (folder / _STATS).write_text(json.dumps(asdict(self)), encoding="utf-8")


@dataclass(frozen=True)
class Outcome:
    """A line of the table."""

    target: str
    executions: int
    per_second: float
    features: int
    n_faults: int
    slowest_seconds: float


def work(name: str, seconds: int, folder: Path) -> None:
    """Fuzz one target in this process, which libFuzzer ends."""
    import atheris

    with atheris.instrument_imports(include=["models", "indexer", "service"]):
        from tests.fuzz.targets import TARGETS
    target = TARGETS[name]
    stats, run = Stats(), runner_of(target)

    def once(content: bytes) -> None:
        began = time.process_time()
        try:
            run(content)
        except Exception as error:  # noqa: BLE001  # whatever it is, it is kept
            _keep_fault(stats, folder, content, error)
        taken = time.process_time() - began
        if taken > 1.25 * stats.slowest_seconds:
            stats.slowest_seconds = taken
            (folder / "slowest").write_bytes(content)
            stats.save(folder)

    stats.save(folder)
    atheris.Setup([sys.argv[0], *_options(target, seconds, folder)], once)
    atheris.Fuzz()


def runner_of(target: Any) -> Any:
    """Return what checks the value that bytes make, by themselves or as choices of hypothesis."""
    if target.read is not None:
        return target.run
    from hypothesis import given, settings

    @settings(database=None, deadline=None)
    @given(target.values)
    def holds(value: object) -> None:
        target.check(value)

    return holds.hypothesis.fuzz_one_input


def _options(target: Any, seconds: int, folder: Path) -> list[str]:
    """Return libFuzzer's options, after the seeds and the words of a target were written where it finds them."""
    corpus, words = folder / "corpus", folder / "words"
    corpus.mkdir(exist_ok=True)
    random = [hashlib.shake_256(bytes([i])).digest(2048) for i in range(32)] if target.read is None else []
    for seed in (*target.seeds, *random):
        (corpus / f"seed-{hashlib.sha256(seed).hexdigest()[:16]}").write_bytes(seed)
    escaped = ["".join(f"\\x{byte:02x}" for byte in word) for word in target.words if 0 < len(word) <= 60]
    words.write_text("".join(f'"{word}"\n' for word in escaped), encoding="ascii")
    return [
        str(corpus),
        *([f"-dict={words}"] if escaped else []),  # an empty one is refused
        f"-max_total_time={seconds}",
        f"-timeout={HANGS_AFTER_SECONDS}",
        f"-artifact_prefix={folder}/",
        f"-max_len={max(1024, 2 * max(len(seed) for seed in (*target.seeds, *random)))}",
        "-len_control=0",
        "-rss_limit_mb=4096",
        "-print_final_stats=1",
    ]


def _keep_fault(stats: Stats, folder: Path, content: bytes, error: Exception) -> None:
    last = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}"
    if place in stats.faults:
        return
    name = f"fault-{hashlib.sha256(content).hexdigest()[:16]}"
    (folder / name).write_bytes(content)
    (folder / f"{name}.txt").write_text("".join(traceback.format_exception(error)), encoding="utf-8", errors="replace")
    stats.faults[place] = name
    stats.save(folder)


def fuzz(name: str, seconds: int, out: Path) -> Outcome:
    """Fuzz one target in a process of its own and return what came of it."""
    folder = (out / name).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    before = set(folder.iterdir())
    command = [sys.executable, str(Path(__file__)), _WORKER, name, str(seconds), str(folder)]
    done = subprocess.run(command, capture_output=True, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)})
    log = done.stderr.decode(errors="replace")
    (folder / "log").write_text(log, encoding="utf-8")
    stats = Stats(**json.loads((folder / _STATS).read_text())) if (folder / _STATS).exists() else Stats()
    ended = {path for path in folder.glob("*-*") if path.name.startswith(("crash", "timeout", "oom"))} - before
    n_faults = len(stats.faults) + max(len(ended), int(done.returncode != 0))
    executions = int(_last(r"number_of_executed_units: (\d+)", log) or _last(r"^#(\d+)", log) or 0)
    features = int(_last(r" ft: (\d+)", log) or 0)
    return Outcome(name, executions, executions / seconds, features, n_faults, stats.slowest_seconds)


def _last(pattern: str, log: str) -> str | None:
    found = re.findall(pattern, log, re.MULTILINE)
    return str(found[-1]) if found else None


def growth(name: str) -> list[tuple[bytes, float, float]]:
    """Return the pieces that take ever longer, repeated, with their seconds at both sizes."""
    from tests.fuzz.targets import TARGETS

    target = TARGETS[name]
    signs = [bytes([byte]) for byte in b" \t\r\n" + bytes(range(33, 127)) if not bytes([byte]).isalnum()]
    found = []
    for piece in dict.fromkeys([*target.words, *signs, b"a"]):
        for before in _BEGINNINGS if piece else ():
            short, long = (before + piece * (size // len(piece)) + b"x" for size in _GROWN_BYTES)
            for _ in range(2):  # the second time to be sure: others may use the processor too
                taken = _seconds(target, short), _seconds(target, long)
                grows = taken[1] / len(long) > _GROWS_TOO_FAST * taken[0] / len(short)
                if taken[1] < _LEAST_SECONDS or not grows:
                    break
            else:
                found.append((before + piece, *taken))
    return found


def _seconds(target: Any, content: bytes) -> float:
    began = time.process_time()
    target.run(content)
    return time.process_time() - began


def main(
    targets: Annotated[list[str] | None, typer.Argument(help="Names of targets; all where none is given.")] = None,
    seconds: Annotated[int, typer.Option(min=1, help="For each target.")] = 60,
    jobs: Annotated[int, typer.Option(min=1, help="Targets at once.")] = 1,
    out: Annotated[Path, typer.Option(help="Where corpora and faults are kept.")] = Path("data/fuzz"),
    grow: Annotated[bool, typer.Option("--grow", help="Look for time that grows too fast instead.")] = False,
) -> None:
    """Fuzz the properties of tests/fuzz."""
    from tests.fuzz.targets import TARGETS

    names = targets or list(TARGETS)
    if unknown := sorted({*names} - {*TARGETS}):
        raise typer.BadParameter(f"{unknown[0]!r} is none of {', '.join(TARGETS)}")
    console = Console()
    if grow:
        slow = {name: growth(name) for name in names if TARGETS[name].read is not None}
        for name, pieces in slow.items():
            for piece, short, long in pieces:
                console.print(f"{name}: {piece!r} {short:.3f} s, then {long:.3f} s", markup=False, highlight=False)
        raise typer.Exit(int(any(slow.values())))
    with ThreadPoolExecutor(jobs) as pool:
        outcomes = list(pool.map(lambda name: fuzz(name, seconds, out), names))
    console.print(_table(outcomes))
    raise typer.Exit(int(any(outcome.n_faults for outcome in outcomes)))


def _table(outcomes: list[Outcome]) -> Table:
    table = Table("target")
    for name in ("executions", "a second", "features", "faults", "slowest, ms"):
        table.add_column(name, justify="right")
    for each in outcomes:
        table.add_row(
            each.target,
            f"{each.executions:,}",
            f"{each.per_second:,.0f}",
            f"{each.features:,}",
            str(each.n_faults),
            f"{1000 * each.slowest_seconds:,.0f}",
        )
    return table


if __name__ == "__main__":
    if sys.argv[1:2] == [_WORKER]:
        work(sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
    else:
        typer.run(main)
