"""The tables of a run, in Markdown."""

from collections.abc import Iterator, Mapping, Sequence

from peers.catalogue import Kind
from peers.goals import Verdict, verdicts
from peers.results import Results, Row, reference_of, rows

_TITLES: Mapping[Kind, str] = {
    "rerank": "Reranking in process, pairs/s",
    "serve": "Reranking over HTTP, pairs/s",
    "embed": "Embedding passages, passages/s",
}
_LOGITS = ("logit's difference, mean / max", "top-10 kept", "Kendall's tau")
_COSINES = ("cosine with fp32, mean / least",)
_ENDS = ("peak memory, MB", "first score after s")


def tables(results: Results) -> str:
    """Return a table for each kind of work, the goals, and what was not run."""
    parts = [_table(kind, rows(results, kind)) for kind in _TITLES]
    parts += [_goals(verdicts(results)), _not_run(results)]
    return "\n\n".join(part for part in parts if part)


def _table(kind: Kind, found: Sequence[Row]) -> str:
    if not found:
        return ""
    columns = ("median", "least – most", f"× {reference_of(kind)[1]}", "tercet ×")
    columns += (*(_COSINES if kind == "embed" else _LOGITS), *_ENDS)
    return "\n".join([f"**{_TITLES[kind]}**", "", *_lines(("", *columns), (_cells(kind, row) for row in found))])


def _cells(kind: Kind, row: Row) -> list[str]:
    near = row.fidelity
    if kind == "embed":
        nearness = ["–" if row.cosines is None else f"{row.cosines[0]:.4f} / {row.cosines[1]:.4f}"]
    elif near is None:
        nearness = ["–"] * len(_LOGITS)
    else:
        difference = f"{near.difference_mean:.3f} / {near.difference_max:.3f}"
        nearness = [difference, f"{near.top_10_kept:.3f}", f"{near.tau:.3f}"]
    rates = [f"{row.per_second:.1f}", f"{row.slowest:.1f} – {row.fastest:.1f}"]
    ends = [f"{row.peak_mb:,.0f}", f"{row.start_seconds:.1f}"]
    return [row.name, *rates, _times(row.over_reference), _times(row.tercet_over), *nearness, *ends]


def _goals(found: Sequence[Verdict]) -> str:
    columns = ("of", "against", "found", "exact mode wants", "", "fast mode wants", "")
    cells = ([each.ours, each.against, _times(each.found), *_wanted(each)] for each in found)
    return "\n".join(
        [
            "**Goals**",
            "",
            *_lines(columns, cells),
            "",
            "The fast mode's ranking, nDCG@10 within .005 of fp32, is not measured here but by `tercet evaluate`.",
        ]
    )


def _wanted(verdict: Verdict) -> list[str]:
    return [_times(verdict.exact), verdict.in_exact_mode, _times(verdict.fast), verdict.in_fast_mode]


def _not_run(results: Results) -> str:
    if not results.not_run:
        return ""
    return "\n".join(
        ["**Not run**", "", *(f"- {name} ({kind}): {reason}" for (kind, name), reason in results.not_run.items())]
    )


def _lines(columns: Sequence[str], rows_: Iterator[Sequence[str]]) -> list[str]:
    return [
        f"| {' | '.join(columns)} |",
        f"|{'---|' * len(columns)}",
        *(f"| {' | '.join(cells)} |" for cells in rows_),
    ]


def _times(number: float | None) -> str:
    return "–" if number is None else f"{number:.3g}"
