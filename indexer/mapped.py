"""Arrays and sorted texts of a snapshot, memory-mapped: opening one reads its header only."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from indexer.errors import SnapshotError

_Scalar = TypeVar("_Scalar", bound=np.generic)

_EMPTY_NPY_BYTES = 128  # an empty array, which cannot be mapped, is a header only


class SortedTexts:
    """Distinct texts in the order of their UTF-8 bytes, which is that of code points; numbered from 0; thread-safe."""

    def __init__(self, content: NDArray[np.uint8], ends: NDArray[np.int64], *, numbers: range | None = None) -> None:
        """View texts that lie one behind the other: the i-th ends at ends[i]. numbers leaves the others out."""
        self._content, self._ends = content.data, ends.data  # far quicker to slice than a memmap
        self._numbers = numbers if numbers is not None else range(ends.size)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._numbers)

    def __getitem__(self, number: int) -> bytes:
        """Return a text in UTF-8; raises IndexError beyond the last."""
        place = self._numbers[number]
        start = self._ends[place - 1] if place else 0
        return bytes(self._content[start : self._ends[place]])

    def addresses(self) -> tuple[int, int]:
        """Return where the texts and their ends lie in memory, for what was compiled, as long as this object lives."""
        return np.asarray(self._content).ctypes.data, np.asarray(self._ends).ctypes.data

    def first_from(self, text: bytes) -> int:
        """Return how many texts are less than the given one."""
        return bisect_left(range(len(self)), text, key=self.__getitem__)

    def first_beyond(self, text: bytes) -> int:
        """Return how many texts are less than the given one or equal it."""
        return bisect_right(range(len(self)), text, key=self.__getitem__)

    def find(self, text: bytes) -> int | None:
        """Return the number of a text, None if it is not among them."""
        number = self.first_from(text)
        return number if number < len(self) and self[number] == text else None


def mapped_array(path: Path, scalar: type[_Scalar]) -> NDArray[_Scalar]:
    """Return the array (n,) of an .npy file.

    Raises:
        SnapshotError: it holds anything but the given scalars, one behind the other.
    """
    try:
        loaded: NDArray[_Scalar] = np.load(path, mmap_mode="r" if path.stat().st_size > _EMPTY_NPY_BYTES else None)
    except (ValueError, EOFError) as error:
        raise SnapshotError(f"{path} is no array that NumPy reads") from error
    if not isinstance(loaded, np.ndarray) or loaded.dtype != scalar or loaded.ndim != 1:
        raise SnapshotError(f"{path} is no array of {np.dtype(scalar).name}")
    return loaded.view(np.ndarray)  # a slice of a memmap costs six times as much


def mapped_bytes(path: Path) -> NDArray[np.uint8]:
    """Return the bytes (n,) of a file."""
    return np.memmap(path, np.uint8, mode="r").view(np.ndarray) if path.stat().st_size else np.zeros(0, np.uint8)


def save_joined(path: Path, parts: Iterable[NDArray[np.generic]], scalar: type[np.generic]) -> None:
    """Write arrays (n,) one behind the other as one .npy file of the given scalars."""
    np.save(path, np.concatenate([np.zeros(0, scalar), *parts]).astype(scalar, copy=False))
