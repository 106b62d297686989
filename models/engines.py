"""Choose what runs a model: OpenVINO where it is the faster and the more exact, else ONNX Runtime (ADR 18)."""

import importlib.util
from contextlib import nullcontext, suppress
from dataclasses import dataclass

import numpy as np

from models.errors import DeviceError, ModelFolderError
from models.folder import WEIGHTS_FILE, ModelFolder
from models.session import GraphSession, Runtime, Session
from models.tokenization import ModelInput


@dataclass(frozen=True, slots=True)
class Choice:
    """What will run models, named as `Session.engine` names it, and why, in words that follow a colon."""

    engine: str
    why: str
    is_openvino: bool = False


def open_session(folder: ModelFolder, runtime: Runtime) -> Session:
    """Return the folder's graph, ready to run.

    The engine "auto" is OpenVINO if that is installed, the CPU multiplies bfloat16, and OpenVINO reads the graph.

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


def choose_engine(runtime: Runtime) -> Choice:
    """Return the engine of a runtime, before it has seen a graph.

    Raises:
        DeviceError: the engine that was asked for is not there.
    """
    on_device = f"onnxruntime on {runtime.device}"
    if runtime.engine == "openvino":
        if runtime.device != "cpu":
            raise DeviceError(f"engine 'openvino' runs on the CPU only, not on device {runtime.device!r}")
        if not _has_openvino():
            raise DeviceError("engine 'openvino' was asked for and is not installed: install the extra `cpu`")
        return Choice(_openvino_name(), "it was asked for", is_openvino=True)
    if runtime.engine == "onnxruntime":
        return Choice(on_device, "it was asked for")
    if runtime.device != "cpu":
        return Choice(on_device, "OpenVINO runs on the CPU only")
    if not _has_openvino():
        return Choice(on_device, "OpenVINO is not installed")
    from models.openvino_session import has_bfloat16

    if not has_bfloat16():
        return Choice(on_device, "the CPU does not multiply bfloat16")
    return Choice(_openvino_name(), "the CPU multiplies bfloat16", is_openvino=True)


def _open(folder: ModelFolder, runtime: Runtime) -> GraphSession:
    if choose_engine(runtime).is_openvino:
        # by itself, OpenVINO is left for a graph that it does not read
        with suppress(ModelFolderError) if runtime.engine == "auto" else nullcontext():
            return _open_in_openvino(folder, runtime.n_threads)
    from models.onnx_session import OnnxSession

    return OnnxSession(folder.path / WEIGHTS_FILE, n_threads=runtime.n_threads, device=runtime.device)


def _openvino_name() -> str:
    from models.openvino_session import name_in, usual_precision

    return name_in(usual_precision())


def _open_in_openvino(folder: ModelFolder, n_threads: int) -> GraphSession:
    from models.openvino_session import OpenVinoSession

    return OpenVinoSession(folder.path / WEIGHTS_FILE, n_threads=n_threads, max_tokens=folder.settings.max_tokens)


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
