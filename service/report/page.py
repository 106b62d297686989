"""The HTML of a report: templates that escape every text, and the facts at its head."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from models.bootstrap import N_RESAMPLES, SEED
from models.folder import ModelFolder

_TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True, slots=True)
class Fact:
    """What the report states of its own origin."""

    name: str
    value: str


def origin_facts(command: str, models: Sequence[ModelFolder]) -> list[Fact]:
    """Return what every report states: command, version, time, models with fingerprints, and how intervals came."""
    return [
        Fact("command", command),
        Fact("made by", f"Tercet {metadata.version('tercet')}, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC"),
        *(Fact(each.settings.kind, f"{each.settings.name}, fingerprint {each.fingerprint}") for each in models),
        Fact("intervals", f"95%, percentile bootstrap, {N_RESAMPLES:,} resamples, seed {SEED}"),
    ]


def render(template: str, values: Mapping[str, object]) -> str:
    """Return a page; whatever comes from data or users is escaped, only plots are markup."""
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"three": _three, "percent": _percent, "milliseconds": _milliseconds, "signed": _signed}
    return environment.get_template(template).render(values)


def _three(value: float) -> str:
    return f"{value:.3f}"


def _percent(value: float | None) -> str:
    return "–" if value is None or math.isnan(value) else f"{100 * value:.1f}"


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:,.1f}"


def _signed(value: float) -> str:
    return f"{value:+.3f}".replace("-", "−")
