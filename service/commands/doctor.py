"""`tercet doctor`: whether everything that a service needs is in order here."""

from collections.abc import Callable
from dataclasses import asdict

from rich.table import Table
from rich.text import Text

from service.commands.faults import CommandError
from service.commands.output import console, counted, print_json, printable
from service.diagnosis import Finding, State, examine
from service.settings import Settings

_STYLES: dict[State, str] = {"ok": "green", "note": "yellow", "problem": "bold red"}
_SUBJECT_WIDTH = 15


def print_findings(read_settings: Callable[[], Settings], *, as_json: bool) -> None:
    """Print each finding as soon as it is found.

    Raises:
        CommandError: something is not in order.
    """
    findings: list[Finding] = []
    for finding in examine(read_settings):
        findings.append(finding)
        if not as_json:
            _print_line(finding)
    n_problems = sum(finding.state == "problem" for finding in findings)
    if as_json:
        print_json({"is_in_order": n_problems == 0, "findings": [asdict(finding) for finding in findings]})
    if n_problems:
        raise CommandError(f"{counted(n_problems, 'problem')} found")
    if not as_json:
        console().print("Everything is in order.")


def _print_line(finding: Finding) -> None:
    _print_row(
        Text(finding.state, style=_STYLES[finding.state]),
        Text(printable(finding.subject), style="bold"),
        Text(printable(finding.text)),
    )
    if finding.remedy is not None:
        _print_row(Text(), Text(), Text(printable(f"→ {finding.remedy}"), style="dim"))


def _print_row(*cells: Text) -> None:
    row = Table.grid(padding=(0, 1))
    row.add_column(width=len("problem"))
    row.add_column(min_width=_SUBJECT_WIDTH, no_wrap=True)
    row.add_column(overflow="fold")
    row.add_row(*cells)
    console().print(row)
