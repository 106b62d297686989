"""`tercet demo`: the shortest way to a service over documents of one's own."""

import hashlib
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from indexer.errors import SnapshotError
from indexer.manifest import Manifest, read_manifest
from indexer.publish import current_snapshot
from indexer.snapshot import Snapshot
from indexer.sources import PYTHON_DOCUMENTATION
from models.folder import open_model_folder
from service.access import open_access
from service.commands.index import IndexRun, index_sources
from service.commands.output import counted, say
from service.logs import configure_logging
from service.metrics import Metrics
from service.server import bind, serve
from service.settings import Settings

_QUESTIONS = (
    "which exception is raised when a dictionary key is not found",
    "what is the default protocol of pickle",
    "which PEP describes type hints",
)


def run_demo(sources: Sequence[str], settings: Settings) -> None:
    """Serve an index of the sources, which is built if there is none that fits; settings.index is left aside.

    Raises:
        StartupError: the address is taken, or needs keys that are not there, both found out first; or a model cannot
            be used.
        SourceError, BuildError: the index cannot be built.
    """
    open_access(settings, metrics=Metrics())
    bind(settings.host, settings.port).close()
    settings = settings.model_copy(update={"index": index_name(sources)})
    manifest = _usable(settings)
    if manifest is None:
        index_sources(sources, settings, IndexRun())
    else:
        made = f"{manifest.created_at:%Y-%m-%d %H:%M} UTC, {counted(manifest.n_documents, 'document')}"
        say(f"Serving the index {settings.index!r} that is there ({made}). To build it anew:")
        say(f"    tercet index {shlex.join([*sources, '--index', settings.index, '--data', str(settings.data_path)])}")
    configure_logging("warning")
    questions = _QUESTIONS if list(sources) == [PYTHON_DOCUMENTATION] else ("your question",)
    serve(settings, lambda address: _announce(address, questions))


def index_name(sources: Sequence[str]) -> str:
    """Return the name of the demo's index of these sources: other sources, or another Python, give another name."""
    if list(sources) == [PYTHON_DOCUMENTATION]:
        return f"{PYTHON_DOCUMENTATION}-{sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro}"
    places = [source if source == PYTHON_DOCUMENTATION else str(Path(source).resolve()) for source in sources]
    words = re.sub(r"[^A-Za-z0-9]+", "-", Path(places[0]).name).strip("-").lower()[:40]
    return f"{words or 'documents'}-{hashlib.sha256('/'.join(places).encode(errors='replace')).hexdigest()[:8]}"


def _usable(settings: Settings) -> Manifest | None:
    """Return the manifest of the configured index, None when there is none or it does not fit the models."""
    index_path = settings.data_path / settings.index
    folder = current_snapshot(index_path)
    if folder is None:
        return None
    fingerprint = open_model_folder(settings.dual_encoder, "dual-encoder").fingerprint
    try:
        manifest = read_manifest(folder)
        dimension = manifest.encoder.dimension
        Snapshot.open(index_path, encoder_fingerprint=fingerprint, dimension=dimension).close()
    except SnapshotError as error:
        say(f"The index that is there cannot be used, so it is built anew: {error}.")
        return None
    return manifest


def _announce(address: str, questions: Sequence[str]) -> None:
    lines = [
        "",
        f"Tercet answers at {address}",
        "",
        *(f"    {question}" for question in questions),
        "",
        "From a program:",
        "",
        f'    curl {address}/v1/answer --json \'{{"query": "{questions[0]}"}}\'',
        "",
        "Ctrl-C ends it.",
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()
