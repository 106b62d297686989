"""Start a service, ask it over HTTP from several clients, and return what they saw."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import httpx
from scenarios.processes import free_port

from models.folder import BUNDLED_CROSS_ENCODER, open_model_folder
from peers.failures import PeerError
from peers.measuring import Sample, last_line, outputs_of, quiet_environment
from peers.work import Request
from peers.workers.protocol import peak_mb

N_CLIENTS = (1, 16)
START_SECONDS = 600
REQUEST_SECONDS = 600
_POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Service:
    """How a service is started, where it takes a rerank request, and how its scores become logits."""

    command: Sequence[str]
    settings: Mapping[str, str]
    route: str
    logit: Callable[[float], float]
    folder: Path | None = None  # where it is started


def tercet_service(index: Path, engine: str, port: int) -> Service:
    """Return Tercet's; it holds its other two models and an index too."""
    settings = {
        "TERCET_DATA_PATH": str(index.parent),
        "TERCET_INDEX": index.name,
        "TERCET_ENGINE": engine,
        "TERCET_PORT": str(port),
        "TERCET_LOG_LEVEL": "warning",
    }
    mix = open_model_folder(BUNDLED_CROSS_ENCODER, "cross-encoder").settings.pair_relevance
    scale, bias = (mix.logit_weight, mix.bias) if mix is not None else (1.0, 0.0)
    command = [str(Path(sys.executable).with_name("tercet")), "serve"]
    return Service(command, settings, "/v1/rerank", lambda score: (score - bias) / scale)


def infinity_service(python: Path, model: Path, engine: str, port: int) -> Service:
    """Return infinity's, as it is by default.

    It starts in the model's folder, as its optimum engine finds a file by its bare name only, and keeps what it
    optimizes beside these weights, as it would take what it made of others.
    """
    command = [str(python.with_name("infinity_emb")), "v2", "--model-id", ".", "--served-model-name", "model"]
    command += ["--engine", engine, "--device", "cpu", "--host", "127.0.0.1", "--port", str(port)]
    settings = {"INFINITY_ANONYMOUS_USAGE_STATS": "0", "HF_HOME": str(model.with_name("infinity-optimized"))}
    return Service(command, settings, "/rerank", lambda score: score, folder=model)


def measure_service(start: Callable[[int], Service], requests: Sequence[Request], log: Path) -> dict[int, Sample]:
    """Return a sample for each number of clients, each of whom asks for one request after the other.

    Raises:
        PeerError: the service ends, is not ready in time, or refuses a request.
    """
    port = free_port()
    service = start(port)
    started = time.monotonic()
    url = f"http://127.0.0.1:{port}"
    with _running(service, log) as process, httpx.Client(base_url=url, timeout=REQUEST_SECONDS) as client:
        _first_score(client, service, requests[0], process, log)
        start_seconds = time.monotonic() - started
        outputs = outputs_of("serve", [_ask(client, service, request) for request in requests])  # warms up
        rates = {n: _pairs_per_second(client, service, requests, n) for n in N_CLIENTS}
        peak = peak_mb(process.pid)
    return {n: Sample(rate, outputs, peak, start_seconds) for n, rate in rates.items()}


@contextmanager
def _running(service: Service, log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    environment = {**quiet_environment(), **service.settings}
    with log.open("wb") as words:
        process = subprocess.Popen(
            service.command,
            cwd=service.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=words,
            stderr=words,
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def _first_score(
    client: httpx.Client, service: Service, request: Request, process: "subprocess.Popen[bytes]", log: Path
) -> None:
    query, passages = request
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise PeerError(f"it ended with {process.returncode}: {last_line(log.read_text(errors='replace'))}")
        try:
            _ask(client, service, (query, passages[:1]))
            return
        except (httpx.TransportError, PeerError):  # it does not listen, or is not ready
            time.sleep(_POLL_SECONDS)
    raise PeerError(f"it scored nothing within {START_SECONDS} s: {last_line(log.read_text(errors='replace'))}")


def _ask(client: httpx.Client, service: Service, request: Request) -> list[float]:
    """Return a logit for each passage, in order."""
    query, passages = request
    body = {"model": "model", "query": query, "documents": passages, "raw_scores": True}
    response = client.post(service.route, json=body)
    if response.status_code != 200:
        raise PeerError(f"{service.route} answered {response.status_code}")
    results: list[dict[str, Any]] = response.json()["results"]
    scores = {each["index"]: service.logit(each["relevance_score"]) for each in results}
    return [scores[i] for i in range(len(passages))]


def _pairs_per_second(client: httpx.Client, service: Service, requests: Sequence[Request], n_clients: int) -> float:
    asked = list(islice(cycle(requests), max(len(requests), n_clients)))
    started = time.perf_counter()
    with ThreadPoolExecutor(n_clients) as pool:
        list(pool.map(lambda request: _ask(client, service, request), asked))
    return sum(len(passages) for _, passages in asked) / (time.perf_counter() - started)
