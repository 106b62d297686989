"""Many clients at once: slow ones, malformed ones, and a thousand that are neither."""

import asyncio
import json
import resource
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from scenarios.documents import QUERIES, write_documents
from scenarios.load import Clients, probing, search
from scenarios.malformed import MAKERS, MARK, Malformed, fault_of, malformed_requests, request
from scenarios.processes import PATIENCE_SECONDS, Server, Tercet, wait_until
from scenarios.raw import NoAnswerError, connected, dribble, exchange, status_of
from scenarios.report import CannotRunError, Report, Scenario

N_DOCUMENTS = 200
N_SLOW_HEADERS, N_SLOW_BODIES = 400, 200
SLOW_SECONDS, DROP_SECONDS = 60.0, 1.0
N_MALFORMED, N_AT_ONCE, SEED = 10_000, 32, 7
KINDS = len(MAKERS)
N_CONNECTIONS, N_ROUNDS, BETWEEN_ROUNDS_SECONDS = 1_000, 4, 1.0
RESERVED_FILES = 200  # that this process and the service have open besides the connections


def _indexed(folder: Path, **settings: str) -> Tercet:
    tercet = Tercet(folder, settings)
    tercet.must("index", write_documents(folder / "documents.jsonl", N_DOCUMENTS, seed=1))
    return tercet


