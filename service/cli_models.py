"""`tercet export` and `tercet calibrate`: their options. What they do is in `service/commands/`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from service.cli_options import Json
from service.extras import check_train_extra
from service.settings import load_settings

models = typer.Typer(rich_markup_mode=None)
calibration = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Learn from labelled dev data what a model's scores mean, and store it in the model folder.",
)
models.add_typer(calibration, name="calibrate")


class ModelKind(StrEnum):
    """What a model folder can hold."""

    dual_encoder = "dual-encoder"
    cross_encoder = "cross-encoder"
    reader = "reader"


class Quantize(StrEnum):
    """What `export` makes of the weights."""

    int8 = "int8"
    none = "none"


Model = Annotated[
    str | None,
    typer.Option(metavar="DIR", help="A model folder or a bundled name; else the one that the settings name."),
]
Store = Annotated[Path | None, typer.Option(metavar="DIR", help="Where data sets are indexed; TERCET_DATA_PATH.")]


@models.command()
def export(
    checkpoint: Annotated[Path, typer.Argument(help="A transformers folder, or the folder of a training run.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="The model folder to make.")],
    kind: Annotated[ModelKind | None, typer.Option(help="What the model is; else as its config.json says.")] = None,
    quantize: Annotated[Quantize, typer.Option(help="int8 weights, or none: fp32.")] = Quantize.int8,
    name: Annotated[str | None, typer.Option(help="Its name in model.json; else the checkpoint's.")] = None,
    licence: Annotated[str, typer.Option(help="Its licence in model.json.")] = "unknown",
    origin: Annotated[str | None, typer.Option(help="Where it comes from, in model.json.")] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=16, help="Longest input; else 256, 512 or 384 by kind, or what the model takes.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a model folder that is there.")] = False,
    json: Json = False,
) -> None:
    """Make a model folder of a trained checkpoint: ONNX, proven equal to the original; needs the train extra."""
    check_train_extra()
    from models.folder import Kind
    from service.commands.export import ExportTask, export_checkpoint

    wanted: Kind | None = None if kind is None else kind.value
    task = ExportTask(checkpoint, out, wanted, name, licence, origin, max_tokens, quantize is Quantize.int8, force)
    export_checkpoint(task, as_json=json)


@calibration.command("reader")
def calibrate_reader(
    data: Annotated[
        list[str],
        typer.Option(
            metavar="FILE[#N]", help="Labelled questions, JSON Lines or SQuAD 2.0 JSON, N at most; may be given again."
        ),
    ],
    model: Model = None,
    precision: Annotated[
        float | None, typer.Option(min=0.0, max=1.0, help="Share of answers that shall be right; else the best F1.")
    ] = None,
    balance: Annotated[
        bool,
        typer.Option(help="Whether answerable and unanswerable questions weigh the same, whatever their numbers."),
    ] = True,
    queries: Annotated[
        int | None, typer.Option(min=1, help="Only the first so many questions of each file that has no #N.")
    ] = None,
    json: Json = False,
) -> None:
    """Tune the no-answer threshold and the probability of an answer."""
    from service.commands.calibrate import ReaderTask, calibrate_reader
    from service.commands.data_sources import parse_source

    task = ReaderTask([parse_source(each) for each in data], precision, balance, queries)
    calibrate_reader(task, load_settings(reader=model), as_json=json)


@calibration.command("reranker")
def calibrate_reranker(
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE[#N]",
            help="Labelled questions (JSON Lines, SQuAD 2.0 JSON) over their passages, N at most; may be given again.",
        ),
    ] = None,
    dataset: Annotated[
        list[str] | None,
        typer.Option(metavar="DIR[:SPLIT][#N]", help="A BEIR folder, its dev split; may be given again."),
    ] = None,
    model: Model = None,
    queries: Annotated[int, typer.Option(min=2, help="At most so many queries of each that has no #N.")] = 100,
    indexes: Store = None,
    json: Json = False,
) -> None:
    """Tune how relevance mixes the rerank logit with the retrieval scores, and make it a probability."""
    from service.commands.calibrate import RerankerTask, calibrate_reranker
    from service.commands.data_sources import parse_dataset, parse_source

    if not (data or dataset):
        raise typer.BadParameter("give --data or --dataset, each once or more often")
    settings = load_settings(cross_encoder=model, data_path=indexes)
    files = [parse_source(each) for each in data or []]
    folders = [parse_dataset(each, "dev") for each in dataset or []]
    calibrate_reranker(RerankerTask(files, folders, queries), settings, as_json=json)
