"""The `tercet` command: what a user can type. What each command does is in `service/commands/`.

Results go to stdout, with `--json` as one JSON document; progress and complaints go to stderr. Exit codes: 0 done,
1 failed, 2 wrong use, 130 interrupted. The commands import what they need when they run: `--help` stays quick, and
the check of the extras comes before the libraries that it is about.
"""

import shlex
import sys
from collections.abc import Sequence
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import Annotated, Literal

import typer

from service.cli_filter import Where, read_filter
from service.cli_index import indexing
from service.cli_keys import keys
from service.cli_models import models
from service.cli_options import Data, Index, Json, a_query, in_utf8
from service.cli_snapshots import list_indexes, snapshots
from service.cli_training import training
from service.commands.faults import FAULTS, exit_code, explanation
from service.commands.output import forget_unwritten, let_streams_take_all, say
from service.extras import check_extras
from service.settings import load_settings

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Search and question answering over your own documents: retrieve, rerank, read.",
    epilog="Every setting is also an environment variable TERCET_…, and an option wins over it.",
)

INTERRUPTED = 130


class Mode(StrEnum):
    """What finds candidates."""

    hybrid = "hybrid"
    dense = "dense"
    bm25 = "bm25"


class Ranking(StrEnum):
    """A way to rank that `evaluate` measures."""

    bm25 = "bm25"
    dense = "dense"
    hybrid = "hybrid"
    reranked = "hybrid+rerank"


Host = Annotated[str | None, typer.Option(help="Address to listen on; TERCET_HOST, or else 127.0.0.1.")]
Port = Annotated[int | None, typer.Option(min=0, max=65535, help="Port, 0 a free one; TERCET_PORT, or else 8000.")]
WithMode = Annotated[Mode, typer.Option(help="What finds candidates.")]
Rerank = Annotated[bool, typer.Option("--rerank/--no-rerank", help="Whether the cross-encoder orders candidates.")]


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; a fault of ours leaves as the exception that it is."""
    let_streams_take_all()
    try:
        app(list(arguments), prog_name="tercet")
    except SystemExit as stop:
        if stop.code == INTERRUPTED:
            say("tercet: Interrupted.")
        return stop.code if isinstance(stop.code, int) else 0
    except FAULTS as error:
        say(f"tercet: {explanation(error)}")
        return exit_code(error)
    finally:
        forget_unwritten()
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
    """Check the installation before any command but the one that tells of it."""
    if context.invoked_subcommand != "doctor":
        check_extras()


@app.command()
def serve(host: Host = None, port: Port = None, name: Index = None, data: Data = None) -> None:
    """Serve an index over HTTP until a signal; logs go to stderr as JSON lines."""
    from service.commands.serve import serve_index

    serve_index(load_settings(host=host, port=port, index=name, data_path=data))


@app.command()
def search(
    query: Annotated[str, typer.Argument(help="What to search for.", callback=a_query)],
    name: Index = None,
    data: Data = None,
    top_k: Annotated[int, typer.Option(min=1, max=100, help="How many results to print.")] = 5,
    mode: WithMode = Mode.hybrid,
    rerank: Rerank = True,
    where: Where = None,
    facet: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD", callback=in_utf8, help="Count this field's values; may be given again."),
    ] = None,
    json: Json = False,
) -> None:
    """Print the passages that fit a query best."""
    from service.commands.query import search_once
    from service.queries import SETTLE_K, SearchQuery

    settings = load_settings(index=name, data_path=data)
    asked = SearchQuery(
        query,
        top_k=top_k,
        mode=_mode(mode),
        rerank=rerank,
        settle_k=max(SETTLE_K, top_k),  # all that is printed
        filter=read_filter(where),
        facets=facet or (),
    )
    search_once(asked, settings, as_json=json)


@app.command()
def answer(
    question: Annotated[str, typer.Argument(help="What to answer.", callback=a_query)],
    name: Index = None,
    data: Data = None,
    top_k: Annotated[int, typer.Option(min=1, max=20, help="How many answers to print.")] = 3,
    read_k: Annotated[int, typer.Option(min=1, max=50, help="How many passages to read.")] = 5,
    mode: WithMode = Mode.hybrid,
    rerank: Rerank = True,
    where: Where = None,
    json: Json = False,
) -> None:
    """Print the exact answer to a question, or that there is none."""
    from service.commands.query import answer_once
    from service.queries import AnswerQuery

    settings = load_settings(index=name, data_path=data)
    asked = read_filter(where)
    query = AnswerQuery(question, top_k=top_k, read_k=read_k, mode=_mode(mode), rerank=rerank, filter=asked)
    answer_once(query, settings, as_json=json)


@app.command()
def inspect(
    document: Annotated[str | None, typer.Option(metavar="ID", help="Show this document of the index.")] = None,
    model: Annotated[str | None, typer.Option(metavar="NAME", help="Show a bundled model or a model folder.")] = None,
    name: Index = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Show what an index holds and what made it, a document with its passages, or a model."""
    from service.commands.inspect import inspect_document, inspect_index, inspect_model

    if document is not None and model is not None:
        raise typer.BadParameter("--document and --model exclude each other")
    if model is not None:
        inspect_model(model, as_json=json)
        return
    settings = load_settings(index=name, data_path=data)
    if document is not None:
        inspect_document(document, settings, as_json=json)
    else:
        inspect_index(settings, as_json=json)


