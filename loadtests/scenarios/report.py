"""What a scenario found, its verdict, and the table of all of them."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

Verdict: TypeAlias = Literal["good", "bad", "not run"]

_MOST_FAULTS = 20  # of one scenario that are listed; the rest is counted


class CannotRunError(Exception):
    """The scenario needs what this machine does not have; the message says what."""


@dataclass(slots=True)
class Report:
    """What one scenario has found so far.

    acknowledged counts what the service or a command said was done or taken, lost what of it was not there afterwards;
    seen counts what clients saw, by status or kind of failure; ready_seconds is the longest time until it served again.
    """

    acknowledged: int = 0
    lost: int = 0
    ready_seconds: float | None = None
    healthz_max_ms: float | None = None
    seen: Counter[str] = field(default_factory=Counter)
    remarks: list[str] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    not_run: str | None = None

    @property
    def verdict(self) -> Verdict:
        """Bad when anything acknowledged was lost or any check failed."""
        if self.faults or self.lost:
            return "bad"
        return "not run" if self.not_run is not None else "good"

    def check(self, holds: bool, sentence: str) -> bool:
        """Note a fault unless something holds; the sentence says what is wrong. Returns what holds."""
        if not holds:
            self.faults[sentence] += 1
        return holds

    def keep(self, names: Iterable[str], is_there: Callable[[str], bool], what: str) -> None:
        """Count what was acknowledged, and what of it is lost."""
        for name in names:
            self.acknowledged += 1
            if not is_there(name):
                self.lost += 1
                self.faults[f"{what} {name} was acknowledged and is lost"] += 1

    def saw_only(self, seen: Mapping[str, int], allowed: Iterable[str]) -> None:
        """Add what clients saw; what is not allowed is a fault."""
        self.seen.update(seen)
        for name in sorted(set(seen) - set(allowed)):
            self.faults[f"clients saw {name}"] += seen[name]

    def was_ready_after(self, seconds: float) -> None:
        """Note how long it took until it served again; the longest time counts."""
        self.ready_seconds = max(seconds, self.ready_seconds or 0.0)

    def probed(self, max_ms: float) -> None:
        """Note the worst latency of /healthz; the longest counts."""
        self.healthz_max_ms = max(max_ms, self.healthz_max_ms or 0.0)


@dataclass(frozen=True, slots=True)
class Scenario:
    """Something that happens to a service, what is expected of it, and how to try it in a new folder."""

    name: str
    happens: str
    expected: str
    run: Callable[[Path, Report], None]


def is_bad(reports: Iterable[Report]) -> bool:
    """Return whether any verdict is bad."""
    return any(report.verdict == "bad" for report in reports)


def table(found: Sequence[tuple[Scenario, Report, float]]) -> str:
    """Return a Markdown table, a row for each scenario with its seconds, and below it what each expects and found."""
    lines = [
        "| scenario | verdict | acknowledged | lost | ready after s | `/healthz` max ms | seen by clients | took s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [_row(scenario, report, seconds) for scenario, report, seconds in found]
    for scenario, report, _ in found:
        lines += ["", f"**{scenario.name}**: {scenario.happens} Expected: {scenario.expected}"]
        if report.not_run is not None:
            lines.append(f"- not run: {report.not_run}")
        lines += [f"- {remark}" for remark in report.remarks]
        lines += [f"- WRONG, {n:,} times: {fault}" for fault, n in report.faults.most_common(_MOST_FAULTS)]
        if len(report.faults) > _MOST_FAULTS:
            lines.append(f"- WRONG: {len(report.faults) - _MOST_FAULTS:,} other faults")
    return "\n".join(lines)


def _row(scenario: Scenario, report: Report, seconds: float) -> str:
    seen = ", ".join(f"{name} {n:,}" for name, n in sorted(report.seen.items()))
    cells = [scenario.name, report.verdict, f"{report.acknowledged:,}", f"{report.lost:,}"]
    cells += [_number(report.ready_seconds), _number(report.healthz_max_ms), seen or "–", f"{seconds:.0f}"]
    return f"| {' | '.join(cells)} |"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.1f}"
