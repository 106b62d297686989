"""Files that are removed, cut short or changed under a running service: those of its snapshot, and of its models."""

import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import httpx
from target import TargetError

from models.folder import BUNDLED
from scenarios.documents import QUERIES, write_documents
from scenarios.load import search, seen_by
from scenarios.processes import PATIENCE_SECONDS, Finished, Server, Tercet, wait_until
from scenarios.report import Report, Scenario

N_DOCUMENTS = 200
MANIFEST = "manifest.json"
MODELS = {
    "DUAL_ENCODER": "minilm-l6-dual-encoder",
    "CROSS_ENCODER": "tercet-l6-cross-encoder",
    "READER": "tercet-l6-reader",
}
MODEL_FILES = ("model.onnx", "tokenizer.json", "model.json")
DAMAGED = "tercet_snapshot_damaged"


def flip(path: Path) -> None:
    """Change one bit in the middle of a file, in its place."""
    with path.open("r+b") as file:
        middle = path.stat().st_size // 2
        file.seek(middle)
        [byte] = file.read(1)
        file.seek(middle)
        file.write(bytes([byte ^ 1]))


def truncate(path: Path) -> None:
    """Cut a file to half its length, in its place."""
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


DAMAGES: dict[str, Callable[[Path], None]] = {"bit flipped": flip, "truncated": truncate, "removed": Path.unlink}


def put_back(path: Path, copy: Path) -> None:
    """Give a file its content again, in its place if it is there."""
    with path.open("wb") as file, copy.open("rb") as original:
        shutil.copyfileobj(original, file)


def _is_told(done: Finished, path: Path) -> bool:
    """Whether a refusal is one sentence that names the file or its folder."""
    return done.is_one_sentence and (path.name in done.sentence or path.parent.name in done.sentence)


def _snapshot(folder: Path, report: Report) -> None:
    tercet = Tercet(folder, {"SNAPSHOT_POLL_SECONDS": "0.5"})
    first = tercet.must("index", write_documents(folder / "first.jsonl", N_DOCUMENTS, seed=1), "--json").json
    second = tercet.must("index", write_documents(folder / "second.jsonl", N_DOCUMENTS, seed=2), "--json").json
    served = tercet.data / "default" / "snapshots" / second["snapshot"]
    copies = folder / "copies"
    shutil.copytree(served, copies)
    outcomes: dict[str, Counter[str]] = {name: Counter() for name in DAMAGES}
    with tercet.serving() as server:
        for copy in _one_of_each_kind(copies):
            path = served / copy.relative_to(copies)
            for name, damage in DAMAGES.items():
                outcomes[name][_damaged(server, path, damage, report)] += 1
                verified = tercet("snapshots", "verify")
                report.check(_is_told(verified, path), f"{path.name} {name}: `verify` said {verified.sentence!r}")
                put_back(path, copy)
                if server.ended() is not None or name == "removed":  # then it has another file open
                    report.was_ready_after(server.restart())
                else:
                    wait_until(
                        lambda: server.metric(DAMAGED) == 0, "it tells that the file is whole", seconds=PATIENCE_SECONDS
                    )
        _way_out(server, served, first["snapshot"], report)
    report.keep(
        [first["snapshot"], served.name], lambda name: tercet("snapshots", "verify", name).code == 0, "snapshot"
    )
    for name, outcome in outcomes.items():
        found = ", ".join(f"{n} times {what}" for what, n in outcome.most_common())
        report.remarks.append(f"{name}, each of {outcome.total()} files in turn: {found}")


def _one_of_each_kind(folder: Path) -> list[Path]:
    """Return the files of a snapshot's folder, and the largest one of each folder in it."""
    files = sorted(path for path in folder.iterdir() if path.is_file())
    folders = sorted(path for path in folder.iterdir() if path.is_dir())
    return files + [max(each.iterdir(), key=lambda path: path.stat().st_size) for each in folders]


def _damaged(server: Server, path: Path, damage: Callable[[Path], None], report: Report) -> str:
    """Damage a file that is served, ask, and return what became of it."""
    damage(path)
    seen: Counter[str] = Counter()
    with httpx.Client(base_url=server.url, timeout=60) as client:
        for query in QUERIES[:10]:
            seen[seen_by(lambda: search(query)(client))] += 1  # noqa: B023
        if server.ended() is None:
            report.check(_is_noticed(server), f"it went on, and nothing told that {path.name} was damaged")
    report.seen.update(seen)
    time.sleep(0.05)
    code = server.ended()
    if code is not None:
        return f"it ended with {code}"
    return "all answered" if set(seen) == {"200"} else "some answered with " + ", ".join(sorted(set(seen) - {"200"}))


