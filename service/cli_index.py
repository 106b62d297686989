"""`tercet index` and `tercet delete`: their options. What they do is in `service/commands/index.py`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import typer

from service.cli_options import Data, Index, Json, Progress, a_number
from service.settings import load_settings

indexing = typer.Typer(rich_markup_mode=None)


class OnError(StrEnum):
    """What to do with a file or record that should be a document and is none."""

    skip = "skip"
    fail = "fail"


Sources = Annotated[
    list[str],
    typer.Argument(
        metavar="SOURCE...",
        help="A folder, or a file: text, Markdown, reStructuredText, HTML, JSON Lines, CSV, TSV, Parquet (extra "
        "`parquet`), PDF, Word, PowerPoint, Excel (extra `files`); a BEIR folder; or `pydoc`: the documentation of "
        "this Python.",
    ),
]
Once = Annotated[bool, typer.Option("--once", help="Build once and exit. Every run does; for schedulers that say so.")]
GateQueries = Annotated[
    Path | None,
    typer.Option(
        "--gate",
        metavar="FILE_OR_DIR",
        help="Queries, JSON Lines or a BEIR folder; the new snapshot is published only if it serves them as well.",
    ),
]
MaxNdcgDrop = Annotated[
    float, typer.Option(min=0.0, max=1.0, callback=a_number, help="By how much the gate lets nDCG@10 fall.")
]
MaxAnswerDrop = Annotated[
    float, typer.Option(min=0.0, max=1.0, callback=a_number, help="By how much the gate lets the answer rate fall.")
]
DenseKind = Annotated[
    Literal["auto", "flat", "hnsw", "ivf-sq8", "ivf-pq"] | None,
    typer.Option(
        "--dense-index",
        help="Kind of the dense index, from 5,000 passages on; TERCET_DENSE_INDEX, or auto: by passages and memory.",
    ),
]
Recall = Annotated[
    float | None,
    typer.Option(help="Share of the true best 100 that an approximate index must find; TERCET_RECALL, or .95."),
]
Report = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Write all that is skipped, and why, to this JSON Lines file, which is in no source."
    ),
]
Keep = Annotated[
    int | None, typer.Option(min=1, help="Snapshots that stay, the new one counted; TERCET_KEEP_SNAPSHOTS, or 2.")
]
Language = Annotated[
    str | None, typer.Option(help="Language whose words are stemmed, or none; TERCET_LANGUAGE, or english.")
]
Update = Annotated[
    bool,
    typer.Option(
        "--update",
        help="Keep the documents that are there, and language, dense index and recall unless options or variables name "
        "others; documents of the sources are added, or replaced by their id.",
    ),
]


@indexing.command()
def index(
    sources: Sources,
    name: Index = None,
    data: Data = None,
    on_error: Annotated[
        OnError, typer.Option(help="What to do with a file or record that is bad: tell and skip it, or fail.")
    ] = OnError.skip,
    report: Report = None,
    update: Update = False,
    gate: GateQueries = None,
    max_ndcg_drop: MaxNdcgDrop = 0.01,
    max_answer_drop: MaxAnswerDrop = 0.02,
    dense_index: DenseKind = None,
    recall: Recall = None,
    language: Language = None,
    keep: Keep = None,
    progress: Progress = None,
    once: Once = False,
    json: Json = False,
) -> None:
    """Build an index of documents and publish it, unless it says what the current one says.

    What did not change since the snapshot before is taken over from it, and a run that was killed goes on. Files of
    other kinds and files without text are skipped under either policy. Exit code 0: published or unchanged, whatever
    was skipped; 1: failed, or nothing at all could be read, and the index is as it was; 2: wrong use.
    """
    from service.commands.index import IndexRun, index_sources
    from service.commands.skip_report import check_report
    from service.gate import Gate, read_gate_queries

    settings = load_settings(
        index=name,
        data_path=data,
        progress=progress,
        dense_index=dense_index,
        recall=recall,
        language=language,
        keep_snapshots=keep,
    )
    if report is not None:
        check_report(
            report, [*map(Path, sources), settings.data_path / settings.index, *([] if gate is None else [gate])]
        )
    wanted = Gate(read_gate_queries(gate), max_ndcg_drop, max_answer_drop) if gate is not None else None
    run = IndexRun(
        fails_on_error=on_error is OnError.fail, updates=update, gate=wanted, report_path=report, as_json=json
    )
    index_sources(sources, settings, run)


@indexing.command()
def delete(
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID...]", help="Ids of documents.")] = None,
    ids_from: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="More ids, one a line, in UTF-8.")
    ] = None,
    name: Index = None,
    data: Data = None,
    progress: Progress = None,
    json: Json = False,
) -> None:
    """Publish an index without some of its documents; ids that it does not hold are counted and told.

    Language, dense index and recall stay as they are unless variables name others.
    """
    from service.commands.index import delete_documents

    if not ids and ids_from is None:
        raise typer.BadParameter("give ids, or --from a file of them")
    settings = load_settings(index=name, data_path=data, progress=progress)
    delete_documents(ids or [], ids_from, settings, as_json=json)
