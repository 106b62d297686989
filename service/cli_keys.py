"""`tercet keys`: the options of its commands. What they do is in `service/commands/keys.py`."""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from service.cli_options import Data, Json
from service.keys import KEY_NAME, MOST_REQUESTS, Limits
from service.scopes import KeyScope
from service.settings import load_settings

keys = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Make, list and revoke API keys. A running service follows within seconds.",
)

_UNITS = {"d": "days", "h": "hours"}
_HOW_TO_EXPIRE = "neither a time from now, such as 90d or 12h, nor a date, such as 2031-12-31"


@keys.command()
def create(
    name: Annotated[str, typer.Option(help="What the key is called in lists and metrics.")],
    scope: Annotated[list[KeyScope], typer.Option(help="What it may do, may be given again; admin may do everything.")],
    expires: Annotated[
        str | None, typer.Option(metavar="90d|12h|DATE", help="From when on it is refused (UTC); else never.")
    ] = None,
    requests_per_minute: Annotated[
        int | None, typer.Option(min=1, max=MOST_REQUESTS, help="How many requests it may send a minute.")
    ] = None,
    concurrent: Annotated[
        int | None, typer.Option(min=1, max=MOST_REQUESTS, help="How many of them may be under way at once.")
    ] = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Make a key and print it, once: what is kept of it is a hash."""
    from service.commands.keys import NewKey, create_key

    if re.fullmatch(KEY_NAME, name) is None:
        raise typer.BadParameter(
            "a name has 1 to 64 of A-Z a-z 0-9 . _ - and begins with a letter or digit", param_hint="--name"
        )
    limits = Limits(requests_per_minute=requests_per_minute, concurrent=concurrent)
    wanted = NewKey(name, scope, limits, None if expires is None else expiry(expires, datetime.now(UTC)))
    create_key(wanted, load_settings(data_path=data), as_json=json)


@keys.command("ls")
def ls(data: Data = None, json: Json = False) -> None:
    """List the keys, the oldest first."""
    from service.commands.keys import print_keys

    print_keys(load_settings(data_path=data), as_json=json)


@keys.command()
def revoke(
    key: Annotated[str, typer.Argument(metavar="NAME_OR_ID", help="Which key, as `ls` names it.")], data: Data = None
) -> None:
    """Remove a key, which is refused from then on."""
    from service.commands.keys import revoke_key

    revoke_key(key, load_settings(data_path=data))


def expiry(text: str, now: datetime) -> datetime:
    """Return the time that `90d`, `12h`, a date (its beginning) or a time means, in UTC unless it says otherwise.

    Raises:
        typer.BadParameter: it is none of these, or over.
    """
    try:
        moment = _moment(text, now)
    except (ValueError, OverflowError):
        raise typer.BadParameter(_HOW_TO_EXPIRE, param_hint="--expires") from None
    if moment <= now:
        raise typer.BadParameter(f"{moment:%Y-%m-%d %H:%M} UTC is over", param_hint="--expires")
    return moment


def _moment(text: str, now: datetime) -> datetime:
    span = re.fullmatch(r"([0-9]{1,6})([dh])", text)
    if span is not None:
        return (now + timedelta(**{_UNITS[span[2]]: int(span[1])})).replace(microsecond=0)
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
