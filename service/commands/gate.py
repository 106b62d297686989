"""`tercet index --gate`: try the new snapshot on queries before it is published."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

from indexer.errors import BuildError, SnapshotError
from indexer.publish import current_snapshot
from indexer.snapshot import Snapshot
from models.folder import open_model_folder
from service.commands.faults import CommandError
from service.commands.output import counted, say
from service.commands.progress import progress_display
from service.commands.query import problems_as_faults
from service.engine import Engine, Models, load_models
from service.gate import Gate, GateOutcome, QueryResult, compare, try_queries
from service.settings import Settings

_SHOWN_LOSSES = 20
_QUERY_SECONDS = 600.0  # no client waits


def gate_keeper(gate: Gate, settings: Settings) -> Callable[[Path], Mapping[str, float]]:
    """Return what tries a complete snapshot's folder against the current one, and gives its figures.

    It raises BuildError if a figure fell by more than the gate allows, after the queries that lost were told.

    Raises:
        CommandError: the current snapshot cannot be tried; found out here, before a long build.
    """
    patient = settings.model_copy(update={"request_timeout_seconds": _QUERY_SECONDS})
    index_path = patient.data_path / patient.index
    _require_usable(current_snapshot(index_path), patient)

    def accept(folder: Path) -> Mapping[str, float]:
        models = load_models(patient)
        after = _tried("Trying the new snapshot", folder, models, gate, patient)
        current = current_snapshot(index_path)
        before = _tried("Trying the current snapshot", current, models, gate, patient) if current is not None else None
        outcome = compare(after, before, gate)
        _tell(outcome)
        if outcome.reasons:
            raise BuildError(f"the new snapshot is not published: {' and '.join(outcome.reasons)}")
        return {**outcome.after, "n_queries": float(len(gate.queries))}

    return accept


def _require_usable(current: Path | None, settings: Settings) -> None:
    if current is None:
        return
    try:
        fingerprint = open_model_folder(settings.dual_encoder, "dual-encoder").fingerprint
        Snapshot.open_folder(current, settings.index, encoder_fingerprint=fingerprint).close()
    except SnapshotError as error:
        raise CommandError(
            f"the gate cannot compare with the current snapshot: {error}. Index without --gate to replace it, or go"
            " back first with `tercet snapshots rollback`"
        ) from error


def _tried(phase: str, folder: Path, models: Models, gate: Gate, settings: Settings) -> list[QueryResult]:
    encoder = models.dual_encoder
    snapshot = Snapshot.open_folder(
        folder, settings.index, encoder_fingerprint=encoder.fingerprint, dimension=encoder.dimension
    )

    async def run() -> list[QueryResult]:
        engine = Engine(settings, models=models, snapshot=snapshot)
        await engine.start()
        try:
            with progress_display() as display, problems_as_faults():
                total = len(gate.queries)
                return await try_queries(engine, gate.queries, lambda done: display.update(phase, done, total))
        finally:
            await engine.stop()

    return asyncio.run(run())


def _tell(outcome: GateOutcome) -> None:
    """Say both figures, and which queries lost what."""
    names = {"ndcg_at_10": "nDCG@10", "answer_rate": "answer rate"}
    for name, value in outcome.after.items():
        before = f" (before: {outcome.before[name]:.3f})" if outcome.before is not None else ""
        say(f"Gate: {names[name]} {value:.3f}{before}.")
    for loss in outcome.losses[:_SHOWN_LOSSES]:
        ndcg = [f"nDCG@10 {loss.ndcg_before:.3f} to {loss.ndcg_after:.3f}"] if loss.fall > 0 else []
        lost = ["no answer any more"] if loss.lost_answer else []
        say(f"  query {loss.query_id}: {', '.join(ndcg + lost)}")
    if len(outcome.losses) > _SHOWN_LOSSES:
        say(f"  and {counted(len(outcome.losses) - _SHOWN_LOSSES, 'query')} more")
