"""`tercet calibrate`: learn from labelled data what a model's scores mean, and store it in the model folder."""

import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from indexer.files import shown_path
from models.calibration import CurveQuality, ReliabilityBin
from models.early_exit import queries_needed
from models.folder import EarlyExitCalibration, ModelFolder, open_model_folder, write_settings
from models.reader import Reader
from models.training.calibrate import AnswerFit, fit_answer, read_all
from models.training.data import read_questions
from models.training.records import Source
from service.calibrate import (
    EXIT_CONFIDENCE,
    CurveFit,
    RelevanceFit,
    ScoredCandidates,
    fit_relevance,
    scored_candidates,
)
from service.commands.data_sources import distinct_names
from service.commands.evaluate import indexed_dataset
from service.commands.faults import CommandError
from service.commands.output import console, counted, print_json, printable, say
from service.commands.progress import progress_display
from service.commands.query import problems_as_faults
from service.engine import model_runtime, open_engine
from service.evaluate import read_judged_queries
from service.extras import check_train_extra
from service.settings import Settings

_FEWEST = 100  # examples under which chance decides
_SPLIT = "dev"


@dataclass(frozen=True, slots=True)
class ReaderTask:
    """What to tune a reader on: precision None is for the best F1, limit None for every question of each file."""

    data: Sequence[Source]
    precision: float | None
    balances: bool
    limit: int | None


@dataclass(frozen=True, slots=True)
class RerankerTask:
    """What to tune a cross-encoder on: files of questions, BEIR folders, and queries of each at most."""

    data: Sequence[Source]
    datasets: Sequence[Source]
    limit: int


def calibrate_reader(task: ReaderTask, settings: Settings, *, as_json: bool) -> None:
    """Tune the configured reader's threshold and its probabilities, and store them.

    Raises:
        DataError: a file is malformed, or its questions do not support a threshold; the model stays as it is.
        ModelError: the reader cannot be used.
        CommandError: the folder cannot be written.
    """
    folder = _writable(open_model_folder(settings.reader, "reader"))
    questions = [each for source in task.data for each in read_questions(source.path)[: _limit(source, task.limit)]]
    origin = ", ".join(_names(task.data))
    if not questions:
        raise CommandError(f"{origin} holds no question")
    reader = Reader(folder, model_runtime(settings))
    with progress_display() as display:
        read = read_all(reader, questions, lambda n: display.update("Reading", n, len(questions)))
    fit = fit_answer(read, origin=origin, precision=task.precision, balances=task.balances)
    stored = write_settings(folder.path, folder.settings.model_copy(update={"answer": fit.calibration}))
    _warn_of_few(len(questions), "question")
    if as_json:
        print_json(_head(stored) | asdict(fit) | {"calibration": fit.calibration.model_dump()})
    else:
        _print_answer_fit(stored, fit)


def calibrate_reranker(task: RerankerTask, settings: Settings, *, as_json: bool) -> None:
    """Tune the configured cross-encoder's relevance, of the mix and of the logit alone, and store both.

    Raises:
        DataError: data is malformed, or does not support a calibration; the model stays as it is.
        IndexerError, ModelError: fit to show.
        CommandError: the folder cannot be written.
    """
    folder = _writable(open_model_folder(settings.cross_encoder, "cross-encoder"))
    encoder = open_model_folder(settings.dual_encoder, "dual-encoder")
    collections = [_collect_dataset(each, settings, task.limit) for each in task.datasets]
    collections += [_collect_questions(each, settings, task.limit) for each in task.data]
    names = ", ".join(_names([*task.datasets, *task.data]))
    fit = fit_relevance(collections, origin=f"queries of {names}, with {encoder.settings.name}")
    learned = {
        "relevance": fit.mix.calibration,
        "pair_relevance": fit.pair.calibration if fit.pair is not None else None,
        "early_exit": fit.early_exit,
    }
    stored = write_settings(folder.path, folder.settings.model_copy(update=learned))
    _warn_of_few(fit.n_queries, "query")
    if as_json:
        curves = {"mix": _curve(fit.mix), "pair": _curve(fit.pair) if fit.pair is not None else None}
        early_exit = None if fit.early_exit is None else fit.early_exit.model_dump()
        print_json(_head(stored) | asdict(fit) | curves | {"early_exit": early_exit})
    else:
        _print_relevance_fit(stored, fit)


def _collect_dataset(source: Source, settings: Settings, limit: int) -> ScoredCandidates:
    """Return the candidates of a BEIR folder."""
    return _collect(source.path, source.split, settings, _limit(source, limit))


def _collect_questions(source: Source, settings: Settings, limit: int) -> ScoredCandidates:
    """Return the candidates of labelled questions over their own passages, indexed for this once."""
    with tempfile.TemporaryDirectory(prefix="tercet-calibrate-") as scratch:
        dataset = _questions_as_dataset(source.path, Path(scratch))
        indexed_there = settings.model_copy(update={"data_path": Path(scratch) / "data"})
        return _collect(dataset, _SPLIT, indexed_there, _limit(source, limit))


def _questions_as_dataset(path: Path, scratch: Path) -> Path:
    check_train_extra()
    from models.training.collection import write_collection

    dataset = scratch / "questions" / shown_path(path.name)[:100]
    if write_collection(read_questions(path), [], dataset, split=_SPLIT) == 0:
        raise CommandError(f"{path} holds no answerable question that can be understood without its passage")
    return dataset


