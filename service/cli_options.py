"""Options that several commands of `tercet` share."""

import math
from pathlib import Path
from typing import Annotated, Literal

import typer

Data = Annotated[Path | None, typer.Option("--data", help="Folder of the indexes; TERCET_DATA_PATH, or else data.")]
Index = Annotated[str | None, typer.Option("--index", help="Name of the index; TERCET_INDEX, or else default.")]
Progress = Annotated[
    Literal["auto", "json"] | None, typer.Option(help="Progress for people or as JSON lines; TERCET_PROGRESS, or auto.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]


def in_utf8(typed: str | list[str] | None) -> str | list[str] | None:
    """Return what was typed; bytes that are no UTF-8, which no index holds and no JSON can carry, are wrong use."""
    for text in [typed] if isinstance(typed, str) else typed or []:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise typer.BadParameter("it is not UTF-8") from None
    return typed


def a_query(typed: str) -> str:
    """Return what was typed; white space alone, which HTTP refuses too, is wrong use."""
    in_utf8(typed)
    if not typed.strip():
        raise typer.BadParameter("it must hold something other than white space")
    return typed


def a_number(value: float) -> float:
    """Return the value of an option; nan, which is within no bounds and beyond none, is wrong use."""
    if math.isnan(value):
        raise typer.BadParameter("nan is no number")
    return value
