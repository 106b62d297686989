"""`tercet evaluate`: rankings over BEIR folders, or the reader over labelled questions, and a report on either.

The report's libraries belong to the `train` extra, so what uses them is imported when a report is wanted.
"""

import asyncio
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from indexer.publish import current_snapshot
from models.folder import BUNDLED, SETTINGS_FILE, Kind, bundled_names, open_model_folder
from models.reader import Reader
from models.training.data import read_questions
from service.commands.data_sources import distinct_names
from service.commands.faults import CommandError
from service.commands.index import IndexRun, build_index, build_settings
from service.commands.measures import print_rankings, print_reading
from service.commands.output import counted, say
from service.commands.progress import progress_display
from service.commands.query import problems_as_faults
from service.engine import Engine, model_runtime, open_engine
from service.evaluate import (
    SERVED,
    STRATEGIES,
    DatasetRankings,
    JudgedQuery,
    RankedQuery,
    Strategy,
    corpus_fingerprint,
    judged_documents,
    measure,
    missing_documents,
    read_judged_queries,
)
from service.evaluate_reader import measure_reader, reading_seconds
from service.report.destination import check_destination, write_atomically
from service.settings import Settings

if TYPE_CHECKING:
    from service.report.rankings import DatasetSection

_FOLDER = "evaluation"
_MEASURED = {  # no client waits, a slow machine's figures are as good, and no ranking profits from the one before
    "request_timeout_seconds": 600.0,
    "cache_bytes": 0,
}
_TIMED_QUESTIONS = 100  # enough for a 95th percentile


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What to measure, and where to tell.

    target is a model or an index, None for what is configured. datasets are BEIR folders, or one file of questions.
    limit is the number of queries a data set at most, None for all. rerank_tokens adds what is served with so many
    tokens of a passage read, 0 for nothing. report is where the HTML goes, command what it
    says it was made by.
    """

    target: str | None
    datasets: Sequence[Path]
    split: str
    limit: int | None
    strategies: Sequence[str]
    rerank_tokens: int
    reindexes: bool
    as_json: bool
    report: Path | None
    command: str


@dataclass(frozen=True, slots=True)
class Subject:
    """What is measured: settings that name it, and what it is; kind None means whatever is configured."""

    settings: Settings
    kind: Kind | None = None
    is_index: bool = False


def run_evaluation(task: Evaluation, settings: Settings) -> None:
    """Measure rankings on folders or the reader on a file, print the measures, write the report if one is wanted.

    Raises:
        CommandError: the target is unknown or does not fit the data, or no report can be made or written there.
        DataError: a data set is malformed.
        IndexerError, ModelError: fit to show.
    """
    if task.report is not None:
        check_destination(task.report)
    subject = find_subject(task.target, settings)
    files = [each for each in task.datasets if not each.is_dir()]
    _check_fit(task, subject, files)
    if files:
        evaluate_reader(task, files[0], subject.settings)
    else:
        evaluate_rankings(task, subject)


def _check_fit(task: Evaluation, subject: Subject, files: Sequence[Path]) -> None:
    """Return when what is measured and what it is measured on fit together; files are the datasets that no folder is.

    Raises:
        CommandError: they do not.
    """
    gone = [each for each in files if not each.exists()]
    if gone:
        raise CommandError(f"there is no folder and no file {gone[0]}")
    resolved = [each.resolve() for each in task.datasets]
    twice = [each for number, each in enumerate(task.datasets) if resolved[number] in resolved[:number]]
    if twice:
        raise CommandError(f"{twice[0]} is given twice")
    if subject.kind == "reader" and (len(task.datasets) > 1 or not files):
        raise CommandError(f"{task.target!r} is a reader: give it one file of labelled questions, with --questions")
    if subject.kind != "reader" and task.target is not None and files:
        ranker = "an index" if subject.is_index else f"a {subject.kind}"
        raise CommandError(f"{task.target!r} is {ranker}: give it BEIR folders, with --dataset; {files[0]} is a file")
    if files and (task.strategies or task.rerank_tokens or task.reindexes):
        raise CommandError(
            f"{files[0]} is read, not ranked, so --mode, --rerank-tokens and --reindex have no place here"
        )
    if files and len(task.datasets) > 1:
        raise CommandError(f"a file of questions is measured alone: give either {files[0]} or the folders")
    if subject.is_index and task.reindexes:
        raise CommandError(f"the index {task.target!r} is judged as it stands, so --reindex has no place here")


def find_subject(target: str | None, settings: Settings) -> Subject:
    """Return what a name stands for: a bundled model, a model folder, or else an index of the data folder.

    Raises:
        CommandError: it is none of them.
        ModelFolderError: the model cannot be used.
    """
    if target is None:
        return Subject(settings)
    if any((path / SETTINGS_FILE).is_file() for path in (BUNDLED / target, Path(target))):
        kind = open_model_folder(target, None).settings.kind
        return Subject(settings.model_copy(update={kind.replace("-", "_"): target}), kind=kind)
    if Path(target).name == target and current_snapshot(settings.data_path / target) is not None:
        return Subject(settings.model_copy(update={"index": target}), is_index=True)
    indexes = ", ".join(sorted(path.parent.name for path in settings.data_path.glob("*/current")))
    raise CommandError(
        f"{target!r} is neither a bundled model ({', '.join(bundled_names())}), nor a folder with a {SETTINGS_FILE}, "
        f"nor an index in {settings.data_path} ({indexes if indexes else 'which holds none'})"
    )


def evaluate_rankings(task: Evaluation, subject: Subject) -> None:
    """Rank all queries of each data set by each strategy, over the named index or one of the data set's documents."""
    queries = [read_judged_queries(each, split=task.split, limit=task.limit) for each in task.datasets]
    found: list[DatasetRankings] = []
    sections: list[DatasetSection] = []
    for dataset, name, own in zip(task.datasets, distinct_names(task.datasets), queries, strict=True):
        if subject.is_index:
            indexed = subject.settings.model_copy(update=_MEASURED)
        else:
            indexed = indexed_dataset(dataset, subject.settings, reindexes=task.reindexes)
        rankings, section = asyncio.run(_measure(indexed, own, task, name=name))
        found.append(rankings)
        sections += [] if section is None else [section]
    print_rankings(found, split=task.split, as_json=task.as_json)
    if task.report is not None:
        from service.report.page import origin_facts
        from service.report.rankings import rankings_report

        settings = subject.settings
        models = [
            open_model_folder(settings.dual_encoder, "dual-encoder"),
            open_model_folder(settings.cross_encoder, "cross-encoder"),
        ]
        _write_report(task.report, rankings_report(origin_facts(task.command, models), sections))


