"""`tercet train`: the options of its three commands. What they do is in `service/commands/train.py`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from service.extras import check_train_extra

if TYPE_CHECKING:
    from models.training.sources import GroupSources

training = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Train a model on your own data, from any BERT-type encoder; needs the train extra.",
)

Out = Annotated[
    Path, typer.Option(help="Folder of the run, empty or not there yet; called again after a kill, the run goes on.")
]
Init = Annotated[
    str,
    typer.Option(
        help="What to start from: all-minilm-l6-v2, a bundled model, a model folder, a transformers folder, or a run, "
        "whose best checkpoint counts."
    ),
]
Seed = Annotated[
    int, typer.Option(min=0, max=2**32 - 1, help="Decides order, negatives, a new head and dropout.")
]  # times a million and more, it must stay a 64-bit number
Epochs = Annotated[float, typer.Option(min=0.01, max=1_000, help="How often each example is seen.")]
BatchTokens = Annotated[int, typer.Option(min=512, help="Padded tokens of one step.")]
LearningRate = Annotated[float, typer.Option(min=0.0, max=1.0, help="Peak of the encoder's learning rate.")]
HeadRate = Annotated[float, typer.Option(min=0.0, max=1.0, help="Peak of the head's learning rate.")]
Checks = Annotated[int, typer.Option(min=1, max=1_000, help="How often the dev measures are taken.")]
Sanity = Annotated[bool, typer.Option("--sanity", help="First learn a few dozen examples by heart, or stop.")]
Freeze = Annotated[bool, typer.Option("--freeze-embeddings", help="Leave the embeddings as they are: a tenth faster.")]
Files = Annotated[
    list[str] | None,
    typer.Option(
        "--data",
        metavar="FILE[#N]",
        help="Labelled questions (JSON Lines, SQuAD 2.0 JSON) or triples (JSON Lines), N at most; may be given again.",
    ),
]
Datasets = Annotated[
    list[str] | None,
    typer.Option("--dataset", metavar="DIR[:SPLIT][#N]", help="A BEIR folder, its train split; may be given again."),
]
Documents = Annotated[
    list[str] | None,
    typer.Option("--documents", metavar="DIR[#N]", help="Markdown pages, whose headings ask for their sections."),
]
DevFiles = Annotated[
    list[str] | None, typer.Option("--dev", metavar="FILE[#N]", help="As --data, to measure on; or 5% are held out.")
]
DevDatasets = Annotated[
    list[str] | None,
    typer.Option("--dev-dataset", metavar="DIR[:SPLIT][#N]", help="As --dataset, its dev split, to measure on."),
]
Paragraphs = Annotated[
    int, typer.Option(min=0, help="How many queries to make of sentences and halves of the questions' paragraphs.")
]
Negatives = Annotated[int, typer.Option(min=1, max=63, help="Passages beside the relevant one in each group.")]


@training.command("reader")
def train_reader(
    data: Annotated[
        list[str],
        typer.Option(
            metavar="FILE[#N]", help="Labelled questions, JSON Lines or SQuAD 2.0 JSON, N at most; may be given again."
        ),
    ],
    out: Out,
    init: Init = "all-minilm-l6-v2",
    dev: Annotated[
        str | None,
        typer.Option(metavar="FILE[#N]", help="Questions to measure on, N at most; or 5% are held out by title."),
    ] = None,
    moved: Annotated[int, typer.Option(min=0, help="Questions asked of a sibling passage without their answer.")] = 0,
    edited: Annotated[int, typer.Option(min=0, help="Questions edited so that their passage fails them.")] = 0,
    repeats: Annotated[int, typer.Option(min=1, max=100, help="How often a real unanswerable question is shown.")] = 1,
    teacher: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODEL",
            help="A reader whose answers count as half of what is learned: a bundled model or a model folder, with the "
            "tokenizer of --init; may be given again, then their mean counts.",
        ),
    ] = None,
    epochs: Epochs = 2.0,
    seed: Seed = 1,
    batch_tokens: BatchTokens = 6144,
    learning_rate: LearningRate = 7e-5,
    head_learning_rate: HeadRate = 3e-4,
    checks: Checks = 6,
    sanity: Sanity = False,
    freeze_embeddings: Freeze = False,
) -> None:
    """Train span extraction with null answers."""
    check_train_extra()
    from models.training.recipe import Lesson, NullSide, Recipe
    from service.commands.data_sources import parse_source
    from service.commands.train import Run, train_reader

    recipe = Recipe(seed, epochs, batch_tokens, learning_rate, head_learning_rate, freeze_embeddings=freeze_embeddings)
    run = Run(init, out, recipe, checks, sanity)
    sources, held_out = [parse_source(each) for each in data], None if dev is None else parse_source(dev)
    train_reader(sources, held_out, Lesson(NullSide(moved, edited, repeats), tuple(teacher or ())), run)


@training.command("reranker")
def train_reranker(
    out: Out,
    data: Files = None,
    dataset: Datasets = None,
    documents: Documents = None,
    dev: DevFiles = None,
    dev_dataset: DevDatasets = None,
    paragraphs: Paragraphs = 0,
    negatives: Negatives = 4,
    retrieval_weight: Annotated[
        float,
        typer.Option(min=0.0, max=1_000, help="What a cosine of 1 adds to the logit while training; 0 learns alone."),
    ] = 15.0,
    init: Init = "all-minilm-l6-v2",
    epochs: Epochs = 1.0,
    seed: Seed = 1,
    batch_tokens: BatchTokens = 6144,
    learning_rate: LearningRate = 6e-5,
    head_learning_rate: HeadRate = 3e-4,
    checks: Checks = 5,
    sanity: Sanity = False,
    freeze_embeddings: Freeze = False,
) -> None:
    """Train a cross-encoder on queries, relevant passages and mined hard negatives."""
    check_train_extra()
    from models.training.recipe import Recipe
    from service.commands.train import Run, train_reranker

    sources, held_out = _sources(data, dataset, documents, paragraphs, negatives), _held_out(dev, dev_dataset)
    recipe = Recipe(seed, epochs, batch_tokens, learning_rate, head_learning_rate, freeze_embeddings=freeze_embeddings)
    run = Run(init, out, recipe, checks, sanity)
    train_reranker(sources, held_out, run, retrieval_weight=retrieval_weight)


@training.command("dual")
def train_dual(
    out: Out,
    data: Files = None,
    dataset: Datasets = None,
    documents: Documents = None,
    dev: DevFiles = None,
    dev_dataset: DevDatasets = None,
    paragraphs: Paragraphs = 0,
    negatives: Negatives = 2,
    init: Init = "all-minilm-l6-v2",
    epochs: Epochs = 1.0,
    seed: Seed = 1,
    batch_tokens: BatchTokens = 12288,
    learning_rate: LearningRate = 2e-5,
    checks: Checks = 5,
    sanity: Sanity = False,
    freeze_embeddings: Freeze = False,
) -> None:
    """Train a dual encoder with in-batch and mined hard negatives."""
    check_train_extra()
    from models.training.recipe import Recipe
    from service.commands.train import Run, train_dual

    sources, held_out = _sources(data, dataset, documents, paragraphs, negatives), _held_out(dev, dev_dataset)
    recipe = Recipe(seed, epochs, batch_tokens, learning_rate, learning_rate, freeze_embeddings=freeze_embeddings)
    train_dual(sources, held_out, Run(init, out, recipe, checks, sanity))


@training.command("average")
def average(
    checkpoint: Annotated[list[Path], typer.Argument(help="Runs or transformers folders, two or more.")],
    out: Annotated[Path, typer.Option(help="Folder to write, for tercet export.")],
) -> None:
    """Average the weights of runs that began at the same checkpoint."""
    check_train_extra()
    from service.commands.train import average_checkpoints

    average_checkpoints(checkpoint, out)


def _sources(
    data: list[str] | None, dataset: list[str] | None, documents: list[str] | None, paragraphs: int, negatives: int
) -> "GroupSources":
    from models.training.sources import GroupSources
    from service.commands.data_sources import parse_dataset, parse_source

    if not (data or dataset or documents):
        raise typer.BadParameter("give --data, --dataset or --documents, each once or more often")
    return GroupSources(
        files=[parse_source(each) for each in data or []],
        datasets=[parse_dataset(each, "train") for each in dataset or []],
        documents=[parse_source(each) for each in documents or []],
        paragraphs=paragraphs,
        n_negatives=negatives,
    )


def _held_out(dev: list[str] | None, dev_dataset: list[str] | None) -> "GroupSources | None":
    from models.training.sources import DEV_NEGATIVES, GroupSources
    from service.commands.data_sources import parse_dataset, parse_source

    if not (dev or dev_dataset):
        return None
    return GroupSources(
        files=[parse_source(each) for each in dev or []],
        datasets=[parse_dataset(each, "dev") for each in dev_dataset or []],
        documents=[],
        paragraphs=0,
        n_negatives=DEV_NEGATIVES,
    )
