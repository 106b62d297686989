"""Measure Tercet against its peers: the same weights, the same text, the same cores, in one run.

    python loadtests/peers/run.py INDEX_FOLDER QUERIES.jsonl.gz [--peer WORDS …] [--requests N] [--rounds R]

A request is a query and its best 100 passages by BM25. In every round every peer has a process of its own, one after
the other, so that a slow minute of the machine hits all alike; it loads, scores all requests to warm up, and scores
them again with the clock on. The first run installs the peers and exports the weights, and keeps both. A peer that
fails is named with the reason, and stops nothing. Needs the `train` extra, and Linux.
"""

import json
import os
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

sys.path.insert(0, str(Path(__file__).parents[1]))  # where the other load tests are

import typer
from target import TargetError

from indexer.errors import SnapshotError
from models.folder import BUNDLED_CROSS_ENCODER, BUNDLED_DUAL_ENCODER, open_model_folder
from peers.catalogue import ENVIRONMENTS, chosen
from peers.goals import verdicts
from peers.results import Results, rows
from peers.rounds import Rounds
from peers.table import tables
from peers.work import N_PASSAGES, Work, read_work

N_THREADS = 2
HOME = Path.home() / ".cache" / "tercet-peers"


def main(
    index: Annotated[Path, typer.Argument(help="The folder of an index, such as data/nq_small.")],
    queries: Annotated[Path, typer.Argument(help="JSON Lines with real queries, .gz too.")],
    peer: Annotated[list[str] | None, typer.Option(help="A peer, by words of its name; may be repeated.")] = None,
    requests: Annotated[int, typer.Option(min=1, max=1000, help=f"Requests of {N_PASSAGES} passages.")] = 10,
    rounds: Annotated[int, typer.Option(min=1, max=100, help="How often each peer is started and measured.")] = 3,
    threads: Annotated[int, typer.Option(min=1, help="Cores that every process may use.")] = N_THREADS,
    environments: Annotated[Path, typer.Option(help="Where the peers are installed, and the weights kept.")] = HOME,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write all figures to this file too.")] = None,
) -> None:
    """Print a table for each kind of work, which goals are met, and what could not be run and why."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that what was started is ended
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])  # every process that is started inherits it
    try:
        peers = chosen(peer or [])
        work = read_work(index.resolve(), queries, n=requests)
    except (TargetError, SnapshotError) as error:
        sys.exit(str(error))
    measured = Rounds(environments.resolve(), index.resolve(), work, lambda line: typer.echo(line, err=True))
    measured.prepare(peers)
    measured.run(peers, rounds)
    heading = _heading(work, rounds)
    typer.echo(f"{heading}\n\n{tables(measured.results)}")
    if json_file is not None:
        json_file.write_text(json.dumps({"run": heading, **_figures(measured.results)}, indent=2), encoding="utf-8")


def _heading(work: Work, n_rounds: int) -> str:
    """Return what was done, where, to what."""
    lengths = {
        name: open_model_folder(model, None).settings.max_tokens
        for name, model in (("rerank", BUNDLED_CROSS_ENCODER), ("embed", BUNDLED_DUAL_ENCODER))
    }
    return (
        f"{_cpu()}, {len(os.sched_getaffinity(0))} cores; rounds: {n_rounds}. Reranking: {len(work.requests['rerank'])}"
        f" requests of {N_PASSAGES} pairs, median {work.median_tokens('rerank')} tokens, cut to {lengths['rerank']}."
        f" Embedding: {work.n_units('embed')} passages, median {work.median_tokens('embed')} tokens, cut to"
        f" {lengths['embed']}."
    )


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown CPU")


def _figures(results: Results) -> dict[str, object]:
    return {
        "rows": [{"kind": kind, **asdict(row)} for kind in ("rerank", "serve", "embed") for row in rows(results, kind)],
        "goals": [
            asdict(each) | {"in_exact_mode": each.in_exact_mode, "in_fast_mode": each.in_fast_mode}
            for each in verdicts(results)
        ],
        "not_run": [{"kind": kind, "peer": name, "why": why} for (kind, name), why in results.not_run.items()],
        "environments": ENVIRONMENTS,
    }


if __name__ == "__main__":
    typer.run(main)