def _write_report(path: Path, page: str) -> None:
    write_atomically(path, page)
    say(f"The report is {path}.")


def indexed_dataset(dataset: Path, settings: Settings, *, reindexes: bool) -> Settings:
    """Return the settings of an index of this content by these models, which is built unless it is there."""
    encoder = open_model_folder(settings.dual_encoder, "dual-encoder")
    cross_encoder = open_model_folder(settings.cross_encoder, "cross-encoder")
    recipe = build_settings(settings)
    made_by = [
        corpus_fingerprint(dataset),
        encoder.fingerprint,
        cross_encoder.tokenizer_fingerprint,
        recipe.analyzer.name,
        recipe.model_dump_json(exclude={"keep"}),
    ]
    fingerprint = hashlib.sha256("\n".join(made_by).encode()).hexdigest()[:12]
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", dataset.resolve().name).strip("-_")[:40]
    changes = {"index": f"{name or 'dataset'}-{fingerprint}", "data_path": settings.data_path / _FOLDER}
    indexed = settings.model_copy(update=changes | _MEASURED)
    if reindexes or current_snapshot(indexed.data_path / indexed.index) is None:
        build_index([str(dataset)], indexed, IndexRun(fails_on_error=True))
    return indexed


async def _measure(
    settings: Settings, queries: Sequence[JudgedQuery], task: Evaluation, *, name: str
) -> tuple[DatasetRankings, "DatasetSection | None"]:
    """Return a data set's rankings and, where a report is wanted, its part of it, made while the index is open."""
    strategies = _strategies(task)
    async with open_engine(settings) as engine:
        snapshot, judged = engine.snapshot, judged_documents(queries)
        missing = missing_documents(snapshot, judged)
        _tell_what_is_missing(snapshot.index_name, name, n_missing=len(missing), n_judged=len(judged))
        by_strategy = {each.name: await _measure_one(engine, queries, each, name) for each in strategies}
        rankings = DatasetRankings(
            name, snapshot.index_name, snapshot.snapshot_id, len(judged), len(missing), by_strategy
        )
        if task.report is None:
            return rankings, None
        from service.report.rankings import dataset_section

        return rankings, dataset_section(snapshot, rankings)


def _strategies(task: Evaluation) -> list[Strategy]:
    named = [each for each in STRATEGIES if not task.strategies or each.name in task.strategies]
    if not task.rerank_tokens:
        return named
    return [*named, replace(SERVED, name=f"{SERVED.name}:{task.rerank_tokens}", rerank_tokens=task.rerank_tokens)]


def _tell_what_is_missing(index: str, dataset: str, *, n_missing: int, n_judged: int) -> None:
    """Say how many judged documents an index lacks.

    Raises:
        CommandError: it lacks all of them, so that nothing can be measured.
    """
    if n_missing == n_judged:
        raise CommandError(
            f"the index {index!r} holds none of the {counted(n_judged, 'document')} that {dataset} judges: "
            "its document ids must be those of the data set"
        )
    if n_missing:
        say(f"The index {index!r} lacks {n_missing:,} of the {counted(n_judged, 'document')} that {dataset} judges.")


async def _measure_one(
    engine: Engine, queries: Sequence[JudgedQuery], strategy: Strategy, name: str
) -> list[RankedQuery]:
    with progress_display() as display, problems_as_faults():
        return await measure(
            engine, queries, strategy, lambda n: display.update(f"{name} {strategy.name}", n, len(queries))
        )


def evaluate_reader(task: Evaluation, questions_path: Path, settings: Settings) -> None:
    """Read every question's passage, print the measures, and write the report if one is wanted.

    Raises:
        DataError: the file is malformed.
        ModelError: the reader cannot be used.
        CommandError: the file holds no question.
    """
    questions = read_questions(questions_path)[: task.limit]
    if not questions:
        raise CommandError(f"{questions_path} holds no question")
    folder = open_model_folder(settings.reader, "reader")
    reader = Reader(folder, model_runtime(settings))
    with progress_display() as display:
        read = measure_reader(reader, questions, lambda n: display.update("Reading", n, len(questions)))
    print_reading(read, reader=folder.settings.name, fingerprint=folder.fingerprint, as_json=task.as_json)
    if task.report is not None:
        from service.report.page import origin_facts
        from service.report.reading import reading_report

        seconds = reading_seconds(reader, questions[:_TIMED_QUESTIONS])
        facts = origin_facts(task.command, [folder])
        _write_report(task.report, reading_report(facts, read, seconds))
