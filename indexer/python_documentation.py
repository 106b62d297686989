"""The documentation that every Python has: its language reference topics and its standard library's docstrings."""

import json
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from indexer.documents import Document
from indexer.errors import SourceError

_SCRIPT = Path(__file__).with_name("python_objects.py")


def python_documentation() -> Iterator[Document]:
    """Yield the topics, and the documented public modules, classes, functions, methods and properties.

    They are read in a second process, see `indexer.python_objects`, so nothing is imported into this one. Titles are
    names such as `csv.reader`; the text starts with the kind, the name and the signature.

    Raises:
        SourceError: that process failed.
    """
    version = platform.python_version()
    with tempfile.TemporaryDirectory() as folder:
        listing = Path(folder, "documentation.jsonl")
        with listing.open("wb") as file:
            finished = subprocess.run(  # noqa: S603 - our own script, by this interpreter, with fixed arguments
                [sys.executable, "-P", "-s", "-W", "ignore", str(_SCRIPT)],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.DEVNULL,
                cwd=folder,
                env=_environment(folder),
                check=False,
            )
        if finished.returncode != 0:
            raise SourceError(f"reading the documentation of Python {version} ended with code {finished.returncode}")
        with listing.open(encoding="utf-8", newline="\n") as lines:
            for line in lines:
                yield _document(json.loads(line), version)


def _document(described: dict[str, str], version: str) -> Document:
    metadata = {"kind": described["kind"], "python": version}
    return Document(described["document_id"], described["text"], described["title"], metadata=metadata)


def _environment(folder: str) -> dict[str, str]:
    """Return an environment in which imports find no display, browser or settings, and sets print in one order."""
    return {"HOME": folder, "PYTHONHASHSEED": "0", "PYTHONUTF8": "1", "PYTHONDONTWRITEBYTECODE": "1"}
