"""`tercet search` and `tercet answer`: one query through the same pipeline that serves, in this process."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from rich.text import Text

from indexer.documents import MetadataValue
from service.commands.faults import CommandError
from service.commands.output import (
    console,
    counted,
    print_json,
    printable,
    printable_lines,
    say,
    shortened,
)
from service.engine import open_engine
from service.filter_bodies import FacetBody, FilteredBody
from service.pipeline import AnswerOutcome, SearchOutcome, answer, search
from service.problems import Problem
from service.queries import AnswerQuery, SearchQuery
from service.schemas import AnswerBody, answer_response
from service.search_schemas import ResultBody, search_response
from service.settings import Settings

_REQUEST_ID = "command-line"
_SHOWN_CHARACTERS = 400
_NAME_CHARACTERS = 200  # of an id, an address, a title, a value of a field


def search_once(query: SearchQuery, settings: Settings, *, as_json: bool) -> None:
    """Print the results of a query; as JSON they are the body of `POST /v1/search`."""
    response = search_response(asyncio.run(_search(query, settings)), _REQUEST_ID)
    if as_json:
        print_json(response.model_dump(mode="json"))
        return
    out = console()
    if not response.results:
        out.print("Nothing was found.")
    for result in response.results:
        out.print(_heading(result), _snippet(result), "", sep="\n")
    for facet in response.facets:
        out.print(_facet(facet))
    _tell_of_filter(response.filter)
    out.print(f"{_milliseconds(response.timings_ms)}, {counted(response.n_candidates, 'candidate')}", style="dim")


def answer_once(query: AnswerQuery, settings: Settings, *, as_json: bool) -> None:
    """Print the answers to a query; as JSON they are the body of `POST /v1/answer`."""
    response = answer_response(asyncio.run(_answer(query, settings)), _REQUEST_ID)
    if as_json:
        print_json(response.model_dump(mode="json"))
        return
    out = console()
    if response.answer is None:
        found = response.no_answer
        out.print(f"No answer was found ({(found.reason or '').replace('_', ' ')}).", style="bold")
        if response.answers:
            out.print("What came closest:")
    for each in response.answers:
        out.print(_answer_text(each), "", sep="\n")
    _tell_of_filter(response.filter)
    out.print(f"{_milliseconds(response.timings_ms)}, {counted(response.n_passages_read, 'passage')} read", style="dim")


async def _search(query: SearchQuery, settings: Settings) -> SearchOutcome:
    async with open_engine(settings) as engine:
        with problems_as_faults():
            return await search(engine, query)


async def _answer(query: AnswerQuery, settings: Settings) -> AnswerOutcome:
    async with open_engine(settings) as engine:
        with problems_as_faults():
            return await answer(engine, query)


@contextmanager
def problems_as_faults() -> Iterator[None]:
    """Turn a problem, which a client of the service would be told, into what a user of the command line is told."""
    try:
        yield
    except Problem as problem:
        raise CommandError(str(problem)) from problem


def _heading(result: ResultBody) -> Text:
    text = Text(f"{result.rank}. ")
    text.append(_name(result.title if result.title.strip() else result.document_id), style="bold")
    text.append(f"  {result.score_kind} {result.score:.3f}  ", style="cyan")
    text.append(_name(result.url if result.url is not None else result.passage_id), style="dim")
    return text


def _snippet(result: ResultBody) -> Text:
    """Return the passage from a little before its first highlight, highlights in bold."""
    first = result.highlights[0].start if result.highlights else 0
    start = max(0, min(first - 80, len(result.text) - _SHOWN_CHARACTERS))
    if start > 0:
        start = max(start, result.text.find(" ", start, first) + 1)
    shown = result.text[start : start + _SHOWN_CHARACTERS]
    text = Text(printable_lines(shown))
    for mark in result.highlights:
        text.stylize("bold yellow", max(0, mark.start - start), max(0, mark.end - start))
    return text


def _facet(facet: FacetBody) -> Text:
    """Return `year: 2020 (31), 2021 (12), others (6), none (4)`, values as a filter has them."""
    text = Text(_name(facet.field), style="bold")
    counts = [(_as_typed(each.value), each.n_documents) for each in facet.values]
    counts += [(name, n) for name, n in (("others", facet.n_other), ("none", facet.n_missing)) if n]
    return text.append(": " + ", ".join(f"{_name(name)} ({n:,})" for name, n in counts), style="not bold")


def _as_typed(value: MetadataValue) -> str:
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return str(value).lower()


def _tell_of_filter(filtered: FilteredBody | None) -> None:
    """Print what a filter left, and on stderr which of its fields cannot match."""
    if filtered is None:
        return
    left = f"{counted(filtered.n_passages, 'passage')} of {counted(filtered.n_documents, 'document')}"
    console().print(f"The filter left {left}.", style="dim")
    for name in filtered.unknown_fields:
        say(f"No document has the field {name!r}; `tercet inspect` lists the fields.")
    for name in filtered.mistyped_fields:
        say(f"The field {name!r} has no value of the kind that the filter compares it with.")


def _answer_text(found: AnswerBody) -> Text:
    text = Text(printable_lines(found.text), style="bold")
    text.append(f"  {found.score:.3f}  ", style="not bold cyan")
    text.append(f"{_name(found.document_id)} [{found.start}, {found.end})\n", style="not bold dim")
    context = Text(printable_lines(found.context), style="not bold")
    start = found.start - found.context_start
    context.stylize("bold yellow", start, start + found.end - found.start)
    return text.append_text(context)


def _name(text: str) -> str:
    return printable(shortened(text, _NAME_CHARACTERS))


def _milliseconds(timings: dict[str, float]) -> str:
    return f"{timings['total']:,.0f} ms"
