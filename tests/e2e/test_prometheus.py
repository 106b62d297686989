"""A real Prometheus takes our configuration and rules, scrapes the real service, and can answer every panel's query."""

import json
import math
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from .keyed import keyed_data, make_key
from .processes import ROOT, RunningService, answers_with, free_port, running_service, system_program, wait_until

pytestmark = pytest.mark.prometheus

DEPLOY = ROOT / "deploy"
DASHBOARD = json.loads((DEPLOY / "grafana/dashboards/tercet.json").read_text())
ALL_QUERIES = [
    (f"{panel['title']} {target['refId']}", target["expr"].replace("$__rate_interval", "30s"))
    for panel in DASHBOARD["panels"]
    for target in panel.get("targets", [])
]
KEY_QUERIES = [query for _, query in ALL_QUERIES if "tercet_key_requests_total" in query]  # no data without keys
QUERIES = [(panel, query) for panel, query in ALL_QUERIES if query not in KEY_QUERIES]


@dataclass(frozen=True)
class RunningPrometheus:
    url: str
    service: RunningService

    def get(self, path: str, **parameters: str) -> Any:
        response = httpx.get(f"{self.url}/api/v1/{path}", params=parameters, timeout=30)
        assert response.status_code == 200, response.text
        return response.json()["data"]

    def values(self, query: str) -> list[float]:
        """The finite values of all series that the query gives now."""
        found = [float(series["value"][1]) for series in self.get("query", query=query)["result"]]
        return [value for value in found if math.isfinite(value)]

    def traffic(self) -> None:
        """One request of each kind, failing ones included."""
        self.service.post("/v1/search", query="who kept the lighthouse")
        self.service.post("/v1/answer", query="who kept the lighthouse", no_answer_threshold=-1000)
        self.service.post("/v1/answer", query="what is the capital of Belarus", no_answer_threshold=1000)
        self.service.post("/v1/search", query="beavers", top_k=0)


@contextmanager
def running_prometheus(service: RunningService, folder: Path, **job: object) -> Iterator[RunningPrometheus]:
    """Prometheus with our configuration, except for the target's address, a scrape every second, and what job adds."""
    config = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["scrape_configs"][0] |= job
    config["scrape_configs"][0]["static_configs"][0]["targets"] = [service.url.removeprefix("http://")]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    (folder / "rules.yml").write_text((DEPLOY / "rules.yml").read_text())
    url = f"http://127.0.0.1:{free_port()}"
    command = [
        system_program("prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'prometheus-data'}",
        f"--web.listen-address={url.removeprefix('http://')}",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        wait_until(lambda: answers_with(f"{url}/-/ready", 200), "Prometheus is ready", process=process)
        yield RunningPrometheus(url, service)
    finally:
        process.terminate()
        process.wait(timeout=60)


@pytest.fixture(scope="module")
def prometheus(service: RunningService, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPrometheus]:
    with running_prometheus(service, tmp_path_factory.mktemp("prometheus")) as running:
        yield running


def test_promtool_accepts_the_configuration_and_the_rules() -> None:
    command = [system_program("promtool"), "check", "config", str(DEPLOY / "prometheus.yml")]
    checked = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_alerts_fire_when_they_should_and_only_then() -> None:
    command = [system_program("promtool"), "test", "rules", str(ROOT / "tests/deploy/rules_test.yml")]
    tested = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_every_alert_has_a_unit_test() -> None:
    rules = yaml.safe_load((DEPLOY / "rules.yml").read_text())["groups"][0]["rules"]
    tests = yaml.safe_load((ROOT / "tests/deploy/rules_test.yml").read_text())["tests"]
    fired = {case["alertname"] for test in tests for case in test["alert_rule_test"] if case["exp_alerts"]}
    assert fired == {rule["alert"] for rule in rules}


def test_the_service_is_scraped_without_an_error(prometheus: RunningPrometheus) -> None:
    wait_until(lambda: prometheus.values('up{job="tercet"}') == [1.0], "the service is scraped")
    targets = prometheus.get("targets")["activeTargets"]
    assert [(target["health"], target["lastError"]) for target in targets] == [("up", "")]


@pytest.mark.parametrize(("panel", "query"), QUERIES, ids=[panel for panel, _ in QUERIES])
def test_every_panel_shows_data_after_some_traffic(prometheus: RunningPrometheus, panel: str, query: str) -> None:
    def shows_data() -> bool:
        prometheus.traffic()
        return prometheus.values(query) != []

    wait_until(shows_data, f"{panel} shows data")


def test_the_latency_panels_show_every_stage(prometheus: RunningPrometheus) -> None:
    wait_until(
        lambda: len(prometheus.values("sum by (stage) (rate(tercet_stage_duration_seconds_count[30s])) > 0")) == 6,
        "encode, retrieve, fuse, rerank, read and respond were all timed",
    )


def test_what_rules_and_panels_name_is_what_the_service_exposes(service: RunningService) -> None:
    exposed = set(re.findall(r"^(tercet_\w+)[ {]", service.get("/metrics").text, flags=re.MULTILINE))
    rules = yaml.safe_load((DEPLOY / "rules.yml").read_text())["groups"][0]["rules"]
    expressions = [rule["expr"] for rule in rules] + [query for _, query in QUERIES]
    named = {name for expression in expressions for name in re.findall(r"\btercet_\w+", expression)}
    assert named - exposed == set()


def test_every_rule_is_healthy_and_no_alert_fires_for_a_healthy_service(prometheus: RunningPrometheus) -> None:
    wait_until(
        lambda: all(rule["health"] == "ok" for group in prometheus.get("rules")["groups"] for rule in group["rules"]),
        "all rules were evaluated",
    )
    assert [alert for alert in prometheus.get("alerts")["alerts"] if alert["state"] == "firing"] == []


def test_the_scrape_path_is_the_one_that_prometheus_expects(service: RunningService) -> None:
    assert service.get("/metrics").headers["content-type"].startswith("text/plain; version=0.0.4")


def test_the_rules_file_is_found_beside_the_configuration() -> None:
    rule_files = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())["rule_files"]
    assert [name for name in rule_files if not Path(DEPLOY, name).is_file()] == []


def test_a_service_with_keys_is_scraped_with_one_and_its_panels_show_it(
    service_settings: dict[str, str], tmp_path: Path
) -> None:
    settings = keyed_data(service_settings, tmp_path)
    (tmp_path / "prometheus.key").write_text(make_key(settings, "prometheus", "--scope", "metrics") + "\n")
    with running_service(settings, folder=tmp_path) as service:
        authorization = {"credentials_file": str(tmp_path / "prometheus.key")}
        with running_prometheus(service, tmp_path, authorization=authorization) as prometheus:
            wait_until(lambda: prometheus.values('up{job="tercet"}') == [1.0], "the service is scraped with a key")
            assert len(KEY_QUERIES) == 2
            wait_until(lambda: all(map(prometheus.values, KEY_QUERIES)), "the panels by key show data")
            assert {series["metric"]["key"] for series in prometheus.get("query", query=KEY_QUERIES[0])["result"]} == {
                "prometheus"
            }
