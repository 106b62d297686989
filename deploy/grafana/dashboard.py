"""Print the Grafana dashboard, built with Grafana's own schema: `python deploy/grafana/dashboard.py > …/tercet.json`.

The file in `dashboards/` is what this prints (a test compares them), and every query in it is run against a real
Prometheus that scrapes a real service. Left out: alerts, which are Prometheus rules (`rules.yml`).
"""

import sys
from dataclasses import dataclass
from itertools import count

from grafana_foundation_sdk.builders import common, stat, timeseries
from grafana_foundation_sdk.builders.dashboard import Dashboard, Row
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import (
    BigValueTextMode,
    LegendDisplayMode,
    LegendPlacement,
    TooltipDisplayMode,
)
from grafana_foundation_sdk.models.dashboard import DashboardCursorSync, DataSourceRef

SOURCE = DataSourceRef(type_val="prometheus", uid="prometheus")
COLUMNS = 24


@dataclass(frozen=True, slots=True)
class Query:
    """One PromQL expression and how its series are named; `{{label}}` in the legend is Grafana's own syntax."""

    expression: str
    legend: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel: what it shows, in which of Grafana's units, and what it is for."""

    title: str
    unit: str
    description: str
    queries: tuple[Query, ...]


def rate(metric: str, *, by: str, where: str = "") -> str:
    """Return PromQL for the summed per-second rate of a counter, by label; an empty `by` sums over everything."""
    grouping = f" by ({by})" if by else ""
    selector = f"{{{where}}}" if where else ""
    return f"sum{grouping} (rate({metric}{selector}[$__rate_interval]))"


def quantile(q: float, histogram: str, *, by: str) -> str:
    """Return PromQL for the q-quantile of a histogram, by label."""
    return f"histogram_quantile({q}, {rate(f'{histogram}_bucket', by=f'{by}, le')})"


# Before its first error the service has no series with such a status: `or vector(0)` makes that a share of 0.
SERVER_ERRORS = rate("tercet_requests_total", by="", where='status=~"5.."')
NO_ANSWERS = rate("tercet_answers_total", by="", where='outcome="no_answer"')
ERROR_SHARE = f"({SERVER_ERRORS} or vector(0)) / {rate('tercet_requests_total', by='')}"
NO_ANSWER_SHARE = f"{NO_ANSWERS} / {rate('tercet_answers_total', by='')}"
BATCH_MEAN = f"{rate('tercet_batch_items_sum', by='model')} / {rate('tercet_batch_items_count', by='model')}"

STATS = (
    Panel("Ready replicas", "none", "Replicas that say they are ready.", (Query("sum(tercet_ready)", "ready"),)),
    Panel(
        "Snapshot",
        "none",
        "The snapshot that is served; two names mean that replicas differ.",
        (Query("count by (index, snapshot) (tercet_index_info)", "{{index}} {{snapshot}}"),),
    ),
    Panel(
        "Passages",
        "short",
        "Passages in the index that is served.",
        (Query("max by (index) (tercet_index_passages)", "{{index}}"),),
    ),
    Panel(
        "Request rate",
        "reqps",
        "All requests, probes included.",
        (Query(rate("tercet_requests_total", by=""), "requests"),),
    ),
    Panel(
        "Server error share", "percentunit", "Answers with a status of 500 or more.", (Query(ERROR_SHARE, "errors"),)
    ),
    Panel(
        "No-answer share",
        "percentunit",
        "Questions for which the reader decided that the passages hold no answer.",
        (Query(NO_ANSWER_SHARE, "no answer"),),
    ),
)

REQUESTS = (
    Panel(
        "Requests by route",
        "reqps",
        "Completed requests a second.",
        (Query(rate("tercet_requests_total", by="route"), "{{route}}"),),
    ),
    Panel(
        "Errors by route and status",
        "reqps",
        "Requests a second that ended with a problem document.",
        (Query(rate("tercet_requests_total", by="route, status", where='status=~"[45].."'), "{{route}} {{status}}"),),
    ),
    Panel(
        "Request latency",
        "s",
        "From the first byte to the last, by route.",
        (
            Query(quantile(0.5, "tercet_request_duration_seconds", by="route"), "{{route}} p50"),
            Query(quantile(0.95, "tercet_request_duration_seconds", by="route"), "{{route}} p95"),
        ),
    ),
    Panel(
        "Answers by outcome",
        "reqps",
        "Questions a second that were answered, and that were not.",
        (Query(rate("tercet_answers_total", by="outcome"), "{{outcome}}"),),
    ),
)

STAGES = (
    Panel(
        "Stage latency, p50",
        "s",
        "Median time in each stage of the request path, waiting for the model included.",
        (Query(quantile(0.5, "tercet_stage_duration_seconds", by="stage"), "{{stage}}"),),
    ),
    Panel(
        "Stage latency, p95",
        "s",
        "95th percentile of the time in each stage.",
        (Query(quantile(0.95, "tercet_stage_duration_seconds", by="stage"), "{{stage}}"),),
    ),
)

KEYS = (
    Panel(
        "Requests by key",
        "reqps",
        "Requests a second that were let in with an API key, by its name. Empty without keys.",
        (Query(rate("tercet_key_requests_total", by="key", where='outcome="admitted"'), "{{key}}"),),
    ),
    Panel(
        "Refused by key",
        "reqps",
        "Requests a second with an accepted API key that is at its limit or lacks the scope. Empty without keys.",
        (
            Query(
                rate("tercet_key_requests_total", by="key, outcome", where='outcome!="admitted"'), "{{key}} {{outcome}}"
            ),
        ),
    ),
)

