"""What every load test starts from: real queries from a file, and a service on this machine that is ready."""

import gzip
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
from prometheus_client.parser import text_string_to_metric_families

LOOPBACK = ("127.0.0.1", "localhost", "::1")


class TargetError(Exception):
    """The load test cannot start; the message is one sentence."""


def read_queries(path: Path, *, n: int) -> list[str]:
    """Return n queries spread evenly over a JSON Lines file, in its order; all of them when it holds fewer.

    Each line has the query as `text` (BEIR), `query` or `question`; a name ending in .gz is decompressed.

    Raises:
        TargetError: the file is missing, or holds no query.
    """
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except OSError as error:
        raise TargetError(f"{path} cannot be read: {error.strerror}.") from error
    records = [json.loads(line) for line in data.split(b"\n") if line.strip()]
    queries = [text for record in records if (text := _query_of(record))]
    if not queries:
        raise TargetError(f"{path} holds no line with a query as `text`, `query` or `question`.")
    step = max(len(queries) / n, 1)
    return [queries[int(i * step)] for i in range(min(n, len(queries)))]


def _query_of(record: dict[str, object]) -> str | None:
    found = next((record[key] for key in ("text", "query", "question") if key in record), None)
    return found if isinstance(found, str) else None


def check_target(url: str) -> None:
    """Return when a service on this machine says that it is ready; load never goes to another machine.

    Raises:
        TargetError: the host is not a loopback address, nothing answers there, or it is not ready.
    """
    host = urlsplit(url).hostname
    if host not in LOOPBACK:
        raise TargetError(f"{url} is not on this machine: the host must be one of {', '.join(LOOPBACK)}.")
    try:
        status = httpx.get(f"{url}/readyz", timeout=5).status_code
    except httpx.HTTPError as error:
        raise TargetError(f"Nothing answers at {url}: {type(error).__name__}; start it with `tercet serve`.") from error
    if status != 200:
        raise TargetError(f"The service at {url} is not ready: /readyz has status {status}.")


def cache_lookups(client: httpx.Client) -> dict[str, tuple[float, float]]:
    """Return what the service looked up in its cache so far: (hits, misses) by what it was."""
    counted = {
        (sample.labels["what"], sample.labels["outcome"]): sample.value
        for family in text_string_to_metric_families(client.get("/metrics").raise_for_status().text)
        for sample in family.samples
        if sample.name == "tercet_cache_lookups_total"
    }
    return {what: (counted[what, "hit"], counted[what, "miss"]) for what in sorted({what for what, _ in counted})}


@contextmanager
def told_of_hits(url: str) -> Iterator[None]:
    """Say at the end if the cache of the service answered for its models, whose speed is then not what was measured."""
    with httpx.Client(base_url=url, timeout=60) as client:
        before = cache_lookups(client)
        yield
        n_hits = sum(hits - before[what][0] for what, (hits, _) in cache_lookups(client).items())
    if n_hits:
        print(
            f"Beware: {n_hits:,.0f} vectors and logits came from the service's cache; to measure its models, start it "
            "with TERCET_CACHE_BYTES=0.",
            file=sys.stderr,
        )
