"""The option --filter, which `tercet search` and `tercet answer` share."""

from typing import TYPE_CHECKING, Annotated

import typer

from service.cli_options import in_utf8

if TYPE_CHECKING:
    from indexer.filters import Filter

Where = Annotated[
    str | None,
    typer.Option(
        "--filter",
        metavar="FILTER",
        callback=in_utf8,
        help='Only documents for which this holds, such as: year >= 2020 and (lang = "en" or tag in ("a", "b")) '
        "and not draft = true and exists author. docs/filters.md has the grammar, `tercet inspect` the fields.",
    ),
]


def read_filter(text: str | None) -> "Filter | None":
    """Return the filter that a user typed, None for none; a text that is no filter is wrong use."""
    from indexer.errors import FilterError
    from indexer.filter_text import parse_filter

    try:
        return None if text is None else parse_filter(text)
    except FilterError as error:
        raise typer.BadParameter(str(error), param_hint="--filter") from error
