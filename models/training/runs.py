"""A training run's folder, and how it survives kills, full disks and damaged files.

    recipe.json, log.csv
    state.pt    what it takes to go on
    best/       the checkpoint with the best dev measure so far

`state.pt` is written before anything else, so a folder that holds other files but no state is no run's and is left
alone. Whatever is written anew is made aside and renamed. torch is loaded only where a state is read or written: a
folder is checked first, and that must not wait for it.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from models.errors import TrainingError
from models.folder import BEST_FOLDER

RECIPE_FILE = "recipe.json"
STATE_FILE = "state.pt"
_PARTIAL_STATE = f"{STATE_FILE}.partial"


@dataclass(frozen=True, slots=True)
class RunState:
    """Where a run is.

    identity says by name what the run is of; a run goes on only if all of it is the same. best are the measures of the
    best checkpoint, which is that of best_step, None before there is any.
    """

    identity: Mapping[str, str]
    model: Mapping[str, Any]
    optimizer: Mapping[str, Any]
    schedule: Mapping[str, Any]
    step: int
    best: Mapping[str, float]
    best_step: int | None


class RunFolder:
    """The folder of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._state = path / STATE_FILE

    def check(self, recipe: Mapping[str, object]) -> None:
        """Return when a run of this recipe may begin or go on here, as far as can be told before its data are read.

        Raises:
            TrainingError: the path is no folder, cannot be written, or holds another run or files that are no run's.
        """
        if self.path.exists() and not self.path.is_dir():
            raise TrainingError(f"{self.path} is not a folder")
        if self._state.is_file():
            before = _json_object(self.path / RECIPE_FILE)
            differing = [name for name in recipe if name in before and before[name] != recipe[name]]
            _refuse(self.path, [name.replace("_", " ") for name in differing])
        elif self.path.is_dir():
            strange = sorted({each.name for each in self.path.iterdir()} - {_PARTIAL_STATE})
            if strange:
                raise TrainingError(f"folder {self.path} holds {strange[0]} but no training run; name another one")
        there = next(each for each in (self.path, *self.path.absolute().parents) if each.exists())
        with writing(self.path), tempfile.TemporaryFile(dir=there):
            pass

    def read(self, identity: Mapping[str, str], *, reads_tensors: bool = True) -> RunState | None:
        """Return where the run is, None if it has not begun.

        Args:
            identity: of the run that wants to go on.
            reads_tensors: whether their numbers are wanted; without, it takes no time, and they must not be used.

        Raises:
            TrainingError: the state is damaged, of another run, or its best checkpoint is gone.
        """
        if not self._state.is_file():
            return None
        import torch

        from models.checkpoint import has_weights

        with self.intact():
            state = RunState(**torch.load(self._state, weights_only=True, mmap=not reads_tensors))
            differing = [name for name, value in identity.items() if state.identity.get(name) != value]
        _refuse(self.path, differing)
        best = self.path / BEST_FOLDER
        if state.best_step is not None and not has_weights(best):
            raise TrainingError(
                f"{best}, the best checkpoint, of step {state.best_step}, is gone, and the run cannot make it again; "
                f"remove {self.path} or name another folder"
            )
        return state

    @contextmanager
    def intact(self) -> Iterator[None]:
        """Turn what goes wrong with a state that was read into a TrainingError."""
        from models.checkpoint import LOAD_ERRORS

        try:
            yield
        except LOAD_ERRORS as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise TrainingError(
                f"{self._state} is damaged or of another version ({reason}), so the run cannot go on; "
                f"remove {self.path} or name another folder"
            ) from error

    def note(self, recipe: Mapping[str, object]) -> None:
        """Write the recipe.

        Raises:
            TrainingError: it cannot be written.
        """
        with writing(self.path / RECIPE_FILE):
            (self.path / RECIPE_FILE).write_text(json.dumps(recipe, indent=2) + "\n", encoding="utf-8")

    def write(self, state: RunState) -> None:
        """Replace the state in one rename; the first one makes the folder.

        Raises:
            TrainingError: it cannot be written; the one before it stays.
        """
        import torch

        partial = self.path / _PARTIAL_STATE
        try:
            with writing(self._state):
                self.path.mkdir(parents=True, exist_ok=True)
                with partial.open("wb") as file:
                    torch.save({field.name: getattr(state, field.name) for field in fields(state)}, file)
                os.replace(partial, self._state)
        finally:
            partial.unlink(missing_ok=True)

    def keep(self, save: Callable[[Path], None]) -> None:
        """Replace the best checkpoint by what save writes into a folder; the one before stays until the new is whole.

        Raises:
            TrainingError: it cannot be written.
        """
        best, partial = self.path / BEST_FOLDER, self.path / f"{BEST_FOLDER}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        try:
            with writing(best):
                partial.mkdir()
                save(partial)
                if best.is_dir():  # of one run, so only the weights differ: no folder has to be away for a moment
                    for file in partial.iterdir():
                        os.replace(file, best / file.name)
                else:
                    partial.rename(best)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what goes wrong while something is written to path into a TrainingError.

    torch and safetensors tell of a full disk by errors of their own.
    """
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        raise TrainingError(f"{path} cannot be written: {_reason(error)}") from error


def _reason(error: BaseException) -> str:
    """Return what the system said, which may stand behind what a library made of it."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    behind = error.__cause__ or error.__context__
    return (str(error).strip() or type(error).__name__).splitlines()[0] if behind is None else _reason(behind)


def _refuse(path: Path, differing: list[str]) -> None:
    if differing:
        raise TrainingError(
            f"{path} holds a run that differs in its {', its '.join(differing)}; name another folder or remove this one"
        )


def _json_object(path: Path) -> Mapping[str, object]:
    """Return a file's object, an empty one where there is none."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
