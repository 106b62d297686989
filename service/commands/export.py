"""`tercet export`: a transformers checkpoint becomes a model folder, or a sentence says why not."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table
from rich.text import Text

from indexer.files import shown_path
from models.checkpoint import Checkpoint, open_checkpoint
from models.export import export
from models.folder import OUTPUTS, TOKENIZER_FILE, WEIGHTS_FILE, Kind, ModelFolder, ModelSettings
from models.tokenization import Lengths
from models.training.runs import RECIPE_FILE
from service.commands.faults import CommandError
from service.commands.output import console, print_json, printable, say, size

_LENGTHS: Mapping[Kind, Lengths] = {
    "dual-encoder": Lengths(256, 256),
    "cross-encoder": Lengths(512, 128),
    "reader": Lengths(384, 64, 128),
}
_FEWEST_TOKENS = 16


@dataclass(frozen=True, slots=True)
class ExportTask:
    """What to export where; None stands for what the checkpoint suggests."""

    checkpoint: Path
    out: Path
    kind: Kind | None
    name: str | None
    licence: str
    origin: str | None
    max_tokens: int | None
    quantizes: bool
    replaces: bool


def export_checkpoint(task: ExportTask, *, as_json: bool) -> None:
    """Write the model folder, and print what it is and how near it stays to the checkpoint.

    Raises:
        ExportError: the checkpoint cannot be exported, or not with parity.
        CommandError: max_tokens does not suit it.
    """
    checkpoint = open_checkpoint(task.checkpoint, task.kind)
    settings = settings_of(checkpoint, task)
    say(f"Exporting the {checkpoint.kind} {settings.name} ({checkpoint.architecture}) …")
    folder = export(checkpoint, task.out, settings, quantizes=task.quantizes, replaces=task.replaces)
    facts = _facts(folder)
    if as_json:
        print_json(facts)
    else:
        _print(facts)


def settings_of(checkpoint: Checkpoint, task: ExportTask) -> ModelSettings:
    """Return what model.json will say; lengths are cut down where the model is a short one."""
    max_tokens = checkpoint.default_max_tokens if task.max_tokens is None else task.max_tokens
    if not _FEWEST_TOKENS <= max_tokens <= checkpoint.max_positions:
        bounds = f"from {_FEWEST_TOKENS} to {checkpoint.max_positions}"
        raise CommandError(f"{checkpoint.path} takes inputs of {bounds} tokens, not of {max_tokens}")
    _check_texts({"--name": task.name, "--licence": task.licence, "--origin": task.origin})
    lengths = _LENGTHS[checkpoint.kind].cut_to(max_tokens)
    is_dual = checkpoint.kind == "dual-encoder"
    run = checkpoint.path.parent if task.checkpoint != checkpoint.path else checkpoint.path
    own_name = shown_path(run.resolve().name)
    return ModelSettings(
        name=own_name if task.name is None else task.name,
        kind=checkpoint.kind,
        architecture=checkpoint.architecture,
        max_tokens=max_tokens,
        max_query_tokens=max_tokens if is_dual else lengths.max_query_tokens,
        overlap_tokens=lengths.overlap_tokens,
        pooling="mean" if is_dual else None,
        outputs=OUTPUTS[checkpoint.kind],
        origin=f"exported from {own_name}" if task.origin is None else task.origin,
        licence=task.licence,
        recipe=_recipe(run),
    )


def _check_texts(options: Mapping[str, str | None]) -> None:
    """Refuse what model.json cannot hold."""
    name = options["--name"]
    if name is not None and not name.strip():
        raise CommandError("--name is blank")
    for option, text in options.items():
        if text is not None and not text.isascii() and text.encode(errors="replace").decode() != text:
            raise CommandError(f"{option} {shown_path(text)!r} is not UTF-8")


def _recipe(run: Path) -> dict[str, object]:
    """Return what a training run wrote of itself, nothing for other checkpoints."""
    try:
        content = json.loads((run / RECIPE_FILE).read_bytes())
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{run / RECIPE_FILE} is not JSON: {error}") from error
    return content if isinstance(content, dict) else {}


def _facts(folder: ModelFolder) -> dict[str, object]:
    settings = folder.settings
    parity = settings.parity
    return {
        "name": settings.name,
        "kind": settings.kind,
        "path": shown_path(folder.path),
        "architecture": settings.architecture,
        "max_tokens": settings.max_tokens,
        "token_types": settings.token_types,
        "n_bytes": sum((folder.path / name).stat().st_size for name in (WEIGHTS_FILE, TOKENIZER_FILE)),
        "fingerprint": folder.fingerprint,
        "parity": {} if parity is None else parity.model_dump(exclude_none=True),
    }


def _print(facts: dict[str, object]) -> None:
    parity = facts.pop("parity")
    assert isinstance(parity, dict)
    n_bytes = facts.pop("n_bytes")
    assert isinstance(n_bytes, int)
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in (facts | {"size": size(n_bytes)} | parity).items():
        shown = f"{value:.2g}" if isinstance(value, float) else str(value)
        table.add_row(name.replace("_", " "), Text(printable(shown)))
    console().print(table)
