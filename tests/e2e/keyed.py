"""A data folder of its own with the shared index in it, where keys can be made by the command that makes them."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from .processes import DEADLINE_SECONDS, tool


def keyed_data(settings: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return settings that serve the same index from a folder without keys."""
    data = folder / "data"
    data.mkdir()
    (data / "default").symlink_to(Path(settings["DATA_PATH"]) / "default")
    return {**settings, "DATA_PATH": str(data)}


def tercet(settings: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TERCET_")}
    environment |= {f"TERCET_{name}": value for name, value in settings.items()}
    command = [tool("tercet"), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=DEADLINE_SECONDS)


def make_key(settings: Mapping[str, str], name: str, *options: str) -> str:
    """Return the text of a new key."""
    made = tercet(settings, "keys", "create", "--name", name, *options)
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


def revoke_key(settings: Mapping[str, str], name: str) -> None:
    revoked = tercet(settings, "keys", "revoke", name)
    assert revoked.returncode == 0, revoked.stderr
