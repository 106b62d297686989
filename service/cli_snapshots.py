"""`tercet indexes`, `tercet snapshots`: their options. What they do is in `service/commands/snapshots.py`."""

from pathlib import Path
from typing import Annotated

import typer

from service.cli_options import Data, Index, Json
from service.settings import load_settings

snapshots = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="List, verify, roll back, remove, export and import the snapshots of an index.",
)

Id = Annotated[str, typer.Argument(metavar="ID", help="Which snapshot, as `ls` names it.")]
OptionalId = Annotated[
    str | None, typer.Argument(metavar="[ID]", help="Which snapshot, as `ls` names it; else the current one.")
]


def list_indexes(data: Data = None, json: Json = False) -> None:
    """List the indexes of the data folder, each with its current snapshot."""
    from service.commands.snapshots import print_indexes

    print_indexes(load_settings(data_path=data), as_json=json)


@snapshots.command("ls")
def ls(name: Index = None, data: Data = None, json: Json = False) -> None:
    """List the snapshots, the newest first."""
    from service.commands.snapshots import print_snapshots

    print_snapshots(load_settings(index=name, data_path=data), as_json=json)


@snapshots.command()
def verify(snapshot: OptionalId = None, name: Index = None, data: Data = None, json: Json = False) -> None:
    """Read every byte of a snapshot, compare it with the hashes in its manifest, and open it."""
    from service.commands.snapshots import verify_one

    verify_one(load_settings(index=name, data_path=data), snapshot, as_json=json)


@snapshots.command()
def rollback(
    snapshot: Annotated[
        str | None,
        typer.Argument(metavar="[ID]", help="Which snapshot; else the one that was current before, `before` in `ls`."),
    ] = None,
    name: Index = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Verify another snapshot and make it the current one; called again it goes further back.

    It must have been built with the configured dual encoder (TERCET_DUAL_ENCODER).
    """
    from service.commands.snapshots import roll_back_to

    roll_back_to(load_settings(index=name, data_path=data), snapshot, as_json=json)


@snapshots.command()
def remove(
    keep: Annotated[int, typer.Option(min=1, help="How many stay; the current one counts.")],
    name: Index = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Remove old snapshots; the current one stays, then those before it, and any that a process has open."""
    from service.commands.snapshots import remove_all_but

    remove_all_but(load_settings(index=name, data_path=data), keep, as_json=json)


@snapshots.command("export")
def export_(
    archive: Annotated[Path, typer.Argument(help="File to write: .tar, or .tar.gz for a smaller and slower one.")],
    snapshot: OptionalId = None,
    name: Index = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Write a verified snapshot into one archive."""
    from service.commands.snapshots import export_to

    export_to(load_settings(index=name, data_path=data), archive, snapshot, as_json=json)


@snapshots.command("import")
def import_(
    archive: Annotated[Path, typer.Argument(help="What `export` wrote.")],
    name: Index = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Verify the snapshot in an archive and make it the current one of an index.

    It must have been built with the configured dual encoder (TERCET_DUAL_ENCODER).
    """
    from service.commands.snapshots import import_from

    import_from(load_settings(index=name, data_path=data), archive, as_json=json)
