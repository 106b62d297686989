"""Check at start-up that exactly one of the extras `cpu` and `gpu` is installed, and for some commands `train`.

Two wheels of one library in one environment overwrite each other's files and break without a word, so the
check comes before either is imported. This module therefore imports neither.
"""

from collections.abc import Sequence
from importlib import metadata

from indexer.errors import installing

_EXTRAS = {"cpu": ("onnxruntime", "faiss-cpu"), "gpu": ("onnxruntime-gpu", "faiss-gpu")}

_TRAIN = ("torch", "transformers", "onnx", "onnxscript", "bm25s")


class StartupError(Exception):
    """The service cannot start; the message is one sentence for the operator."""


def check_extras() -> None:
    """Return when every library comes from one extra.

    Raises:
        StartupError: no extra is complete, or libraries of both are installed.
    """
    names = (name for names in _EXTRAS.values() for name in names)
    check_installed({name for name in names if _is_installed(name)})


def check_installed(installed: set[str]) -> None:
    """Return when `installed`, a set of distribution names, holds exactly one whole extra and nothing of the other.

    Raises:
        StartupError: it does not; the message names what is there and the command that helps.
    """
    present = {extra: [name for name in names if name in installed] for extra, names in _EXTRAS.items()}
    if present["cpu"] and present["gpu"]:
        found = ", ".join(present["cpu"] + present["gpu"])
        raise StartupError(
            f"The extras `cpu` and `gpu` exclude each other, but {found} are installed together: "
            "make a fresh environment and install only one of them."
        )
    for extra, names in _EXTRAS.items():
        missing = [name for name in names if name not in installed]
        if present[extra] and missing:
            raise StartupError(f"The extra `{extra}` is incomplete, {missing[0]} is missing: {installing(extra)}.")
    if not any(present.values()):
        raise StartupError(
            f"Neither of the extras `cpu` and `gpu` is installed: {installing('cpu')}, or the same with gpu."
        )


def check_train_extra(names: Sequence[str] = _TRAIN) -> None:
    """Return when the extra `train`, the distributions of these names, is installed.

    Raises:
        StartupError: it is not; the message names what is missing and what helps.
    """
    missing = next((name for name in names if not _is_installed(name)), None)
    if missing is not None:
        raise StartupError(f"This command needs the extra `train`, {missing} is missing: {installing('train')}.")


def _is_installed(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True