def _is_noticed(server: Server) -> bool:
    try:
        wait_until(lambda: server.metric(DAMAGED) == 1, "it tells", seconds=PATIENCE_SECONDS)
    except (TargetError, httpx.TransportError):
        return server.ended() is not None
    return True


def _way_out(server: Server, served: Path, before: str, report: Report) -> None:
    """Go back to the snapshot before, once for each kind of damage, while the service is down or refuses to start."""
    copy = served.with_name("copy-of-a-file")
    path = served / "tokens.bin"
    shutil.copy(path, copy)
    for name, damage in DAMAGES.items():
        damage(path)
        refused = server.refusal()
        report.check(_is_told(refused, path), f"{path.name} {name}: the start said {refused.sentence!r}")
        back = server.tercet("snapshots", "rollback")
        report.check(back.code == 0, f"rollback from a snapshot with a file {name} said {back.sentence!r}")
        server.start()
        server.wait_ready()
        report.check(server.served() == before, "it does not serve the snapshot that was gone back to")
        forth = server.tercet("snapshots", "rollback", served.name)
        report.check(_is_told(forth, path), f"a snapshot with a file {name} could be made current: {forth.sentence!r}")
        put_back(path, copy)
        server.tercet.must("snapshots", "rollback", served.name)
        wait_until(
            lambda: server.served() == served.name,
            "it serves what was repaired and made current",
            seconds=PATIENCE_SECONDS,
        )
    copy.unlink()


def _models(folder: Path, report: Report) -> None:
    bundled = Tercet(folder)
    bundled.must("index", write_documents(folder / "first.jsonl", N_DOCUMENTS, seed=1))
    copies = {setting: folder / name for setting, name in MODELS.items()}
    for copy in copies.values():
        shutil.copytree(BUNDLED / copy.name, copy)
    tercet = Tercet(folder, {name: str(copy) for name, copy in copies.items()} | {"SNAPSHOT_POLL_SECONDS": "0.2"})
    n_refused = 0
    with tercet.serving() as server:
        for i, (name, damage) in enumerate(DAMAGES.items()):
            paths = [copy / file for copy in copies.values() for file in MODEL_FILES]
            for path in paths:
                damage(path)
            published = bundled.must(
                "index", write_documents(folder / "next.jsonl", N_DOCUMENTS, seed=10 + i), "--json"
            )
            snapshot = published.json["snapshot"]
            report.keep([snapshot], lambda each: bundled.current() == each, "snapshot")
            wait_until(lambda: server.served() == snapshot, "it is served", seconds=PATIENCE_SECONDS)  # noqa: B023
            _ask_all(server, report)
            for path in paths:
                put_back(path, BUNDLED / path.relative_to(folder))
            for j, copy in enumerate(copies.values()):
                path = copy / MODEL_FILES[(i + j) % len(MODEL_FILES)]
                damage(path)
                refused = server.refusal()
                told = f"{copy.name}/{path.name} {name}: the start said {refused.sentence!r}"
                n_refused += report.check(_is_told(refused, path), told)
                put_back(path, BUNDLED / path.relative_to(folder))
            report.was_ready_after(server.restart())
            _ask_all(server, report)
    report.remarks.append(f"{n_refused} starts with a damaged model were refused by a sentence that names it")


def _ask_all(server: Server, report: Report) -> None:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        seen = Counter(seen_by(lambda: search(query)(client)) for query in QUERIES[:10])  # noqa: B023
        seen[seen_by(lambda: client.post("/v1/answer", json={"query": QUERIES[0], "rerank_k": 5}))] += 1
    report.saw_only(seen, {"200"})


SCENARIOS = (
    Scenario(
        "damaged index",
        "each file of the snapshot that is served is changed by one bit, cut to its half, or removed; then the "
        "service is started again.",
        "it answers from what it has open, or ends; what it serves and is damaged it says; a start is refused by "
        "one sentence that names the file; `tercet snapshots rollback` is the way out.",
        _snapshot,
    ),
    Scenario(
        "damaged models",
        "each file of the three models is damaged under a running service, and a snapshot is published meanwhile.",
        "it answers on and takes the snapshot over; a start is refused by one sentence that names the model.",
        _models,
    ),
)
