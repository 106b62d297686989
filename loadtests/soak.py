"""Watch the service's memory while clients ask searches and answers of random lengths for half an hour.

`python loadtests/soak.py QUERIES.jsonl.gz [--minutes 30]` against a running service. Queries are cut or repeated to
random lengths, own passages of random lengths are read, depths vary. The first fifth of the time is warm-up;
afterwards the median resident memory of the last tenth may be at most 5% above that of the first tenth.
"""

import json
import random
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import httpx
import numpy as np
import typer
from target import TargetError, check_target, read_queries

WARM_UP_SHARE = 0.2
ALLOWED_GROWTH = 0.05
SAMPLE_SECONDS = 2.0


def resident_mb(client: httpx.Client) -> float:
    """Return what the service says of its resident memory, in MB."""
    for line in client.get("/metrics").text.splitlines():
        if line.startswith("process_resident_memory_bytes "):
            return float(line.split()[1]) / 1e6
    raise TargetError("/metrics does not say how much memory the service has.")


def random_request(queries: Sequence[str], dice: random.Random) -> tuple[str, dict[str, object]]:
    """Return a route and a body: a search or an answer, of random length and depth."""
    words = " ".join(dice.sample(queries, dice.randint(1, 4))).split()
    query = " ".join(words[: dice.randint(1, len(words))])
    if dice.random() < 0.2:
        passages = [
            {"id": str(i), "text": " ".join(dice.choices(queries, k=dice.randint(1, 120)))}
            for i in range(dice.randint(1, 8))
        ]
        return "/v1/answer", {"query": query, "passages": passages}
    depth = {"rerank_k": dice.choice((1, 5, 20, 50)), "retrieve_k": dice.choice((50, 200, 1000))}
    if dice.random() < 0.3:
        return "/v1/answer", {"query": query, "read_k": dice.randint(1, 10), **depth}
    return "/v1/search", {"query": query, "top_k": dice.randint(1, 100), "explain": dice.random() < 0.2, **depth}


class Load:
    """Clients that ask until they are told to stop."""

    def __init__(self, url: str, queries: Sequence[str], *, n_clients: int) -> None:
        self._url, self._queries = url, queries
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(seed,)) for seed in range(n_clients)]
        self.statuses: dict[int, int] = {}

    def __enter__(self) -> "Load":
        """Start the clients."""
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop them."""
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, seed: int) -> None:
        dice = random.Random(seed)  # noqa: S311 - nothing here is a secret
        with httpx.Client(base_url=self._url, timeout=120) as client:
            while not self._is_over.is_set():
                path, body = random_request(self._queries, dice)
                status = client.post(path, json=body).status_code
                self.statuses[status] = self.statuses.get(status, 0) + 1


def growth(samples_mb: Sequence[float]) -> tuple[float, float]:
    """Return the median memory after warm-up, and the share by which the last tenth's is above the first tenth's."""
    steady = np.array(samples_mb[int(len(samples_mb) * WARM_UP_SHARE) :])
    tenth = max(1, steady.size // 10)
    first, last = float(np.median(steady[:tenth])), float(np.median(steady[-tenth:]))
    return float(np.median(steady)), last / first - 1


def main(
    queries: Annotated[Path, typer.Argument(help="JSON Lines with real queries, .gz too.")],
    url: Annotated[str, typer.Option(help="The running service; on this machine.")] = "http://127.0.0.1:8000",
    minutes: Annotated[float, typer.Option(min=0.05, help="How long.")] = 30.0,
    clients: Annotated[int, typer.Option(min=1, max=64)] = 4,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print the memory over time, what was answered, and the growth; exit with 1 if that is more than 5%."""
    samples: list[float] = []
    try:
        check_target(url)
        load = Load(url, read_queries(queries, n=2000), n_clients=clients)
        with load, httpx.Client(base_url=url, timeout=60) as client:
            until = time.monotonic() + 60 * minutes
            while time.monotonic() < until:
                samples.append(resident_mb(client))
                time.sleep(min(SAMPLE_SECONDS, max(0.0, until - time.monotonic())))
    except TargetError as error:
        sys.exit(str(error))
    median, grown = growth(samples)
    if as_json:
        typer.echo(json.dumps({"median_mb": median, "growth": grown, "statuses": load.statuses, "samples_mb": samples}))
    else:
        shown = samples[:: max(1, len(samples) // 12)]
        typer.echo(f"Resident memory over {minutes:g} minutes, MB: {', '.join(f'{each:.0f}' for each in shown)}")
        typer.echo(f"Answered: {', '.join(f'{n:,} with {status}' for status, n in sorted(load.statuses.items()))}")
        typer.echo(f"After warm-up: median {median:.0f} MB, growth {grown:+.1%} (allowed: {ALLOWED_GROWTH:.0%}).")
    if grown > ALLOWED_GROWTH or set(load.statuses) - {200, 429}:
        sys.exit(1)


if __name__ == "__main__":
    typer.run(main)
