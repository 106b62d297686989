"""The `tercet` command: what a user can type. What each command does is in `service/commands/`.

Results go to stdout, with `--json` as one JSON document; progress and complaints go to stderr. Exit codes: 0 done,
1 failed, 2 wrong use, 130 interrupted. The commands import what they need when they run: `--help` stays quick, and
the check of the extras comes before the libraries that it is about.
"""

from collections.abc import Sequence
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer

from service.commands.faults import CommandError, explanation
from service.commands.output import say
from service.extras import check_extras

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Search and question answering over your own documents: retrieve, rerank, read.",
    epilog="Every setting is also an environment variable TERCET_…; options win over it.",
)


class OnError(StrEnum):
    """What to do with a record that is no document."""

    skip = "skip"
    fail = "fail"


class Mode(StrEnum):
    """What finds candidates."""

    hybrid = "hybrid"
    dense = "dense"
    bm25 = "bm25"


class Strategy(StrEnum):
    """A way to rank that `evaluate` measures."""

    bm25 = "bm25"
    dense = "dense"
    hybrid = "hybrid"
    reranked = "hybrid+rerank"


Sources = Annotated[
    list[str],
    typer.Argument(
        metavar="SOURCE…",
        help="A JSON Lines file, a folder of text, Markdown and HTML, one such file, a BEIR folder, or `pydoc`: "
        "the documentation of this Python.",
    ),
]
Data = Annotated[Path | None, typer.Option("--data", help="Folder of the indexes [TERCET_DATA_PATH, else: data].")]
Index = Annotated[str | None, typer.Option("--index", help="Name of the index [TERCET_INDEX, else: default].")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]
OnBad = Annotated[OnError, typer.Option("--on-error", help="What to do with a bad record: report and skip it, or fail.")]
Host = Annotated[str | None, typer.Option(help="Address to listen on [TERCET_HOST, else: 127.0.0.1].")]
Port = Annotated[int | None, typer.Option(min=0, max=65535, help="Port, 0 for a free one [TERCET_PORT, else: 8000].")]
TopK = Annotated[int, typer.Option("--top-k", min=1, max=100, help="How many to show.")]
WithMode = Annotated[Mode, typer.Option(help="What finds candidates.")]
Rerank = Annotated[bool, typer.Option("--rerank/--no-rerank", help="Whether the cross-encoder orders them.")]


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; a fault of ours leaves as the exception that it is."""
    try:
        app(list(arguments), prog_name="tercet")
    except SystemExit as stop:
        if stop.code == 130:
            say("tercet: Interrupted.")
        return stop.code if isinstance(stop.code, int) else 0
    except KeyboardInterrupt:
        say("tercet: Interrupted.")
        return 130
    except Exception as error:
        sentence = explanation(error)
        if sentence is None:
            raise
        say(f"tercet: {sentence}")
        return 1
    return 0


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tercet {metadata.version('tercet')}")
        raise typer.Exit


@app.callback()
def prepare(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Print the version.")
    ] = False,
) -> None:
    """Check the installation before any command."""
    if not context.resilient_parsing:
        check_extras()


@app.command()
def index(
    sources: Sources, name: Index = None, data: Data = None, on_error: OnBad = OnError.skip, json: Json = False
) -> None:
    """Build an index of documents and publish it."""
    from service.commands.index import index_sources, index_settings

    index_sources(sources, index_settings(name, data), fail_on_bad_record=on_error is OnError.fail, as_json=json)
