"""An environment of its own for each group of peers, made once and kept, as they want versions that differ."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from peers.failures import PeerError

_STAMP = "installed"
_INSTALL_SECONDS = 3_600


def python_of(folder: Path) -> Path:
    """Return the interpreter of an environment."""
    return folder / "bin" / "python"


def make_environment(folder: Path, packages: Sequence[str]) -> Path:
    """Return the interpreter of an environment with the packages; one that has them already is left as it is.

    Raises:
        PeerError: they cannot be installed together.
    """
    wanted = "\n".join(packages)
    stamp = folder / _STAMP
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        return python_of(folder)
    stamp.unlink(missing_ok=True)
    _run([sys.executable, "-m", "venv", str(folder)])
    _run([str(python_of(folder)), "-m", "pip", "install", "--quiet", *packages])
    stamp.write_text(wanted, encoding="utf-8")
    return python_of(folder)


def _run(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_SECONDS)
    except subprocess.TimeoutExpired:
        raise PeerError(f"installing took more than {_INSTALL_SECONDS} s") from None
    if done.returncode != 0:
        lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
        raise PeerError(f"cannot be installed: {(errors or lines or ['no word why'])[-1].strip()}")
