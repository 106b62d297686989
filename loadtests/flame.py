"""Draw where the time of a search goes: a flame graph of a service under one client's searches, sampled by py-spy.

    pip install py-spy
    python loadtests/flame.py INDEX_FOLDER QUERIES.jsonl.gz --svg flame.svg [--seconds 30] [--no-reranking]

The service is started here, without a cache and without the early exit. A box is as wide as the time that threads spent
in a function or below it, computing: samples of threads that wait are left out, by what they wait in, as what py-spy
takes for idle goes by a thread's state, and a thread that OpenVINO computes for looks idle. Tercet's functions stand by
file, other code by package. Prints the functions in which most of the time ends.
"""

import argparse
import itertools
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TypeAlias

import httpx
from scenarios.processes import Tercet
from target import TargetError, read_queries

Stack: TypeAlias = tuple[str, ...]  # labels, the outermost first

SAMPLES_PER_SECOND = 100
OURS = ("service/", "indexer/", "models/")
WAITS = (
    "wait (threading.py",
    "Condition.wait (",
    "_worker (concurrent/",
    "Runner.run (asyncio/",
    "Queue.get (queue.py",
)
ENTRANCES = ("Runner.run (asyncio/", "_WorkItem.run (concurrent/")  # what lies above it is the same for all work
THREADS = {"MainThread": "event loop", "uvloop": "beside the loop", "model": "batchers"}  # by their names' beginning
PAINT = {"service/": "#9dbbe8", "indexer/": "#a5d6a7", "models/": "#f4c27a"}
OTHER_PAINT = "#d9d9d9"
WIDTH, ROW, LETTER = 1200, 18, 6.3  # in pixels; a letter's width is that of the longest lines
LEAST_SHARE = 0.001  # of all, below which a box is not drawn
N_LEAVES = 12


@dataclass(frozen=True, slots=True)
class Box:
    """A function as those below it called it: its place from 0 and its width, in samples; depth 0 is a root."""

    label: str
    depth: int
    start: int
    width: int


def folded(lines: Sequence[str]) -> Counter[Stack]:
    """Return how often each stack was seen computing, from py-spy's raw lines, `thread;frame;...;frame count`."""
    found = Counter[Stack]()
    for line in lines:
        stack, _, count = line.rpartition(" ")
        thread, *frames = stack.split(";")
        if not frames or frames[-1].startswith(WAITS):
            continue
        entrance = max((i for i, frame in enumerate(frames) if frame.startswith(ENTRANCES)), default=-1)
        labels = (label for label, _ in itertools.groupby(map(label_of, frames[entrance + 1 :])))
        found[thread_of(thread), *labels] += int(count)
    return found


def label_of(frame: str) -> str:
    """Return what stands for a frame, `function (path)`: our functions by file, other code by package."""
    function, _, path = frame.removesuffix(")").rpartition(" (")
    return f"{path}: {function}" if path.startswith(OURS) else path.partition("/")[0].removesuffix(".py")


def thread_of(name: str) -> str:
    """Return what the threads of a name, `thread (id): name_number`, are for."""
    name = re.sub(r"_\d+$", "", name.partition(": ")[2])
    return THREADS.get(name, name)


def boxes(stacks: Mapping[Stack, int]) -> Iterator[Box]:
    """Yield the boxes of a flame graph, equal beginnings of stacks merged, neighbours in the order of their labels."""
    yield from _boxes(sorted(stacks.items()), 0, 0)


def _boxes(stacks: Sequence[tuple[Stack, int]], depth: int, start: int) -> Iterator[Box]:
    start += sum(count for stack, count in stacks if len(stack) == depth)  # those that end below
    deeper = (each for each in stacks if len(each[0]) > depth)
    for label, group in itertools.groupby(deeper, key=lambda each: each[0][depth]):
        inside = list(group)
        box = Box(label, depth, start, sum(count for _, count in inside))
        yield box
        yield from _boxes(inside, depth + 1, start)
        start += box.width