def _limit(source: Source, limit: int | None) -> int | None:
    return limit if source.limit is None else source.limit


def _collect(dataset: Path, split: str, settings: Settings, limit: int | None) -> ScoredCandidates:
    queries = read_judged_queries(dataset, split=split, limit=limit)
    indexed = indexed_dataset(dataset, settings, reindexes=False)

    async def collect() -> ScoredCandidates:
        async with open_engine(indexed) as engine:
            with progress_display() as display, problems_as_faults():
                phase = f"{shown_path(dataset.name)}, reranking"
                return await scored_candidates(engine, queries, lambda n: display.update(phase, n, len(queries)))

    return asyncio.run(collect())


def _writable(folder: ModelFolder) -> ModelFolder:
    """Return the folder if it can be written, so that no long work is lost to one that cannot."""
    try:
        with tempfile.TemporaryFile(dir=folder.path):
            return folder
    except OSError as error:
        reason = error.strerror or str(error)
        raise CommandError(f"{folder.path} cannot be written ({reason}); copy it and name the copy") from error


def _names(sources: Sequence[Source]) -> list[str]:
    """Return what model.json calls the sources: `beir:test`, `dev.jsonl`."""
    names = distinct_names([source.path for source in sources])
    return [f"{name}:{each.split}" if each.split else name for name, each in zip(names, sources, strict=True)]


def _warn_of_few(n: int, noun: str) -> None:
    if n < _FEWEST:
        plural = counted(n, noun) if noun != "query" else f"{n} queries"
        say(f"Warning: {plural} is little to learn from; below {_FEWEST}, chance decides.")


def _head(folder: ModelFolder) -> dict[str, object]:
    return {"name": folder.settings.name, "path": shown_path(folder.path), "fingerprint": folder.fingerprint}


def _print_answer_fit(folder: ModelFolder, fit: AnswerFit) -> None:
    right = "" if fit.precision is None else f", {fit.precision:.1%} of the answers right"
    figures = f"F1 {100 * fit.f1:.1f}, {fit.coverage:.1%} answered{right}"
    _print_fit(
        folder,
        {
            "questions": f"{fit.n_questions:,}, {fit.n_answerable:,} of them answerable",
            "threshold": f"{fit.calibration.threshold:.4f}: {figures}",
            "probability": f"sigmoid({fit.calibration.margin_weight:.4f} margin {fit.calibration.margin_bias:+.4f})",
            "held out": _compared(fit.platt, fit.isotonic),
        },
        fit.reliability,
    )


def _curve(fit: CurveFit) -> dict[str, object]:
    return asdict(fit) | {"calibration": fit.calibration.model_dump()}


def _print_relevance_fit(folder: ModelFolder, fit: RelevanceFit) -> None:
    found, choice, pair = fit.mix.calibration, fit.choice, fit.pair
    mix = (
        f"{found.logit_weight:.4f} logit {found.dense_weight:+.4f} cosine {found.bm25_weight:+.4f} BM25 share"
        f" {found.bias:+.4f}"
    )
    alone = "tells nothing here, so its plain sigmoid stays" if pair is None else _alone(pair)
    _print_fit(
        folder,
        {
            "queries": f"{fit.n_queries:,}, {fit.n_relevant:,} of {fit.n_candidates:,} candidates relevant",
            "probability": f"sigmoid({mix})",
            "nDCG@10": f"{choice.ndcg:.3f}; the grid's best {choice.best_ndcg:.3f}, standard error of the "
            f"difference {choice.standard_error:.3f}; the logit alone {choice.logit_ndcg:.3f}",
            "held out": _compared(fit.mix.platt, fit.mix.isotonic),
            "logit alone": alone,
            "early exit": _exit(fit.early_exit),
        },
        fit.mix.reliability,
    )


def _exit(found: EarlyExitCalibration | None) -> str:
    if found is None:
        return f"never: it takes {queries_needed(EXIT_CONFIDENCE)} queries to be sure at {EXIT_CONFIDENCE:.0%}"
    kept = f"the best {found.k} of {found.confidence:.0%} of queries"
    return f"{found.deviations:.2f} deviations keep {kept}"


def _alone(pair: CurveFit) -> str:
    found = pair.calibration
    curve = f"sigmoid({found.logit_weight:.4f} logit {found.bias:+.4f})"
    return f"{curve}; held out: {_compared(pair.platt, pair.isotonic)}"


def _compared(platt: CurveQuality, isotonic: CurveQuality) -> str:
    own, other = (f"{each.calibration_error:.4f}, log loss {each.log_loss:.4f}" for each in (platt, isotonic))
    return f"calibration error {own}; isotonic regression would give {other}"


def _print_fit(folder: ModelFolder, facts: dict[str, str], reliability: Sequence[ReliabilityBin]) -> None:
    out: Console = console()
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in {"model": f"{folder.settings.name}, stored in {folder.path}", **facts}.items():
        table.add_row(name, printable(value))
    out.print(table)
    bins = Table(title="Reliability, held out")
    for head in ("share of data", "mean probability", "share true"):
        bins.add_column(head, justify="right")
    for each in reliability:
        bins.add_row(f"{each.weight:.1%}", f"{each.mean_probability:.3f}", f"{each.share_true:.3f}")
    out.print(bins)
