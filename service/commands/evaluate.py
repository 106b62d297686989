"""`tercet evaluate`: rankings over BEIR folders, or the reader over labelled questions."""

import asyncio
import hashlib
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.table import Table

from indexer.analysis import ANALYZER
from indexer.build import BuildSettings
from indexer.publish import current_snapshot
from models.folder import open_model_folder
from models.reader import Reader
from models.training.data import read_questions
from service.commands.faults import CommandError
from service.commands.index import build_index
from service.commands.output import console, print_json
from service.commands.progress import progress_display
from service.commands.query import problems_as_faults
from service.engine import Engine, model_threads, open_engine
from service.evaluate import (
    STAGES,
    STRATEGIES,
    JudgedQuery,
    RankingQuality,
    Strategy,
    corpus_fingerprint,
    mean_quality,
    measure,
    read_judged_queries,
)
from service.evaluate_reader import ReadingQuality, measure_reader
from service.settings import Settings

_FOLDER = "evaluation"
_QUERY_SECONDS = 600.0  # no client waits, and a slow machine's figures are as good
_LABELS = {
    "exact_match": "EM",
    "f1": "F1",
    "has_answer_exact_match": "HasAns EM",
    "has_answer_f1": "HasAns F1",
    "no_answer_accuracy": "NoAns accuracy",
    "has_answer_exact_match_without_null": "HasAns EM without null",
    "has_answer_f1_without_null": "HasAns F1 without null",
    "best_threshold_f1": "F1 at the best threshold for this file",
}


@dataclass(frozen=True, slots=True)
class RankingTask:
    """What to measure: limit is the number of queries a data set at most, None for all."""

    datasets: Sequence[Path]
    split: str
    limit: int | None
    strategies: Sequence[str]
    reindexes: bool


Qualities = dict[str, dict[str, RankingQuality]]


def evaluate_rankings(task: RankingTask, settings: Settings, *, as_json: bool) -> None:
    """Index each data set unless that is done, rank all its queries by each strategy, print the measures.

    Raises:
        DataError: a data set is malformed.
        IndexerError, ModelError: fit to show.
    """
    strategies = [each for each in STRATEGIES if not task.strategies or each.name in task.strategies]
    queries = {each: read_judged_queries(each, split=task.split, limit=task.limit) for each in task.datasets}
    qualities: Qualities = {}
    for dataset in task.datasets:
        indexed = indexed_dataset(dataset, settings, reindexes=task.reindexes)
        qualities[_name(dataset)] = asyncio.run(_measure(indexed, queries[dataset], strategies, _name(dataset)))
    means = {each.name: mean_quality([found[each.name] for found in qualities.values()]) for each in strategies}
    if as_json:
        print_json({"split": task.split, "datasets": _plain(qualities), "mean": _plain({"": means})[""]})
    else:
        _print_rankings(qualities | ({"mean": means} if len(qualities) > 1 else {}))


def _name(dataset: Path) -> str:
    return dataset.resolve().name


def indexed_dataset(dataset: Path, settings: Settings, *, reindexes: bool) -> Settings:
    """Return the settings of an index of this content by these models, which is built unless it is there."""
    encoder = open_model_folder(settings.dual_encoder, "dual-encoder")
    cross_encoder = open_model_folder(settings.cross_encoder, "cross-encoder")
    made_by = [
        corpus_fingerprint(dataset),
        encoder.fingerprint,
        cross_encoder.tokenizer_fingerprint,
        ANALYZER,
        BuildSettings().model_dump_json(),
    ]
    fingerprint = hashlib.sha256("\n".join(made_by).encode()).hexdigest()[:12]
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", _name(dataset)).strip("-_")[:40]
    changes = {"index": f"{name or 'dataset'}-{fingerprint}", "data_path": settings.data_path / _FOLDER}
    indexed = settings.model_copy(update=changes | {"request_timeout_seconds": _QUERY_SECONDS})
    if reindexes or current_snapshot(indexed.data_path / indexed.index) is None:
        build_index([str(dataset)], indexed, fails_on_error=True)
    return indexed


async def _measure(
    settings: Settings, queries: Sequence[JudgedQuery], strategies: Sequence[Strategy], name: str
) -> dict[str, RankingQuality]:
    async with open_engine(settings) as engine:
        return {each.name: await _measure_one(engine, queries, each, name) for each in strategies}


async def _measure_one(engine: Engine, queries: Sequence[JudgedQuery], strategy: Strategy, name: str) -> RankingQuality:
    with progress_display() as display, problems_as_faults():
        return await measure(
            engine, queries, strategy, lambda n: display.update(f"{name} {strategy.name}", n, len(queries))
        )


def _plain(qualities: Qualities) -> dict[str, dict[str, object]]:
    """Return qualities as JSON values, times in milliseconds."""
    return {
        dataset: {name: _plain_quality(found) for name, found in by_strategy.items()}
        for dataset, by_strategy in qualities.items()
    }


def _plain_quality(found: RankingQuality) -> dict[str, object]:
    values = asdict(found)
    seconds = values.pop("median_seconds")
    return values | {"median_ms": {stage: round(1000 * value, 3) for stage, value in seconds.items()}}


def _print_rankings(qualities: Qualities) -> None:
    table = Table(caption="Stages: median ms, one query at a time. A document stands where its best passage does.")
    table.add_column("data set")
    table.add_column("ranking")
    for head in ("queries", "nDCG@10", "recall@100", "MRR@10", *STAGES):
        table.add_column(head, justify="right")
    for dataset, by_strategy in qualities.items():
        for name, found in by_strategy.items():
            measures = [f"{value:.3f}" for value in (found.ndcg_at_10, found.recall_at_100, found.mrr_at_10)]
            seconds = found.median_seconds
            times = [f"{1000 * seconds[stage]:.1f}" if stage in seconds else "" for stage in STAGES]
            table.add_row(dataset, name, f"{found.n_queries:,}", *measures, *times)
        table.add_section()
    console().print(table)


def evaluate_reader(questions_path: Path, settings: Settings, *, limit: int | None, as_json: bool) -> None:
    """Read every question's passage and print the measures.

    Raises:
        DataError: the file is malformed.
        ModelError: the reader cannot be used.
        CommandError: the file holds no question.
    """
    questions = read_questions(questions_path)[:limit]
    if not questions:
        raise CommandError(f"{questions_path} holds no question")
    folder = open_model_folder(settings.reader, "reader")
    reader = Reader(folder, n_threads=model_threads(settings), device=settings.device)
    with progress_display() as display:
        found = measure_reader(reader, questions, lambda n: display.update("Reading", n, len(questions)))
    if as_json:
        print_json({"reader": folder.settings.name, "fingerprint": folder.fingerprint} | asdict(found))
    else:
        _print_reading(found, folder.settings.name)


def _print_reading(found: ReadingQuality, reader: str) -> None:
    table = Table(
        title=f"{reader} on {found.n_questions:,} questions, {found.n_answerable:,} of them answerable",
        caption=f"Threshold {found.threshold:.3f} ({found.threshold_origin}); best for this file: "
        f"{found.best_threshold:.3f}.",
    )
    table.add_column("measure")
    table.add_column("%", justify="right")
    for name, label in _LABELS.items():
        value = getattr(found, name)
        table.add_row(label, "" if value is None else f"{100 * value:.1f}")
    console().print(table)
