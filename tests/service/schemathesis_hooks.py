"""What schemathesis has to know beyond the OpenAPI (schemathesis.toml)."""

from typing import Any

import schemathesis

from indexer.filters import MAX_CONDITIONS


@schemathesis.hook
def filter_case(context: Any, case: Any) -> bool:
    """A schema cannot say how many conditions a filter has in all, so bodies with more are left out."""
    return _n_conditions(case.body) <= MAX_CONDITIONS


def _n_conditions(value: object) -> int:
    if isinstance(value, dict):
        return ("field" in value) + sum(_n_conditions(each) for each in value.values())
    return sum(_n_conditions(each) for each in value) if isinstance(value, list) else 0
