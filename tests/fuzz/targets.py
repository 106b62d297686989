"""Every target."""

from typing import Any

from tests.fuzz import filters, readers, spans, texts
from tests.fuzz.target import Target

TARGETS: dict[str, Target[Any]] = {
    target.name: target for target in (*texts.TARGETS, *spans.TARGETS, *filters.TARGETS, *readers.TARGETS)
}
