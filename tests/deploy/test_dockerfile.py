"""The image is built as an ordinary user's, from the CPU extra alone, and its settings exist."""

import re
import subprocess
import sys
from pathlib import Path

from service.settings import Settings

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "deploy/Dockerfile"
STAGES = re.split(r"^FROM .*$", DOCKERFILE.read_text(), flags=re.MULTILINE)[1:]


def test_the_linter_finds_nothing() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    linted = subprocess.run([hadolint, DOCKERFILE], capture_output=True, text=True, timeout=60)
    assert (linted.returncode, linted.stdout) == (0, "")


def test_the_last_stage_runs_as_a_numbered_user_and_has_a_health_check() -> None:
    users = re.findall(r"^USER (\S+)$", STAGES[-1], flags=re.MULTILINE)
    assert users
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", users[-1])
    assert "HEALTHCHECK" in STAGES[-1]
    assert "/readyz" in STAGES[-1]


def test_only_the_cpu_extra_is_installed_and_no_installer_reaches_the_last_stage() -> None:
    assert re.findall(r"\.\[([a-z,]+)\]", DOCKERFILE.read_text()) == ["cpu"]
    assert "pip uninstall --yes pip" in STAGES[0]
    assert "pip install" not in STAGES[-1]


def test_every_setting_that_the_image_makes_is_a_setting() -> None:
    named = re.findall(r"\b(TERCET_[A-Z_]+)=", DOCKERFILE.read_text())
    assert named
    assert {name.removeprefix("TERCET_").lower() for name in named} <= set(Settings.model_fields)


def test_everything_that_is_copied_is_sent_to_the_builder() -> None:
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {
        source
        for words in re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE.read_text(), flags=re.MULTILINE)
        for source in words.split()
    }
    assert copied == sent
    assert [name for name in sorted(sent) if not (ROOT / name).exists()] == []
