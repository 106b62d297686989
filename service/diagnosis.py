"""What `tercet doctor` finds: what this machine has, what Tercet makes of it, and what is not in order.

Nothing is changed, and on a CPU no model is loaded, so that it does no harm beside a service.
"""

import http.client
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Literal, TypeAlias

from models.compiled import compiled
from models.folder import Kind, ModelFolder, open_model_folder, says_its_fingerprint
from models.native_session import is_built
from models.session import Runtime, available_cpus
from service.commands.faults import FAULTS, explanation
from service.commands.output import counted, size
from service.extras import StartupError, check_extras
from service.machine import this_cpu, this_memory
from service.settings import PREFIX, Settings

State: TypeAlias = Literal["ok", "note", "problem"]

_LIBRARIES = ("onnxruntime", "onnxruntime-gpu", "openvino", "faiss-cpu", "faiss-gpu", "numpy")
_SERVICE_BYTES = 1_000_000_000  # what a service with the bundled models takes at most, and something for the index
_COMPILED = {"BM25's search": "indexer._postings", "tokenization": "models._wordpiece"}
_AMX = "AMX-BF16"
_DISK_BYTES = 1_000_000_000  # 100,000 passages take 400 MB, and a new snapshot stands beside the one before
_PROBE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: what it is about, how that is, and what to do where something is to be done."""

    subject: str
    state: State
    text: str
    remedy: str | None = None


Folders: TypeAlias = Mapping[Kind, ModelFolder | None]  # None for one that does not open


def examine(read_settings: Callable[[], Settings]) -> Iterator[Finding]:
    """Yield one finding after the other; what depends on something that is not in order is left out."""
    yield from (_cpu(), _memory(), _versions())
    try:
        check_extras()
        settings = read_settings()
    except StartupError as error:  # of settings too
        remedy = "Put that right first: all else that there is to look at depends on it."
        yield Finding("start", "problem", explanation(error), remedy)
        return
    yield _changed(settings)
    yield from _threads(settings)
    yield from _kernels(settings)
    yield from _gpu(settings)
    folders: dict[Kind, ModelFolder | None] = {}
    for kind, name in _configured_models(settings).items():
        remedy = f"Put the folder back as it was, or name another one in {PREFIX}{kind.replace('-', '_').upper()}."
        yield _guarded(kind, partial(_model, kind, name, settings, folders), remedy)
    yield from _data(settings, folders)
    yield _guarded("jobs", partial(_jobs, settings))
    yield _guarded("keys", partial(_keys, settings))
    yield _guarded("address", partial(_address, settings))


def _guarded(subject: str, look: Callable[[], Finding], remedy: str | None = None) -> Finding:
    """Return what a look gives, a problem where it ends in a fault that commands explain."""
    try:
        return look()
    except FAULTS as error:
        return Finding(subject, "problem", explanation(error), remedy)


def _cpu() -> Finding:
    cpu = this_cpu()
    units = f"; {', '.join(cpu.multipliers)}" if cpu.multipliers else ""
    return Finding("CPU", "ok", f"{cpu.name}, {available_cpus()} of {counted(cpu.n_cores, 'core')} to use{units}")


def _memory() -> Finding:
    memory = this_memory()
    if memory.total is None or memory.usable is None:
        return Finding("memory", "note", "how much there is cannot be found out here")
    limit = "no limit" if memory.limit is None else f"a limit of {size(memory.limit)}"
    text = f"{size(memory.total)}, {limit}, {size(memory.usable)} to use"
    if memory.usable >= _SERVICE_BYTES:
        return Finding("memory", "ok", text)
    remedy = f"A service with the bundled models wants {size(_SERVICE_BYTES)}; one that runs has its part already."
    return Finding("memory", "note", text, remedy)


def _versions() -> Finding:
    found = {"tercet": _version("tercet"), "Python": platform.python_version()}
    found |= {name: version for name in _LIBRARIES if (version := _version(name)) is not None}
    return Finding("versions", "ok", ", ".join(f"{name} {version}" for name, version in found.items()))


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _changed(settings: Settings) -> Finding:
    """Name the settings that are not at their default; their values stay the operator's own affair."""
    fields = Settings.model_fields.items()
    names = [f"{PREFIX}{name}".upper() for name, field in fields if getattr(settings, name) != field.default]
    text = f"{', '.join(names)}: not as by default" if names else "all as by default"
    return Finding("settings", "ok", text)


