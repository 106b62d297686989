"""The dashboard is what its source prints, and Grafana would find it, its data and its queries' syntax in order."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"
GRAFANA = DEPLOY / "grafana"
DASHBOARD: dict[str, Any] = json.loads((GRAFANA / "dashboards/tercet.json").read_text())
PANELS: list[dict[str, Any]] = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES: list[str] = [target["expr"] for panel in PANELS for target in panel["targets"]]


def test_the_dashboard_is_what_its_source_prints() -> None:
    printed = subprocess.run([sys.executable, GRAFANA / "dashboard.py"], capture_output=True, text=True, timeout=60)
    assert printed.stderr == ""
    assert printed.stdout == (GRAFANA / "dashboards/tercet.json").read_text()


@pytest.mark.parametrize("query", QUERIES)
def test_every_query_parses(query: str) -> None:
    assert promql_parser.parse(query.replace("$__rate_interval", "1m"))


def test_every_panel_asks_the_provisioned_source() -> None:
    provisioned = yaml.safe_load((GRAFANA / "provisioning/datasources/prometheus.yaml").read_text())["datasources"]
    asked = {target["datasource"]["uid"] for panel in PANELS for target in panel["targets"]}
    assert asked == {source["uid"] for source in provisioned}


def test_panels_have_their_own_ids_titles_units_and_descriptions() -> None:
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    assert len({panel["title"] for panel in PANELS}) == len(PANELS)
    assert all(panel["description"] and panel["fieldConfig"]["defaults"]["unit"] for panel in PANELS)


def test_no_panel_lies_over_another_or_off_the_grid() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24, panel["title"]
        taken |= cells


def test_the_dashboard_lies_where_the_provider_looks() -> None:
    provider = yaml.safe_load((GRAFANA / "provisioning/dashboards/tercet.yaml").read_text())["providers"][0]
    mounts = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["grafana"]["volumes"]
    assert f"./grafana/dashboards:{provider['options']['path']}:ro" in mounts


def test_the_rate_interval_is_derived_from_the_real_scrape_interval() -> None:
    scraped = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())["global"]["scrape_interval"]
    source = yaml.safe_load((GRAFANA / "provisioning/datasources/prometheus.yaml").read_text())["datasources"][0]
    assert source["jsonData"]["timeInterval"] == scraped
