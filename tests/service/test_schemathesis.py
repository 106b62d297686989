"""Thousands of requests made from the OpenAPI, right and wrong ones, find nothing that it does not say."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.scopes import KeyScope
from service.settings import Settings

from ..e2e.processes import ROOT, tool
from .conftest import Served, serving
from .keyed import add_key

N_CASES = 2_000


@pytest.fixture
def key(tmp_path: Path) -> str:
    (tmp_path / "data").mkdir()
    return add_key(tmp_path / "data", "tester", KeyScope.ADMIN)


@pytest.fixture
def served(settings: Settings, tmp_path: Path, key: str) -> Iterator[Served]:
    """A service with a key and an index of its own, which its jobs may build again."""
    root, data = tmp_path / "root", tmp_path / "data"
    (root / "manuals").mkdir(parents=True)
    (root / "manuals" / "fog.txt").write_text("Fog over the harbour.")
    shutil.copytree(settings.data_path / "default", data / "default", symlinks=True)
    with serving(settings.model_copy(update={"jobs_path": root, "data_path": data, "jobs_waiting": 2})) as running:
        yield running


def test_requests_made_from_the_openapi_find_no_fault(served: Served, tmp_path: Path, key: str) -> None:
    command = [
        tool("schemathesis"), "--config-file", str(ROOT / "schemathesis.toml"), "run", f"{served.url}/openapi.json",
        "--seed", "1", "--max-examples", "25", "--workers", "2", "--continue-on-failure", "--max-failures", "20",
        "--suppress-health-check", "filter_too_much",
        "--header", f"Authorization: Bearer {key}",
    ]  # fmt: skip
    environment = {"PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout
    [n_cases] = re.findall(r"^  (\d+) generated", done.stdout, flags=re.MULTILINE)
    assert int(n_cases) >= N_CASES