def _threads(settings: Settings) -> Iterator[Finding]:
    if settings.n_threads > available_cpus():
        text = f"models run on {settings.n_threads} threads, and there are {counted(available_cpus(), 'core')} to use"
        yield Finding("threads", "note", text, "TERCET_N_THREADS=0 takes as many as there are cores.")


def _kernels(settings: Settings) -> Iterator[Finding]:
    lacking = [what for what, name in _COMPILED.items() if compiled(name) is None]
    if settings.device == "cpu" and _AMX in this_cpu().multipliers and not is_built():
        lacking.append(f"the native engine, which would use the CPU's {_AMX} best")
    if lacking:
        text = f"not built when Tercet was installed, so slower ways take its place: {', '.join(lacking)}"
        install = f"{sys.executable} -m pip install --no-deps --editable ."
        yield Finding("kernels", "note", text, f"Install a C++ compiler, then run `{install}` in Tercet's folder.")


def _gpu(settings: Settings) -> Iterator[Finding]:
    if settings.device == "cuda":
        yield _guarded("GPU", _faiss_on_gpu, "TERCET_DEVICE=cpu runs everything on the CPU.")
    elif _version("onnxruntime-gpu") is not None:
        yield Finding("GPU", "note", "the extra `gpu` is installed and not used", "TERCET_DEVICE=cuda uses it.")


def _faiss_on_gpu() -> Finding:
    from indexer.gpu import gpu_resources

    gpu_resources()
    return Finding("GPU", "ok", "FAISS finds one")


def _configured_models(settings: Settings) -> Mapping[Kind, str]:
    return {
        "dual-encoder": settings.dual_encoder,
        "cross-encoder": settings.cross_encoder,
        "reader": settings.reader,
    }


def _model(kind: Kind, name: str, settings: Settings, folders: dict[Kind, ModelFolder | None]) -> Finding:
    """Return how a model is and what will run it; on a GPU by loading it, as only that shows whether it can.

    The folder is added to folders.
    """
    from models.engines import choose_engine, open_session
    from service.engine import model_runtime

    folders[kind] = None
    folders[kind] = folder = open_model_folder(name, kind)
    choice = choose_engine(model_runtime(settings), folder)
    if settings.device != "cpu":
        open_session(folder, Runtime(1, settings.device, settings.engine))
    if not says_its_fingerprint(folder):
        text = f"{folder.settings.name}; {choice.engine}: {choice.why}"
        return Finding(kind, "note", text, "Its model.json has no fingerprint, so nobody can tell if it was altered.")
    text = f"{folder.settings.name}, as it was made; {choice.engine}: {choice.why}"
    if folder.settings.parity is None:
        return Finding(
            kind, "note", text, "Nobody tried its graph, so each start does: `tercet export` is the way to one."
        )
    return Finding(kind, "ok", text)


def _data(settings: Settings, folders: Folders) -> Iterator[Finding]:
    path = settings.data_path
    yield _guarded("data", partial(_data_folder, path))
    found = {each.parent.name for each in path.glob("*/snapshots")} if path.is_dir() else set()
    for name in sorted(found | {settings.index}):
        yield _guarded(f"index {name}", partial(_index, name, settings, folders))


def _data_folder(path: Path) -> Finding:
    place = next(each for each in (path.resolve(), *path.resolve().parents) if each.exists())
    free = shutil.disk_usage(place).free
    text = f"{path.resolve()}, {size(free)} free"
    if not path.exists():
        return Finding("data", "note", f"{text}, is not there yet", "The first `tercet index` makes it.")
    if not path.is_dir():
        return Finding("data", "problem", f"{text}, is no folder", "Choose another with TERCET_DATA_PATH.")
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        remedy = "Here nothing can be indexed, and no key made; give this user the right, or run as another."
        return Finding("data", "note", f"{text}, but this user may not write there", remedy)
    if free < _DISK_BYTES:
        return Finding("data", "note", text, "A new snapshot stands beside the one before until it is published.")
    return Finding("data", "ok", text)


