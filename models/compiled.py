"""Find what was compiled when Tercet was installed (setup.py)."""

import ctypes
import importlib.util
from functools import cache


@cache
def compiled(name: str) -> ctypes.CDLL | None:
    """Return the library that stands as a module of that name, None where it was not built."""
    found = importlib.util.find_spec(name)
    return None if found is None or found.origin is None else ctypes.CDLL(found.origin)
