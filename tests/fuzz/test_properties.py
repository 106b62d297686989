"""Each property, on what hypothesis thinks of; `loadtests/fuzz.py` goes on from there for as long as you like."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tests.fuzz.target import Target
from tests.fuzz.targets import TARGETS


@pytest.mark.parametrize("target", TARGETS.values(), ids=list(TARGETS))
def test_holds_for_any_value(target: Target[Any]) -> None:
    for seed in target.seeds:
        target.run(seed)

    @settings(max_examples=target.n_examples, suppress_health_check=[HealthCheck.too_slow])
    @given(target.values)
    def holds(value: object) -> None:
        target.check(value)

    holds()