def _index(name: str, settings: Settings, folders: Folders) -> Finding:
    from indexer.errors import SnapshotError
    from indexer.publish import current_snapshot, is_locked
    from indexer.snapshots import verify_snapshot

    subject, path = f"index {name}", settings.data_path / name
    if current_snapshot(path) is None:
        is_missed = name == settings.index and "index" in settings.model_fields_set  # as the operator named it
        return _no_index(name, is_being_built=is_locked(path), is_missed=is_missed)
    try:
        manifest = verify_snapshot(path)
    except SnapshotError as error:
        remedy = f"Go back to the one before, `tercet snapshots rollback --index {name}`, or index again."
        return Finding(subject, "problem", explanation(error), remedy)
    text = f"{manifest.snapshot_id}, {counted(manifest.n_passages, 'passage')}, {size(manifest.n_bytes)}, intact"
    encoder, cross_encoder = folders["dual-encoder"], folders["cross-encoder"]
    if encoder is not None and encoder.fingerprint != manifest.encoder.fingerprint:
        made_for = f"made for the encoder {manifest.encoder.name!r}, not for {encoder.settings.name!r} as it is here"
        remedy = "Name that encoder in TERCET_DUAL_ENCODER, or index again."
        return Finding(subject, "problem" if name == settings.index else "note", f"{text}, but {made_for}", remedy)
    if cross_encoder is not None and cross_encoder.tokenizer_fingerprint != manifest.passage_tokenizer_fingerprint:
        remedy = "Searches are slower, as they tokenize each passage; index again."
        return Finding(subject, "note", f"{text}, but its tokens are not those of the cross-encoder", remedy)
    return Finding(subject, "ok", text)


def _no_index(name: str, *, is_being_built: bool, is_missed: bool) -> Finding:
    if is_being_built:
        return Finding(f"index {name}", "note", "is being built, for the first time", "It is served once that is done.")
    remedy = f"Make it, `tercet index SOURCE --index {name}`, or name another one."
    return Finding(f"index {name}", "problem" if is_missed else "note", "there is none", remedy)


def _jobs(settings: Settings) -> Finding:
    path = settings.jobs_path
    if path is None:
        return Finding("jobs", "ok", "off, as TERCET_JOBS_PATH is not set")
    if not path.is_dir() or not os.access(path, os.R_OK | os.X_OK):
        why = "this user may not read there" if path.is_dir() else "is no folder"
        return Finding("jobs", "problem", f"{path}: {why}", "Name a folder in TERCET_JOBS_PATH that can be read.")
    return Finding("jobs", "ok", f"may read below {path.resolve()}")


def _keys(settings: Settings) -> Finding:
    """Return how the keys are; raises StartupError where a service would not start for them."""
    from service.access import open_access
    from service.key_file import KeyFile
    from service.metrics import Metrics
    from service.sites import is_loopback

    file = KeyFile(settings.data_path)
    access = open_access(settings, metrics=Metrics())
    now = datetime.now(UTC).timestamp()
    n_expired = sum(key.is_expired(now) for key in file.read())
    text = f"{counted(access.n_keys, 'key')}{f', {n_expired} of them expired' if n_expired else ''}, "
    text += "and requests need one" if access.is_required else "and requests need none"
    mode = file.path.stat().st_mode & 0o777 if file.path.exists() else 0o600
    if mode & 0o077:
        text += f"; other users have rights on {file.path}, mode {mode:o}"
        return Finding("keys", "note", text, f"Take them away: chmod 600 {file.path}")
    if not access.is_required and not is_loopback(settings.host):
        return Finding(
            "keys", "note", f"{text}: whoever reaches {settings.host} may ask", "TERCET_AUTH=auto asks for keys."
        )
    return Finding("keys", "ok", text)


def _address(settings: Settings) -> Finding:
    """Return whether a service could listen; raises StartupError where something else does."""
    from service.server import bind

    shown = f"{settings.host} port {settings.port}"
    try:
        bind(settings.host, settings.port).close()
    except StartupError:
        if not _is_tercet(settings.host, settings.port):
            raise
        return Finding(
            "address", "note", f"{shown}: a service of Tercet listens there", "A second one needs another port."
        )
    return Finding("address", "ok", f"{shown} is free")


def _is_tercet(host: str, port: int) -> bool:
    connection = http.client.HTTPConnection(host, port, timeout=_PROBE_SECONDS)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().read(100) == b'{"status":"alive"}'
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
