"""The report on rankings: measures, times, what was cut, calibration, and the queries that say the most.

Everything is made while the index is still open, because it shows passages. A passage without a judgement counts as
not relevant, here as in the measures, although some of them would be found relevant if anyone looked.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from indexer.snapshot import Snapshot
from models.bootstrap import PairedDifference
from service.commands.measures import REFERENCE
from service.evaluate import (
    STAGES,
    DatasetRankings,
    JudgedQuery,
    RankedDocument,
    RankedQuery,
    RankingQuality,
    differences,
    quality,
)
from service.report.page import Fact, render
from service.report.plots import MeasuredRow, measures_plot, reliability_plot
from service.report.reliability import Bin, error_above_first_bin, expected_calibration_error, reliability_bins

CONTENDER = "hybrid+rerank"
_N_WINS, _N_WORST = 10, 20
_N_SHOWN, _N_EXPECTED = 3, 3  # passages of a ranking, documents that should have come
_SHOWN_CHARACTERS = 280


@dataclass(frozen=True, slots=True)
class StageTimes:
    """Quantiles over queries, in seconds."""

    stage: str
    p50: float
    p95: float


@dataclass(frozen=True, slots=True)
class StrategySection:
    """One way to rank; differences are to REFERENCE, None for itself or where that was not measured."""

    name: str
    quality: RankingQuality
    differences: Mapping[str, PairedDifference] | None
    stages: list[StageTimes]
    n_queries_cut: int
    n_query_tokens_cut: int
    n_passages_cut: int
    n_passages_reranked: int


@dataclass(frozen=True, slots=True)
class ShownDocument:
    """A document, by the text of its best passage; rank None if it was not found, grade None without a judgement."""

    document_id: str
    rank: int | None
    grade: int | None
    title: str
    text: str
    is_indexed: bool = True


@dataclass(frozen=True, slots=True)
class Comparison:
    """One query in two rankings: nDCG@10 and the first documents of each."""

    query: JudgedQuery
    before: float
    after: float
    first_before: list[ShownDocument]
    first_after: list[ShownDocument]


@dataclass(frozen=True, slots=True)
class WorstQuery:
    """A query that went wrong: what came first, and the best of what should have."""

    query: JudgedQuery
    ndcg: float
    recall: float
    first: list[ShownDocument]
    expected: list[ShownDocument]
    n_relevant: int


@dataclass(frozen=True, slots=True)
class Reliability:
    """Bins of a score, its calibration error, that without the lowest bin, and the plot as SVG."""

    bins: list[Bin]
    error: float
    error_above: float | None
    plot: str


@dataclass(frozen=True, slots=True)
class DatasetSection:
    """All that the report says of one data set."""

    rankings: DatasetRankings
    facts: list[Fact]
    strategies: list[StrategySection]
    reliability: Reliability | None
    n_ties: int
    wins: list[Comparison]
    losses: list[Comparison]
    worst: list[WorstQuery]
    worst_of: str


def dataset_section(snapshot: Snapshot, rankings: DatasetRankings) -> DatasetSection:
    """Return a data set's part of the report; snapshot is the one that was ranked."""
    found = rankings.by_strategy
    reference, contender = found.get(REFERENCE), found.get(CONTENDER)
    pairs = list(zip(reference, contender, strict=True)) if reference is not None and contender is not None else []
    pairs.sort(key=lambda pair: pair[1].measures[0] - pair[0].measures[0])
    worst_of = CONTENDER if CONTENDER in found else list(found)[-1]
    return DatasetSection(
        rankings=rankings,
        facts=_facts(snapshot, rankings),
        strategies=[_strategy(name, ranked, reference) for name, ranked in found.items()],
        reliability=_reliability(rankings.name, contender) if contender is not None else None,
        n_ties=sum(before.measures[0] == after.measures[0] for before, after in pairs),
        wins=[_comparison(snapshot, pair) for pair in pairs[: -_N_WINS - 1 : -1] if _gain(pair) > 0],
        losses=[_comparison(snapshot, pair) for pair in pairs[:_N_WINS] if _gain(pair) < 0],
        worst=[_worst(snapshot, each) for each in _worst_queries(found[worst_of])],
        worst_of=worst_of,
    )


def _gain(pair: tuple[RankedQuery, RankedQuery]) -> float:
    return pair[1].measures[0] - pair[0].measures[0]


def _facts(snapshot: Snapshot, rankings: DatasetRankings) -> list[Fact]:
    manifest = snapshot.manifest
    n_queries = len(next(iter(rankings.by_strategy.values())))
    lacks = f", {rankings.n_missing:,} of them not in the index" if rankings.n_missing else ""
    return [
        Fact("index", f"{rankings.index}, snapshot {rankings.snapshot_id}"),
        Fact("queries", f"{n_queries:,}, with judgements of {rankings.n_judged:,} documents{lacks}"),
        Fact("documents", f"{manifest.n_documents:,} in {manifest.n_passages:,} passages"),
        Fact("passages that the dual encoder did not see whole", f"{manifest.n_cut_passages:,}"),
    ]


