"""How much work something is, counted so that every run of it counts the same."""

import sys
from collections.abc import Callable
from types import FrameType


def calls_in(run: Callable[[], object]) -> int:
    """Return how often functions are entered and left meanwhile, the steps of generators included."""
    count = 0

    def tell(_frame: FrameType, _event: str, _argument: object) -> None:
        nonlocal count
        count += 1

    sys.setprofile(tell)
    try:
        run()
    finally:
        sys.setprofile(None)
    return count