MODELS = (
    Panel(
        "Queue",
        "short",
        "Model inputs that wait for a worker.",
        (Query("sum by (model) (tercet_queue_waiting)", "{{model}}"),),
    ),
    Panel(
        "Refused",
        "reqps",
        "Requests a second turned away before any work: too much is under way, or the deadline cannot be kept.",
        (Query(rate("tercet_requests_refused_total", by="reason"), "{{reason}}"),),
    ),
    Panel(
        "Cut short",
        "reqps",
        "Requests a second of which a stage was cut short for the deadline.",
        (Query(rate("tercet_degraded_total", by="stage"), "{{stage}}"),),
    ),
    Panel(
        "Candidates",
        "short",
        "Candidates a second for the cross-encoder: read, or left unread as the head was settled or for the deadline.",
        (Query(rate("tercet_rerank_candidates_total", by="outcome"), "{{outcome}}"),),
    ),
    Panel(
        "Under way",
        "short",
        "Estimated tokens of the requests under way.",
        (Query("sum by (instance) (tercet_admitted_tokens)", "{{instance}}"),),
    ),
    Panel("Batch size", "short", "Mean number of inputs run together.", (Query(BATCH_MEAN, "{{model}}"),)),
    Panel(
        "Cut texts",
        "cps",
        "Queries and passages a second that did not fit a model and were cut.",
        (Query(rate("tercet_truncated_total", by="what"), "{{what}}"),),
    ),
)

INDEXING = (
    Panel(
        "Snapshots taken over",
        "short",
        "Newly published snapshots in the last hour that the service took over, or refused.",
        (Query("sum by (outcome) (increase(tercet_snapshot_swaps_total[1h]))", "{{outcome}}"),),
    ),
    Panel(
        "Jobs",
        "short",
        "Indexing jobs over HTTP that wait or run.",
        (Query("sum by (state) (tercet_jobs)", "{{state}}"),),
    ),
    Panel(
        "Jobs that ended",
        "short",
        "Indexing jobs that ended in the last hour, by how.",
        (Query("sum by (state) (increase(tercet_jobs_over_total[1h]))", "{{state}}"),),
    ),
)


ROWS = (("Requests", REQUESTS), ("Keys", KEYS), ("Stages", STAGES), ("Models", MODELS), ("Indexing", INDEXING))


def targets(panel: Panel) -> list[Dataquery]:
    """Return the panel's queries, lettered A, B, … in order."""
    return [
        Dataquery().expr(query.expression).legend_format(query.legend).ref_id(chr(ord("A") + i)).datasource(SOURCE)
        for i, query in enumerate(panel.queries)
    ]


def stat_panel(panel: Panel, *, panel_id: int, width: int) -> stat.Panel:
    """Return a panel that shows the latest value; where the name is what matters, it shows the name."""
    shown = BigValueTextMode.NAME if panel.title == "Snapshot" else BigValueTextMode.VALUE
    built = stat.Panel().id(panel_id).title(panel.title).description(panel.description)
    latest = common.ReduceDataOptions().calcs(["lastNotNull"])
    built = (
        built.unit(panel.unit)
        .datasource(SOURCE)
        .text_mode(shown)
        .reduce_options(latest)
        .no_value("–")
        .span(width)
        .height(4)
    )
    for target in targets(panel):
        built = built.with_target(target)
    return built


def graph_panel(panel: Panel, *, panel_id: int, width: int) -> timeseries.Panel:
    """Return a panel that shows lines over time, from zero up, with the latest value in its legend."""
    legend = common.VizLegendOptions().display_mode(LegendDisplayMode.LIST).calcs(["lastNotNull"])
    legend = legend.show_legend(True).placement(LegendPlacement.BOTTOM)
    built = timeseries.Panel().id(panel_id).title(panel.title).description(panel.description)
    built = built.unit(panel.unit).datasource(SOURCE).min(0).fill_opacity(10).legend(legend).span(width).height(8)
    built = built.tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI))
    for target in targets(panel):
        built = built.with_target(target)
    return built


def dashboard() -> Dashboard:
    """Return the whole dashboard, rows from the top."""
    built = Dashboard("Tercet").uid("tercet").tags(["tercet"]).readonly().timezone("browser")
    built = built.description(
        "A row a question: is it up, is it used and by whom, where does time go, is it full, is it fresh?"
    )
    built = built.refresh("15s").time("now-1h", "now").tooltip(DashboardCursorSync.CROSSHAIR)
    panel_ids = count(1)
    for panel in STATS:
        built = built.with_panel(stat_panel(panel, panel_id=next(panel_ids), width=COLUMNS // len(STATS)))
    for title, panels in ROWS:
        built = built.with_row(Row(title).id(next(panel_ids)))
        for panel in panels:
            built = built.with_panel(graph_panel(panel, panel_id=next(panel_ids), width=COLUMNS // len(panels)))
    return built


if __name__ == "__main__":
    sys.stdout.write(JSONEncoder(sort_keys=True, indent=2).encode(dashboard().build()) + "\n")
