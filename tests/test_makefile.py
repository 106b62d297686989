"""What `make demo` and `make test` do before and after the installation, with stand-ins for Python."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

OLD = "#!/bin/sh\nexit 1\n"
WITHOUT_VENV = '#!/bin/sh\ncase "$2" in *ensurepip*) exit 1;; esac\n'
# As an environment's Python: notes what it is asked to install, and fails if told to.
FRESH = """#!/bin/sh
if [ "$2" = venv ]; then
    mkdir -p .venv/bin
    cp "$0" .venv/bin/python
    touch .venv/bin/pip
    printf '#!/bin/sh\\nfor each in "$@"; do echo "[$each]"; done\\n' > .venv/bin/tercet
    chmod +x .venv/bin/tercet
fi
if [ "$2" = pip ]; then
    if [ -e broken ]; then exit 1; fi
    echo "$*" >> installed
fi
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    if shutil.which("make") is None:
        pytest.skip("there is no make on this machine")
    for name in ("Makefile", "pyproject.toml", "setup.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def make(checkout: Path, python: str | None, *arguments: str) -> subprocess.CompletedProcess[str]:
    stand_in = checkout / "stand-in-python"
    if python is not None:
        stand_in.write_text(python)
        stand_in.chmod(0o755)
    own = ("SOURCE", "PORT", "MAKEFLAGS", "MAKELEVEL")
    environment = {name: value for name, value in os.environ.items() if name not in own}
    return subprocess.run(
        ["make", f"PYTHON={stand_in}", *arguments], cwd=checkout, env=environment, capture_output=True, text=True
    )


@pytest.mark.parametrize(
    ("python", "sentence"),
    [
        (None, "There is no "),
        (OLD, "Tercet needs Python 3.11 or newer"),
        (WITHOUT_VENV, "cannot make environments"),
    ],
)
@pytest.mark.parametrize("target", ["demo", "test"])
def test_an_unfit_python_is_one_sentence_before_anything_is_made(
    checkout: Path, python: str | None, sentence: str, target: str
) -> None:
    done = make(checkout, python, target)
    said = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    assert done.returncode != 0
    assert len(said) == 1
    assert sentence in said[0]
    assert not (checkout / ".venv").exists()


@pytest.mark.parametrize("changed", ["pyproject.toml", "setup.py"])
def test_demo_installs_once_and_again_when_what_it_is_built_from_changes(checkout: Path, changed: str) -> None:
    for _ in range(2):
        assert make(checkout, FRESH, "demo").returncode == 0
    installed = checkout / "installed"
    assert installed.read_text() == "-m pip install --quiet --editable .[cpu]\n"
    later = (checkout / ".venv/installed-to-serve").stat().st_mtime + 10
    os.utime(checkout / changed, (later, later))
    assert make(checkout, FRESH, "demo").returncode == 0
    assert len(installed.read_text().splitlines()) == 2


def test_an_installation_that_failed_is_done_again(checkout: Path) -> None:
    (checkout / "broken").touch()
    assert make(checkout, FRESH, "demo").returncode != 0
    (checkout / "broken").unlink()
    assert make(checkout, FRESH, "demo").returncode == 0
    assert len((checkout / "installed").read_text().splitlines()) == 1


def test_demo_passes_on_a_source_with_spaces_and_quotes(checkout: Path) -> None:
    shown = make(checkout, FRESH, "demo", "SOURCE=my notes/it's $$HOME", "PORT=8001").stdout
    assert shown.splitlines()[-5:] == ["[demo]", "[--port]", "[8001]", "[--]", "[my notes/it's $HOME]"]
    assert make(checkout, FRESH, "demo").stdout.splitlines() == ["[demo]", "[--]"]


def test_an_audit_fails_where_it_could_not_ask(checkout: Path) -> None:
    """Without --strict what the list of vulnerabilities does not know counts as safe."""
    assert "pip-audit --strict " in make(checkout, FRESH, "--dry-run", "audit").stdout
