"""Do to real services what goes wrong one day, and look whether anything acknowledged is lost.

`python loadtests/chaos.py` runs all scenarios one after the other, each with services of its own on loopback and an
index built for it; `--only` names some. It takes minutes, is run by hand, and ends with 1 if a verdict is bad.
"""

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import httpx
import typer
from scenarios import clock, crowds, damage, disk, kills
from scenarios.report import CannotRunError, Report, Scenario, is_bad, table
from target import TargetError

SCENARIOS = (*kills.SCENARIOS, *damage.SCENARIOS, *disk.SCENARIOS, *clock.SCENARIOS, *crowds.SCENARIOS)


def try_out(scenario: Scenario) -> tuple[Report, float]:
    """Return what a scenario found, in a folder that is gone afterwards, and its seconds."""
    report, started = Report(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tercet-chaos-") as folder:
        try:
            scenario.run(Path(folder), report)
        except CannotRunError as reason:
            report.not_run = str(reason)
        except (TargetError, httpx.HTTPError, OSError, subprocess.SubprocessError, ValueError, KeyError) as error:
            report.faults[f"it could not go on: {type(error).__name__}: {error}"] += 1
    return report, time.monotonic() - started


def chosen(names: Sequence[str]) -> list[Scenario]:
    """Return the scenarios whose names hold one of the given words, all for none.

    Raises:
        TargetError: a word is in no name.
    """
    for name in names:
        if not any(name in scenario.name for scenario in SCENARIOS):
            raise TargetError(
                f"There is no scenario {name!r}; there are: {', '.join(each.name for each in SCENARIOS)}."
            )
    return [each for each in SCENARIOS if not names or any(name in each.name for name in names)]


def main(
    only: Annotated[list[str] | None, typer.Option(help="A scenario, by words of its name; may be repeated.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print a table of the scenarios and what each found; exit with 1 if a verdict is bad."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that what was started is ended
    try:
        wanted = chosen(only or [])
    except TargetError as error:
        sys.exit(str(error))
    found = []
    for scenario in wanted:
        report, seconds = try_out(scenario)
        typer.echo(f"{scenario.name}: {report.verdict}, {seconds:.0f} s", err=True)
        for fault in report.faults:
            typer.echo(f"  {fault}", err=True)
        found.append((scenario, report, seconds))
    if as_json:
        rows = [
            {"name": scenario.name, "expected": scenario.expected, "verdict": report.verdict, "seconds": seconds}
            | asdict(report)
            for scenario, report, seconds in found
        ]
        typer.echo(json.dumps(rows, indent=2))
    else:
        typer.echo(table(found))
    if is_bad(report for _, report, _ in found):
        sys.exit(1)


if __name__ == "__main__":
    typer.run(main)