def _strategy(name: str, ranked: Sequence[RankedQuery], reference: Sequence[RankedQuery] | None) -> StrategySection:
    return StrategySection(
        name=name,
        quality=quality([ranked]),
        differences=differences(ranked, reference) if reference is not None and name != REFERENCE else None,
        stages=_stage_times(ranked),
        n_queries_cut=sum(each.query_cut_tokens > 0 for each in ranked),
        n_query_tokens_cut=sum(each.query_cut_tokens for each in ranked),
        n_passages_cut=sum(each.n_passages_cut for each in ranked),
        n_passages_reranked=sum(len(each.relevances) for each in ranked),
    )


def _stage_times(ranked: Sequence[RankedQuery]) -> list[StageTimes]:
    times = []
    for stage in STAGES:
        seconds = [each.seconds[stage] for each in ranked if stage in each.seconds]
        if seconds:
            p50, p95 = np.quantile(seconds, [0.5, 0.95])
            times.append(StageTimes(stage, float(p50), float(p95)))
    return times


def _reliability(name: str, ranked: Sequence[RankedQuery]) -> Reliability | None:
    relevances = np.concatenate([each.relevances for each in ranked])
    if not len(relevances):
        return None
    bins = reliability_bins(relevances[:, 0], relevances[:, 1] > 0)
    plot = reliability_plot(bins, name=f"reliability {name}", score="relevance", right="share judged relevant")
    return Reliability(bins, expected_calibration_error(bins), error_above_first_bin(bins), plot)


def _comparison(snapshot: Snapshot, pair: tuple[RankedQuery, RankedQuery]) -> Comparison:
    before, after = pair
    return Comparison(
        query=before.query,
        before=before.measures[0],
        after=after.measures[0],
        first_before=_shown(snapshot, before.query, before.first[:_N_SHOWN]),
        first_after=_shown(snapshot, after.query, after.first[:_N_SHOWN]),
    )


def _worst_queries(ranked: Sequence[RankedQuery]) -> list[RankedQuery]:
    """Return the worst queries, worst first: by nDCG@10, then recall@100, then their order; perfect ones never."""
    imperfect = [each for each in ranked if each.measures[0] < 1]
    return sorted(imperfect, key=lambda each: each.measures[:2])[:_N_WORST]


def _worst(snapshot: Snapshot, ranked: RankedQuery) -> WorstQuery:
    grades = ranked.query.judgements
    relevant = sorted((each for each in grades if grades[each] > 0), key=lambda each: -grades[each])
    places = {each.document_id: each for each in ranked.relevant}
    expected = [_expected(snapshot, ranked.query, each, places.get(each)) for each in relevant[:_N_EXPECTED]]
    return WorstQuery(
        query=ranked.query,
        ndcg=ranked.measures[0],
        recall=ranked.measures[1],
        first=_shown(snapshot, ranked.query, ranked.first[:_N_SHOWN]),
        expected=expected,
        n_relevant=len(relevant),
    )


def _shown(snapshot: Snapshot, query: JudgedQuery, documents: Sequence[RankedDocument]) -> list[ShownDocument]:
    passages = snapshot.passages(np.array([each.row for each in documents], np.int64))
    return [
        ShownDocument(
            each.document_id,
            each.rank,
            query.judgements.get(each.document_id),
            passage.title,
            clipped(passage.text),
        )
        for each, passage in zip(documents, passages, strict=True)
    ]


def _expected(snapshot: Snapshot, query: JudgedQuery, document_id: str, place: RankedDocument | None) -> ShownDocument:
    """Return a relevant document: by its best passage where it was found, else by its beginning."""
    if place is not None:
        return _shown(snapshot, query, [place])[0]
    document, grade = snapshot.document(document_id), query.judgements[document_id]
    if document is None:
        return ShownDocument(document_id, None, grade, "", "", is_indexed=False)
    return ShownDocument(document_id, None, grade, document.title, clipped(document.text))


def clipped(text: str, n_characters: int = _SHOWN_CHARACTERS) -> str:
    """Return the beginning of a text on one line, with … for what is left out."""
    plain = " ".join(text[: 2 * n_characters].split())
    return plain if len(plain) <= n_characters and len(text) <= 2 * n_characters else f"{plain[:n_characters]} …"


def rankings_report(facts: Sequence[Fact], sections: Sequence[DatasetSection]) -> str:
    """Return the page."""
    rows = [
        MeasuredRow(section.rankings.name, each.name, each.quality.ndcg_at_10, each.quality.intervals["ndcg_at_10"])
        for section in sections
        for each in section.strategies
    ]
    values = {
        "facts": facts,
        "sections": sections,
        "plot": measures_plot(rows, measure="nDCG@10"),
        "stages": STAGES,
        "reference": REFERENCE,
        "contender": CONTENDER,
    }
    return render("rankings.html", values)
