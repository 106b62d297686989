"""Choose what runs a model: OpenVINO where it is the faster and the more exact, else ONNX Runtime (ADR 18)."""

import importlib.util
from contextlib import suppress

import numpy as np

from models.errors import DeviceError, ModelFolderError
from models.folder import WEIGHTS_FILE, ModelFolder
from models.session import GraphSession, Runtime, Session
from models.tokenization import ModelInput


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


def _open(folder: ModelFolder, runtime: Runtime) -> GraphSession:
    if runtime.engine == "openvino":
        if runtime.device != "cpu":
            raise DeviceError(f"engine 'openvino' runs on the CPU only, not on device {runtime.device!r}")
        if not _has_openvino():
            raise DeviceError("engine 'openvino' was asked for and is not installed: install the extra `cpu`")
        return _open_in_openvino(folder, runtime.n_threads)
    if runtime.engine == "auto" and runtime.device == "cpu" and _has_openvino():
        from models.openvino_session import has_bfloat16

        if has_bfloat16():
            with suppress(ModelFolderError):  # a graph that OpenVINO does not read
                return _open_in_openvino(folder, runtime.n_threads)
    from models.onnx_session import OnnxSession

    return OnnxSession(folder.path / WEIGHTS_FILE, n_threads=runtime.n_threads, device=runtime.device)


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