@app.command()
def doctor(name: Index = None, data: Data = None, json: Json = False) -> None:
    """Say what this machine has, what would run the models, and whether indexes, keys and the rest are in order.

    Ends with 1 if there is a problem.
    """
    from service.commands.doctor import print_findings

    print_findings(lambda: load_settings(index=name, data_path=data), as_json=json)


@app.command()
def evaluate(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="[MODEL_OR_INDEX]",
            help="A bundled model or a model folder, which takes the place of the configured one, or an index, which "
            "is judged as it stands; without any, the configured models.",
        ),
    ] = None,
    dataset: Annotated[
        list[Path] | None, typer.Option(help="A BEIR folder, may be given again; or a file of labelled questions.")
    ] = None,
    questions: Annotated[
        Path | None, typer.Option(help="Labelled questions for the reader, .jsonl, .json or .gz.")
    ] = None,
    split: Annotated[str, typer.Option(help="Which qrels/SPLIT.tsv judges the rankings.")] = "test",
    queries: Annotated[int | None, typer.Option(min=1, help="Only the first so many queries or questions.")] = None,
    mode: Annotated[list[Ranking] | None, typer.Option(help="Only this ranking; may be given again.")] = None,
    rerank_tokens: Annotated[
        int,
        typer.Option(min=0, help="Measure reranking by excerpts of so many tokens (rerank_tokens) too; 0 for not."),
    ] = 0,
    reindex: Annotated[bool, typer.Option("--reindex", help="Index the data sets even where that is done.")] = False,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a report to this HTML file; needs the extra `train`.")
    ] = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Measure rankings (nDCG@10, recall@100, MRR@10, times) or the reader (EM, F1), with 95% intervals."""
    from service.commands.evaluate import Evaluation, run_evaluation

    if (dataset is None) == (questions is None):
        raise typer.BadParameter("give either --dataset, once or more often, or --questions")
    task = Evaluation(
        target=target,
        datasets=dataset if dataset is not None else [path for path in [questions] if path is not None],
        split=split,
        limit=queries,
        strategies=[each.value for each in mode] if mode is not None else [],
        rerank_tokens=rerank_tokens,
        reindexes=reindex,
        as_json=json,
        report=report,
        command=shlex.join(["tercet", *sys.argv[1:]]),
    )
    run_evaluation(task, load_settings(data_path=data))


app.add_typer(indexing)
app.command("indexes")(list_indexes)
app.add_typer(models)
app.add_typer(training, name="train")
app.add_typer(snapshots, name="snapshots")
app.add_typer(keys, name="keys")


@app.command()
def demo(
    sources: Annotated[
        list[str] | None, typer.Argument(metavar="[SOURCE...]", help="As for `index`; without any, `pydoc`.")
    ] = None,
    host: Host = None,
    port: Port = None,
    data: Data = None,
) -> None:
    """Index documents unless that is done, then serve them, and say how to ask."""
    from service.commands.demo import run_demo

    run_demo(sources or ["pydoc"], load_settings(host=host, port=port, data_path=data))


def _mode(mode: Mode) -> Literal["hybrid", "dense", "bm25"]:
    return mode.value
