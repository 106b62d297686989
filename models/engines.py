"""Choose what runs a model: our own kernels where the CPU has AMX (ADR 21), else OpenVINO (ADR 18) or ONNX Runtime."""

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from models import native_session
from models.errors import DeviceError, ModelFolderError
from models.folder import WEIGHTS_FILE, ModelFolder
from models.session import EngineName, GraphSession, Runtime, Session
from models.tokenization import ModelInput

_NO_BERT = "this is no BERT that the native engine takes"


@dataclass(frozen=True, slots=True)
class Choice:
    """What will run models, named as `Session.engine` names it, and why, in words that follow a colon."""

    engine: str
    why: str
    name: EngineName = "onnxruntime"


def open_session(folder: ModelFolder, runtime: Runtime) -> Session:
    """Return the folder's graph, ready to run.

    The engine "auto" is the first of these that can: native, where its kernels were built, the CPU runs them, and the
    graph is BERT; OpenVINO, where it is installed, the CPU multiplies bfloat16, and it reads the graph; ONNX Runtime.

    Raises:
        DeviceError: the device or the engine is not there.
        ModelFolderError: the engine does not read the graph, it is not of the folder's kind, or takes no input so long.
    """
    session = _open(folder, runtime)
    fault = session.misfit(folder.settings.kind)
    if fault is not None:
        raise ModelFolderError(f"{folder.path / WEIGHTS_FILE} is no {folder.settings.kind}: {fault}")
    if folder.settings.parity is None:  # nobody tried it yet
        _try_longest(session, folder)
    return session


def choose_engine(runtime: Runtime, folder: ModelFolder) -> Choice:
    """Return the engine that a folder's graph will run in, without loading it into one.

    Raises:
        DeviceError: the engine that was asked for is not there.
        ModelFolderError: it is the native one, which does not take the graph.
    """
    choices = _choices(runtime)
    choice = next(choices)
    try:
        if choice.name == "native":
            native_session.check_graph(folder)
    except ModelFolderError:
        following = next(choices, None)
        if following is None:
            raise
        return following
    return choice


def _choices(runtime: Runtime) -> Iterator[Choice]:
    """Give the engines of a runtime, the best first; each is for graphs that those before it do not take."""
    asked = runtime.engine
    if asked in ("native", "openvino"):
        if runtime.device != "cpu":
            raise DeviceError(f"engine {asked!r} runs on the CPU only, not on device {runtime.device!r}")
        missing = _native_is_missing() if asked == "native" else _openvino_is_missing()
        if missing is not None:
            raise DeviceError(f"engine {asked!r} was asked for, but {missing}")
        yield _choice(asked, "it was asked for")
        return
    on_device = f"onnxruntime on {runtime.device}"
    if asked == "onnxruntime":
        yield Choice(on_device, "it was asked for")
        return
    if runtime.device != "cpu":
        yield Choice(on_device, "the other engines run on the CPU only")
        return
    native = _native_is_missing()
    if native is None:
        yield _choice("native", "the CPU multiplies tiles of bfloat16")
    openvino = _openvino_is_missing() or _bfloat16_is_missing()  # asked only now, as it takes OpenVINO into memory
    if openvino is None:
        yield _choice("openvino", f"the CPU multiplies bfloat16, and {native or _NO_BERT}")
    yield Choice(on_device, f"{native or _NO_BERT}, and {openvino or 'OpenVINO does not read the graph'}")


def _choice(name: EngineName, why: str) -> Choice:
    if name == "native":
        return Choice(native_session.ENGINE, why, name)
    from models.openvino_session import name_in, usual_precision

    return Choice(name_in(usual_precision()), why, name)


def _open(folder: ModelFolder, runtime: Runtime) -> GraphSession:
    choices = _choices(runtime)
    choice = next(choices)
    while True:
        try:
            return _open_with(choice, folder, runtime)
        except ModelFolderError:
            following = next(choices, None)
            if following is None:
                raise
            choice = following


def _open_with(choice: Choice, folder: ModelFolder, runtime: Runtime) -> GraphSession:
    path, n_threads = folder.path / WEIGHTS_FILE, runtime.n_threads
    if choice.name == "native":
        return native_session.NativeSession(folder, n_threads=n_threads)
    if choice.name == "openvino":
        from models.openvino_session import OpenVinoSession

        return OpenVinoSession(path, n_threads=n_threads, max_tokens=folder.settings.max_tokens)
    from models.onnx_session import OnnxSession

    return OnnxSession(path, n_threads=n_threads, device=runtime.device)


def _native_is_missing() -> str | None:
    """Return what keeps the native engine from running here, None for nothing."""
    if not native_session.is_built():
        return "the native kernels were not built when Tercet was installed, which takes a C++ compiler"
    return None if native_session.is_supported() else "the CPU, or its system, lends no AMX with bfloat16"


def _openvino_is_missing() -> str | None:
    return None if _has_openvino() else "OpenVINO is not installed: the extra `cpu` brings it"


def _bfloat16_is_missing() -> str | None:
    from models.openvino_session import has_bfloat16

    return None if has_bfloat16() else "the CPU does not multiply bfloat16"


def _has_openvino() -> bool:
    return importlib.util.find_spec("openvino") is not None


def _try_longest(session: Session, folder: ModelFolder) -> None:
    """Run the longest input in ONNX Runtime, which looks after the ends of a table, as OpenVINO does not."""
    from models.onnx_session import OnnxSession

    longest = np.zeros(folder.settings.max_tokens, np.int64)
    try:
        if not isinstance(session, OnnxSession):
            session = OnnxSession(folder.path / WEIGHTS_FILE, n_threads=1)
        session.run([ModelInput(longest, longest)])
    except Exception as error:  # ONNX Runtime derives its errors from nothing narrower
        raise ModelFolderError(
            f"{folder.path / WEIGHTS_FILE} does not take {longest.size} tokens, the max_tokens of its settings"
        ) from error