def _take_files(n: int) -> None:
    """Let this process, and those that it starts, have n files open; raises CannotRunError if they may not."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < n:
        if hard != resource.RLIM_INFINITY and hard < n:
            raise CannotRunError(f"a process may have {hard:,} files open here; {n:,} are needed")
        resource.setrlimit(resource.RLIMIT_NOFILE, (n, hard))


def _slow(folder: Path, report: Report) -> None:
    n = N_SLOW_HEADERS + N_SLOW_BODIES
    _take_files(n + RESERVED_FILES)
    with _indexed(folder, REQUEST_TIMEOUT_SECONDS="20").serving() as server, ExitStack() as stack:
        n_files = _n_files(server)
        probe = stack.enter_context(probing(server.url))
        clients = stack.enter_context(Clients(server.url, [search(query) for query in QUERIES[:2]]))
        started = time.monotonic()
        ends = asyncio.run(_dribbles(server.port))
        report.remarks.append(
            f"{n} slow connections, {time.monotonic() - started:.0f} s: "
            f"{', '.join(f'{count} ended with {end}' for end, count in sorted(ends.items()))}"
        )
        stack.close()
        report.check(ends["held"] == 0, f"{ends['held']} connections were still held after {SLOW_SECONDS:.0f} s")
        report.probed(probe.max_ms)
        report.check(probe.n_failed == 0, f"/healthz did not answer {probe.n_failed} times")
        report.saw_only(clients.seen, {"200"})
        report.check(clients.seen["200"] > 0, "no normal request was answered meanwhile")
        wait_until(
            lambda: _n_files(server) <= n_files + 10, "the service lets go of its connections", seconds=PATIENCE_SECONDS
        )


async def _dribbles(port: int) -> Counter[str]:
    async def one(start: bytes, drop: bytes) -> str:
        try:
            status = await dribble(port, start, drop, seconds=SLOW_SECONDS, every=DROP_SECONDS)
        except NoAnswerError:
            return "held"
        return "no answer" if status is None else str(status)

    header = b"POST /v1/search HTTP/1.1\r\nHost: 127.0.0.1\r\n", b"X-Slow: 1\r\n"
    body = request(b'{"query":"', "Content-Length: 100000"), b"a"
    slow = [header] * N_SLOW_HEADERS + [body] * N_SLOW_BODIES
    return Counter(await asyncio.gather(*(one(start, drop) for start, drop in slow)))


def _n_files(server: Server) -> int:
    return len(list(Path(f"/proc/{server.pid}/fd").iterdir()))


def _malformed(folder: Path, report: Report) -> None:
    with _indexed(folder).serving() as server, probing(server.url) as probe:
        sent = malformed_requests(N_MALFORMED, seed=SEED)
        found = asyncio.run(_send_all(server.port, list(sent)))
        for each, status in found:
            fault = f"{each.kind}: no answer" if status == -1 else fault_of(each, status)
            report.check(fault is None, fault or "")
            report.seen["closed" if status is None else str(status)] += 1
        report.check(server.ended() is None, f"the service ended with {server.ended()}")
        with Clients(server.url, [search(QUERIES[0])]) as clients:
            time.sleep(1)
        report.check(set(clients.seen) == {"200"}, f"afterwards a search was answered with {sorted(clients.seen)}")
    report.probed(probe.max_ms)
    report.check(probe.n_failed == 0, f"/healthz did not answer {probe.n_failed} times")
    _check_log(server, report)


def _check_log(server: Server, report: Report) -> None:
    text = server.log_path.read_text(errors="replace")
    report.check(MARK not in text, f"what users sent stands in the log {text.count(MARK)} times")
    report.check("Traceback" not in text, "a traceback stands in the log")
    lines = text.splitlines()
    report.check(all(line.startswith("{") for line in lines), "a line of the log is not JSON")
    errors = [line for line in server.log() if line["level"] == "error"]
    report.check(not errors, f"{len(errors)} errors stand in the log, such as {json.dumps(errors[:1])}")


async def _send_all(port: int, requests: list[Malformed]) -> list[tuple[Malformed, int | None]]:
    """Return each with the status that answered it, None if the connection was closed, -1 for neither."""
    limit = asyncio.Semaphore(N_AT_ONCE)

    async def send(each: Malformed) -> tuple[Malformed, int | None]:
        async with limit:
            try:
                return each, await exchange(port, each.content, ends=each.ends)
            except NoAnswerError:
                return each, -1

    return list(await asyncio.gather(*map(send, requests)))


def _thousand(folder: Path, report: Report) -> None:
    _take_files(N_CONNECTIONS + RESERVED_FILES)
    with _indexed(folder).serving() as server, probing(server.url) as probe:
        started = time.monotonic()
        seen, most_open = asyncio.run(_crowd(server.port))
        report.saw_only(seen, {"200", "429"})
        report.remarks.append(
            f"{most_open:,} of {N_CONNECTIONS:,} connections were open at once; {seen.total():,} responses in "
            f"{time.monotonic() - started:.0f} s"
        )
        report.check(report.seen["200"] >= N_CONNECTIONS * N_ROUNDS / 2, "fewer than the probes alone were answered")
        server.wait_ready()
    report.probed(probe.max_ms)
    report.check(probe.n_failed == 0, f"/healthz did not answer {probe.n_failed} times")


async def _crowd(port: int) -> tuple[Counter[str], int]:
    """Let each connection ask N_ROUNDS times; return what was seen, and how many were open at once."""
    seen: Counter[str] = Counter()
    n_open = most_open = 0

    async def one(i: int) -> None:
        nonlocal n_open, most_open
        body = json.dumps({"query": QUERIES[i % len(QUERIES)], "rerank": False, "top_k": 3}).encode()
        asks = [request(b"", method="GET", path="/healthz"), request(b"", method="GET", path="/readyz"), request(body)]
        try:
            async with connected(port) as (reader, writer):
                n_open += 1
                most_open = max(most_open, n_open)
                for n in range(N_ROUNDS):
                    writer.write(asks[(i + n) % len(asks)])
                    seen[await _response(reader)] += 1
                    await asyncio.sleep(BETWEEN_ROUNDS_SECONDS)
                n_open -= 1
        except OSError as error:
            seen[type(error).__name__] += 1
        except NoAnswerError:
            seen["no answer"] += 1

    await asyncio.gather(*(one(i) for i in range(N_CONNECTIONS)))
    return seen, most_open


async def _response(reader: asyncio.StreamReader) -> str:
    """Return the status of a response, read whole, so that the next can follow on its connection."""
    status = await status_of(reader)
    if status is None:
        return "closed"
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(int(length.split(b":")[1]))
    except asyncio.IncompleteReadError:
        return "cut off"
    return str(status)


SCENARIOS = (
    Scenario(
        "slow clients",
        f"{N_SLOW_HEADERS} connections dribble headers and {N_SLOW_BODIES} a body, a few bytes every "
        f"{DROP_SECONDS:g} s, while others search.",
        "the service ends them by itself; every search is answered, and so is /healthz.",
        _slow,
    ),
    Scenario(
        "malformed requests",
        f"{N_MALFORMED:,} requests of {KINDS} kinds, each broken in its way.",
        "each is answered with 4xx, or closed where it is no HTTP; no traceback and no user text in the log.",
        _malformed,
    ),
    Scenario(
        "a thousand connections",
        f"{N_CONNECTIONS:,} connections are kept open, each with {N_ROUNDS} probes and short searches in turn.",
        "every one is answered, with 200, or with 429 where a search is too much.",
        _thousand,
    ),
)
