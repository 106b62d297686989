"""The series that are exposed are those that are documented, with labels from closed sets."""

import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from service.metrics import CUT_SHORT, MODELS, OUTCOMES, REFUSALS, RERANKED, STAGES, TRUNCATED, Metrics

DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"


class Waiting:
    n_waiting = 3
    waiting_tokens = 42


def exposed(metrics: Metrics) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    samples: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(metrics.expose().decode()):
        for sample in family.samples:
            samples.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return samples


def full() -> Metrics:
    metrics = Metrics()
    metrics.requests.labels("/v1/search", "POST", "200").inc()
    metrics.request_duration_seconds.labels("/v1/search").observe(0.1)
    metrics.watch_index(index="default", snapshot="one", n_passages=7)
    metrics.watch_queues(dict.fromkeys(MODELS, Waiting()))
    metrics.watch_keys(["web"])
    metrics.watch_engines({"reader": "openvino in bf16"})
    return metrics


def test_docs_list_every_series_and_its_labels() -> None:
    rows = re.findall(r"^\| `(tercet_\w+)` \| (\w+) \|([^|]*)\|", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    documented = {name: set(re.findall(r"`(\w+)`", labels)) for name, _, labels in rows}
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(full().expose().decode()):
        if family.name.startswith("tercet_") and not family.name.endswith("_created"):
            suffix = {"counter": "_total", "info": "_info"}.get(family.type, "")
            labels = {name for sample in family.samples for name in sample.labels} - {"le"}
            found[family.name.removesuffix(suffix) + suffix] = labels
    assert documented == found


def test_series_of_closed_labels_exist_before_their_first_event() -> None:
    samples = exposed(Metrics())
    assert {dict(labels)["stage"] for labels in samples["tercet_stage_duration_seconds_count"]} == set(STAGES)
    assert {dict(labels)["outcome"] for labels in samples["tercet_answers_total"]} == set(OUTCOMES)
    assert {dict(labels)["outcome"] for labels in samples["tercet_rerank_candidates_total"]} == set(RERANKED)
    assert {dict(labels)["what"] for labels in samples["tercet_truncated_total"]} == set(TRUNCATED)
    assert {dict(labels)["reason"] for labels in samples["tercet_requests_refused_total"]} == set(REFUSALS)
    assert {dict(labels)["stage"] for labels in samples["tercet_degraded_total"]} == set(CUT_SHORT)


def test_queues_are_read_when_scraped() -> None:
    samples = exposed(full())
    assert samples["tercet_queue_waiting"][("model", "reader"),] == 3
    assert samples["tercet_queue_waiting_tokens"][("model", "reader"),] == 42


def test_readiness_is_asked_at_each_scrape() -> None:
    answers = iter([False, True])
    metrics = Metrics()
    metrics.watch_readiness(lambda: next(answers))
    assert [exposed(metrics)["tercet_ready"][()] for _ in range(2)] == [0, 1]


def test_only_cut_queries_are_counted_as_cut() -> None:
    metrics = Metrics()
    metrics.count_cut(query_tokens=0, n_passages=2)
    metrics.count_cut(query_tokens=9, n_passages=0)
    samples = exposed(metrics)["tercet_truncated_total"]
    assert samples[("what", "query"),] == 1
    assert samples[("what", "passage"),] == 2
