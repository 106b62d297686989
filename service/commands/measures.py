"""How `tercet evaluate` prints what was measured: as tables for people, as JSON for programs."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from rich.table import Table

from models.bootstrap import Interval, PairedDifference
from service.commands.output import console, print_json, printable
from service.evaluate import STAGES, DatasetRankings, RankingQuality, differences, quality
from service.evaluate_reader import QuestionRead, intervals, quality_of

REFERENCE = "hybrid"  # what other rankings are compared with, where it was measured
LABELS = {
    "exact_match": "EM",
    "f1": "F1",
    "has_answer_exact_match": "HasAns EM",
    "has_answer_f1": "HasAns F1",
    "no_answer_accuracy": "NoAns accuracy",
    "has_answer_exact_match_without_null": "HasAns EM without null",
    "has_answer_f1_without_null": "HasAns F1 without null",
    "best_threshold_f1": "F1 at the best threshold for this file",
}

Qualities = dict[str, dict[str, RankingQuality]]


def print_rankings(found: Sequence[DatasetRankings], *, split: str, as_json: bool) -> None:
    """Print the measures of each data set and strategy, and their means over data sets."""
    qualities = {each.name: {name: quality([own]) for name, own in each.by_strategy.items()} for each in found}
    means = {name: quality([each.by_strategy[name] for each in found]) for name in found[0].by_strategy}
    if not as_json:
        _print_table(qualities | ({"mean": means} if len(found) > 1 else {}))
        return
    datasets = {
        each.name: {name: _plain(own) | _plain_differences(each, name) for name, own in qualities[each.name].items()}
        for each in found
    }
    indexes = {
        each.name: {"index": each.index, "snapshot": each.snapshot_id, "n_judged_missing": each.n_missing}
        for each in found
    }
    mean = {name: _plain(own) for name, own in means.items()}
    print_json({"split": split, "indexes": indexes, "datasets": datasets, "mean": mean})


def _plain(found: RankingQuality) -> dict[str, object]:
    """Return a quality as JSON values, times in milliseconds."""
    return {
        "n_queries": found.n_queries,
        "ndcg_at_10": found.ndcg_at_10,
        "recall_at_100": found.recall_at_100,
        "mrr_at_10": found.mrr_at_10,
        "intervals_95": _plain_intervals(found.intervals),
        "median_ms": {stage: round(1000 * seconds, 3) for stage, seconds in found.median_seconds.items()},
    }


def _plain_intervals(found: Mapping[str, Interval | None]) -> dict[str, list[float] | None]:
    return {name: None if each is None else [each.low, each.high] for name, each in found.items()}


def _plain_differences(rankings: DatasetRankings, name: str) -> dict[str, object]:
    reference = rankings.by_strategy.get(REFERENCE)
    if reference is None or name == REFERENCE:
        return {}
    found = differences(rankings.by_strategy[name], reference)
    return {f"above_{REFERENCE}": {measure: _plain_difference(each) for measure, each in found.items()}}


def _plain_difference(found: PairedDifference) -> dict[str, object]:
    interval = [found.interval.low, found.interval.high]
    return {"mean": found.mean, "interval_95": interval, "p_value": found.p_value}


def _print_table(qualities: Qualities) -> None:
    table = Table(
        caption="Stages: median ms, one query at a time. ±: half the 95% interval. "
        "A document stands where its best passage does."
    )
    table.add_column("data set")
    table.add_column("ranking")
    for head in ("queries", "nDCG@10", "recall@100", "MRR@10", *STAGES):
        table.add_column(head, justify="right")
    for dataset, by_strategy in qualities.items():
        for name, found in by_strategy.items():
            ndcg = f"{found.ndcg_at_10:.3f} ±{found.intervals['ndcg_at_10'].half_width:.3f}"
            measures = [ndcg, f"{found.recall_at_100:.3f}", f"{found.mrr_at_10:.3f}"]
            seconds = found.median_seconds
            times = [f"{1000 * seconds[stage]:.1f}" if stage in seconds else "" for stage in STAGES]
            table.add_row(printable(dataset), name, f"{found.n_queries:,}", *measures, *times)
        table.add_section()
    console().print(table)


def print_reading(read: Sequence[QuestionRead], *, reader: str, fingerprint: str, as_json: bool) -> None:
    """Print the measures of a reader over at least one question."""
    found, ranges = quality_of(read), intervals([each.figures for each in read])
    if as_json:
        plain = {"intervals_95": _plain_intervals(ranges)}
        print_json({"reader": reader, "fingerprint": fingerprint} | asdict(found) | plain)
        return
    table = Table(
        title=f"{printable(reader)} on {found.n_questions:,} questions, {found.n_answerable:,} of them answerable",
        caption=f"Threshold {found.threshold:.3f} ({found.threshold_origin}); best for this file: "
        f"{found.best_threshold:.3f}. ±: half the 95% interval.",
    )
    table.add_column("measure")
    table.add_column("%", justify="right")
    table.add_column("±", justify="right")
    for name, label in LABELS.items():
        value, interval = getattr(found, name), ranges.get(name)
        shown = "" if value is None else f"{100 * value:.1f}"
        table.add_row(label, shown, "" if interval is None else f"{100 * interval.half_width:.1f}")
    console().print(table)