def draw(stacks: Mapping[Stack, int], *, title: str, ms_a_sample: float) -> str:
    """Return the flame graph as an SVG file; the title of a box says its milliseconds."""
    total = sum(stacks.values())
    shown = [box for box in boxes(stacks) if box.width >= LEAST_SHARE * total]
    height = ROW * (max(box.depth for box in shown) + 2)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{escape(title)}" style="background:#ffffff" font-family="monospace" font-size="11">',
        f'<text x="4" y="{ROW - 5}">{escape(title)}</text>',
    ]
    for box in shown:
        x, width, y = WIDTH * box.start / total, WIDTH * box.width / total, height - ROW * (box.depth + 1)
        colour = next((paint for layer, paint in PAINT.items() if box.label.startswith(layer)), OTHER_PAINT)
        said = f"{box.label}: {ms_a_sample * box.width:.1f} ms, {box.width / total:.1%}"
        n_letters = int((width - 6) / LETTER)
        text = box.label if len(box.label) <= n_letters else box.label.rpartition(": ")[2]
        text = text if len(text) <= n_letters else text[: max(0, n_letters - 1)] + "…" * (n_letters > 3)
        written = f'<text x="{x + 3:.1f}" y="{y + 12}">{escape(text)}</text>' if n_letters > 3 else ""
        rectangle = (
            f'<rect x="{x:.1f}" y="{y}" width="{max(width - 0.5, 0.3):.1f}" height="{ROW - 1}" fill="{colour}"/>'
        )
        parts.append(f"<g><title>{escape(said)}</title>{rectangle}{written}</g>")
    return "\n".join([*parts, "</svg>\n"])


def leaves(stacks: Mapping[Stack, int], *, ms_a_sample: float) -> Iterator[str]:
    """Yield a table of where most of the time ends: our innermost function and what it called."""
    ends = Counter[str]()
    for stack, count in stacks.items():
        ours = [i for i, label in enumerate(stack) if label.startswith(OURS)]
        ends[" → ".join(stack[ours[-1] :][:2]) if ours else stack[0]] += count
    yield "| where | ms a search | share |\n|---|---|---|"
    for label, count in ends.most_common(N_LEAVES):
        yield f"| {label} | {ms_a_sample * count:.1f} | {count / sum(stacks.values()):.1%} |"


def sample(
    pid: int, client: httpx.Client, bodies: Sequence[dict[str, object]], *, seconds: int
) -> tuple[list[str], int]:
    """Return py-spy's lines of a service that is asked one search after the other, and how many it was asked.

    Raises:
        TargetError: py-spy is not there or may not look into the process, or a search fails.
    """
    program = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
    if program is None:
        raise TargetError("py-spy, which samples the service, is not installed: pip install py-spy")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "raw"
        command = [program, "record", "--pid", str(pid), "--duration", str(seconds), "--format", "raw"]
        command += ["--rate", str(SAMPLES_PER_SECOND), "--idle", "--threads", "--nolineno", "--output", str(path)]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as spy:
            n_asked = 0
            for body in itertools.cycle(bodies):
                if spy.poll() is not None:
                    break
                client.post("/v1/search", json=body).raise_for_status()
                n_asked += 1
            said = spy.communicate()[1].strip().splitlines()
        if spy.returncode != 0:
            raise TargetError(f"py-spy ended with {spy.returncode}: {said[-1] if said else 'it said nothing'}")
        return path.read_text().splitlines(), n_asked


def main() -> None:
    """Sample, print where the time ends, draw."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("index", type=Path)
    parser.add_argument("queries", type=Path)
    parser.add_argument("--svg", type=Path, required=True)
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--no-reranking", action="store_true")
    arguments = parser.parse_args()
    settings = {"DATA_PATH": str(arguments.index.parent.resolve()), "INDEX": arguments.index.name, "CACHE_BYTES": "0"}
    try:
        queries = read_queries(arguments.queries, n=200)
        how: dict[str, object] = {"settle_k": 0, "rerank": not arguments.no_reranking}
        with (
            tempfile.TemporaryDirectory() as folder,
            Tercet(Path(folder), settings | {"LOG_LEVEL": "warning"}).serving() as server,
            httpx.Client(base_url=server.url, timeout=120) as client,
        ):
            for query in queries[:5]:
                client.post("/v1/search", json={"query": query} | how).raise_for_status()
            bodies = [{"query": query} | how for query in queries]
            lines, n_asked = sample(server.pid, client, bodies, seconds=arguments.seconds)
    except (TargetError, httpx.HTTPError) as error:
        sys.exit(str(error))
    stacks = folded(lines)
    ms_a_sample = 1000 / SAMPLES_PER_SECOND / n_asked
    print("\n".join(leaves(stacks, ms_a_sample=ms_a_sample)))
    total = ms_a_sample * sum(stacks.values())
    what = "without reranking" if arguments.no_reranking else "that reranks 100 candidates"
    title = f"A search {what}: {total:.0f} ms of threads' time, mean of {n_asked}"
    arguments.svg.write_text(draw(stacks, title=title, ms_a_sample=ms_a_sample), encoding="utf-8")


if __name__ == "__main__":
    main()
