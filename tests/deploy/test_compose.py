"""The compose file is valid, its containers are bounded and hardened, and nothing listens beyond this machine."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from starlette.datastructures import Headers

from service.settings import Settings
from service.sites import Sites

COMPOSE = Path(__file__).parents[2] / "deploy/compose.yaml"


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    """What Docker Compose makes of the file, all defaults and anchors resolved; needs no container engine."""
    compose = Path(sys.executable).with_name("docker-compose")
    command = [str(compose), "--file", str(COMPOSE), "config", "--format", "json"]
    resolved = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert resolved.returncode == 0, resolved.stderr
    loaded: dict[str, Any] = json.loads(resolved.stdout)
    return loaded


def test_it_brings_the_service_its_index_prometheus_and_grafana(project: dict[str, Any]) -> None:
    assert set(project["services"]) == {"index", "tercet", "prometheus", "grafana"}
    assert project["services"]["tercet"]["depends_on"]["index"]["condition"] == "service_completed_successfully"


def test_every_container_has_limits_and_cannot_write_to_its_own_files(project: dict[str, Any]) -> None:
    for name, service in project["services"].items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert set(service["deploy"]["resources"]["limits"]) == {"cpus", "memory", "pids"}, name
        assert service["logging"]["options"]["max-size"], name
        assert not service.get("privileged"), name


def test_ports_are_published_on_loopback_only(project: dict[str, Any]) -> None:
    ports = [port for service in project["services"].values() for port in service.get("ports", [])]
    assert {port["host_ip"] for port in ports} == {"127.0.0.1"}


def test_only_the_index_job_may_write_to_the_index(project: dict[str, Any]) -> None:
    writers = [
        name
        for name, service in project["services"].items()
        for volume in service["volumes"]
        if volume["source"] == "index-data" and not volume.get("read_only", False)
    ]
    assert writers == ["index"]


def test_every_mounted_file_exists_and_is_mounted_read_only(project: dict[str, Any]) -> None:
    binds = [v for s in project["services"].values() for v in s["volumes"] if v["type"] == "bind"]
    assert binds
    assert [bind["source"] for bind in binds if not Path(bind["source"]).exists()] == []
    assert [bind["source"] for bind in binds if not bind.get("read_only", False)] == []


def test_every_image_has_a_version(project: dict[str, Any]) -> None:
    for name, service in project["services"].items():
        _, _, version = service["image"].rpartition("/")[2].partition(":")
        assert version not in ("", "latest"), name


def test_no_key_is_asked_for_only_where_nobody_else_can_come(project: dict[str, Any]) -> None:
    """Another test holds that ports are published on loopback only."""
    assert project["services"]["tercet"]["environment"] == {"TERCET_AUTH": "off", "TERCET_ALLOWED_HOSTS": "tercet"}


def test_prometheus_asks_under_a_name_that_is_answered(project: dict[str, Any]) -> None:
    scraped = yaml.safe_load((COMPOSE.parent / "prometheus.yml").read_text())["scrape_configs"][0]
    [target] = scraped["static_configs"][0]["targets"]
    environment = project["services"]["tercet"]["environment"]
    settings = Settings(host="0.0.0.0", **{name.removeprefix("TERCET_").lower(): v for name, v in environment.items()})
    Sites(settings).check_host(Headers({"host": target}))
    Sites(settings).check_host(Headers({"host": "127.0.0.1:8000"}))
