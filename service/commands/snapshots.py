"""`tercet indexes` and `tercet snapshots`: which indexes there are, and what an operator does with their snapshots."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from types import MappingProxyType

from rich.table import Table

from indexer.files import shown_path
from indexer.manifest import Manifest
from indexer.snapshots import (
    IndexSummary,
    MadeCurrent,
    SnapshotSummary,
    export_snapshot,
    import_snapshot,
    list_indexes,
    list_snapshots,
    remove_snapshots,
    roll_back,
    verify_snapshot,
)
from models.folder import open_model_folder
from service.commands.output import console, counted, print_done, print_json, printable, say, size
from service.settings import Settings

_NOTHING: Mapping[str, object] = MappingProxyType({})


def print_indexes(settings: Settings, *, as_json: bool) -> None:
    """Print one line an index, of its current snapshot."""
    found = list_indexes(settings.data_path)
    if as_json:
        print_json({"path": shown_path(settings.data_path), "indexes": list(map(_index_facts, found))})
    elif not found:
        say(f"There is no index in {settings.data_path.absolute()}; `tercet index SOURCE` builds one.")
    else:
        _print_table(("index", "snapshot", "built", "documents", "passages", "size", "encoder"), map(_index_row, found))


def _index_facts(index: IndexSummary) -> dict[str, object]:
    current = index.current
    return {
        "index": index.name,
        "snapshot": None if current is None else current.snapshot_id,
        "created_at": None if current is None else current.created_at,
        "n_documents": None if current is None else current.n_documents,
        "n_passages": None if current is None else current.n_passages,
        "n_bytes": None if current is None else current.n_bytes,
        "encoder": None if current is None else current.encoder.name,
        "n_snapshots": index.n_snapshots,
        "fault": index.fault,
    }


def _index_row(index: IndexSummary) -> tuple[str, ...]:
    if index.current is None:
        return index.name, index.fault or ""
    return (
        index.name,
        index.current.snapshot_id,
        _time(index.current.created_at),
        f"{index.current.n_documents:,}",
        f"{index.current.n_passages:,}",
        size(index.current.n_bytes),
        index.current.encoder.name,
    )


def print_snapshots(settings: Settings, *, as_json: bool) -> None:
    """Print one line a snapshot."""
    found = list_snapshots(_index_path(settings))
    if as_json:
        print_json({"index": settings.index, "snapshots": [asdict(each) for each in found]})
        return
    _print_table(("", "snapshot", "built", "documents", "passages", "size"), map(_row, found))


def _print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    table = Table(box=None, pad_edge=False)
    for name in columns:
        table.add_column(name, justify="right" if name in ("documents", "passages", "size") else "left", no_wrap=True)
    for row in rows:
        table.add_row(*map(printable, row))
    console().print(table)


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def _row(snapshot: SnapshotSummary) -> tuple[str, ...]:
    is_open = snapshot.is_in_use and not snapshot.is_current
    states = {"current": snapshot.is_current, "before": snapshot.is_before, "open": is_open}
    mark = ", ".join(state for state, holds in states.items() if holds)
    if snapshot.created_at is None or snapshot.n_bytes is None:
        return mark, snapshot.snapshot_id, snapshot.fault or ""
    return (
        mark,
        snapshot.snapshot_id,
        _time(snapshot.created_at),
        f"{snapshot.n_documents:,}",
        f"{snapshot.n_passages:,}",
        size(snapshot.n_bytes),
    )


def verify_one(settings: Settings, snapshot_id: str | None, *, as_json: bool) -> None:
    """Print that a snapshot is as its manifest says; raises SnapshotError if not."""
    manifest = verify_snapshot(_index_path(settings), snapshot_id)
    _tell(
        settings,
        manifest,
        f"is intact: {counted(len(manifest.files), 'file')}, {size(manifest.n_bytes)}",
        as_json=as_json,
    )


def roll_back_to(settings: Settings, snapshot_id: str | None, *, as_json: bool) -> None:
    """Make another snapshot current; raises SnapshotError, BuildError, ModelError."""
    done = roll_back(_index_path(settings), snapshot_id, encoder_fingerprint=_encoder(settings))
    _tell_what_is_current(settings, done, "is current now", as_json=as_json)


def remove_all_but(settings: Settings, keep: int, *, as_json: bool) -> None:
    """Remove old snapshots; raises SnapshotError, BuildError."""
    removed = remove_snapshots(_index_path(settings), keep=keep)
    if as_json:
        print_done({"index": settings.index, "removed": removed})
    else:
        say(f"Removed {counted(len(removed), 'snapshot')} of index {settings.index!r}{_listed(removed)}.")


def _listed(names: list[str]) -> str:
    return f": {', '.join(names)}" if names else ""


def export_to(settings: Settings, archive: Path, snapshot_id: str | None, *, as_json: bool) -> None:
    """Write a snapshot into an archive; raises SnapshotError."""
    manifest = export_snapshot(_index_path(settings), archive, snapshot_id)
    _tell(settings, manifest, f"is in {archive}, {size(archive.stat().st_size)}", as_json=as_json)


def import_from(settings: Settings, archive: Path, *, as_json: bool) -> None:
    """Make the snapshot in an archive current; raises SnapshotError, BuildError, ModelError."""
    done = import_snapshot(
        archive,
        _index_path(settings),
        encoder_fingerprint=_encoder(settings),
        keep=settings.keep_snapshots,
    )
    _tell_what_is_current(settings, done, "is imported, and current now", as_json=as_json)


def _tell_what_is_current(settings: Settings, done: MadeCurrent, what: str, *, as_json: bool) -> None:
    before = "" if done.before is None else f"; {done.before} was before"
    _tell(settings, done.manifest, f"{what}{before}", as_json=as_json, more={"before": done.before})


def _tell(
    settings: Settings, manifest: Manifest, what: str, *, as_json: bool, more: Mapping[str, object] = _NOTHING
) -> None:
    if as_json:
        facts: dict[str, object] = {
            "index": settings.index,
            "snapshot": manifest.snapshot_id,
            "n_documents": manifest.n_documents,
            "n_passages": manifest.n_passages,
            "n_bytes": manifest.n_bytes,
        }
        print_done(facts | dict(more))
    else:
        say(f"Snapshot {manifest.snapshot_id} of index {settings.index!r} {what}.")


def _encoder(settings: Settings) -> str:
    """Return the fingerprint of the dual encoder that will encode queries."""
    return open_model_folder(settings.dual_encoder, "dual-encoder").fingerprint


def _index_path(settings: Settings) -> Path:
    return settings.data_path / settings.index
