"""`tercet keys`: what an operator does with the API keys of a data folder."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from rich.table import Table

from service.commands.faults import CommandError
from service.commands.output import console, print_json, say
from service.key_file import MOST_KEYS, KeyFile
from service.keys import ApiKey, Limits, new_key
from service.scopes import KeyScope
from service.settings import Settings


@dataclass(frozen=True, slots=True)
class NewKey:
    """What a new key is to be."""

    name: str
    scopes: Sequence[KeyScope]
    limits: Limits
    expires_at: datetime | None


def create_key(wanted: NewKey, settings: Settings, *, as_json: bool) -> None:
    """Print a new key.

    Raises:
        CommandError: its name is taken, or there are too many.
        KeyFileError: the file of keys is damaged.
    """
    settings.data_path.mkdir(parents=True, exist_ok=True)
    with KeyFile(settings.data_path).changed() as keys:
        if any(wanted.name in (key.name, key.key_id) for key in keys):
            raise CommandError(f"there is a key {wanted.name!r} already")
        if len(keys) >= MOST_KEYS:
            raise CommandError(f"there are {MOST_KEYS} keys already, and no more can be made")
        text, key = new_key(wanted.name, wanted.scopes, limits=wanted.limits, expires_at=wanted.expires_at)
        while any(key.key_id in (other.name, other.key_id) for other in keys):
            text, key = new_key(wanted.name, wanted.scopes, limits=wanted.limits, expires_at=wanted.expires_at)
        keys.append(key)
    if as_json:
        print_json(_shown(key) | {"key": text})
        return
    say(f"Key {key.name!r} ({key.key_id}) for {', '.join(key.scopes)}, expires: {_expiry(key)}. It is shown only now:")
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
    if len(keys) == 1 and settings.auth == "auto":
        say(
            "From now on services over this data folder want a key for each request, those that run too, and, even"
            " when it is revoked, until they start again. TERCET_AUTH=off asks for none."
        )


def print_keys(settings: Settings, *, as_json: bool) -> None:
    """Print one line a key; raises KeyFileError."""
    keys = KeyFile(settings.data_path).read()
    if as_json:
        print_json({"keys": [_shown(key) for key in keys]})
        return
    table = Table(box=None, pad_edge=False)
    for name in ("name", "id", "scopes", "created", "expires", "a minute", "at once"):
        table.add_column(name, justify="right" if name.startswith("a") else "left", no_wrap=True)
    for key in keys:
        limits = (key.limits.requests_per_minute, key.limits.concurrent)
        table.add_row(
            key.name,
            key.key_id,
            ", ".join(key.scopes),
            f"{key.created_at:%Y-%m-%d}",
            _expiry(key),
            *("" if limit is None else f"{limit:,}" for limit in limits),
        )
    console().print(table)


def revoke_key(name_or_id: str, settings: Settings) -> None:
    """Remove a key.

    Raises:
        CommandError: there is none of this name or id.
        KeyFileError: the file of keys is damaged.
    """
    with KeyFile(settings.data_path).changed() as keys:
        found = next((key for key in keys if name_or_id in (key.name, key.key_id)), None)
        if found is None:
            raise CommandError(f"there is no key {name_or_id!r}; `tercet keys ls` lists them")
        keys.remove(found)
    say(f"Key {found.name!r} ({found.key_id}) is revoked; a running service refuses it within seconds.")


def _shown(key: ApiKey) -> dict[str, object]:
    """Return what may be told of a key."""
    is_expired = key.is_expired(datetime.now(UTC).timestamp())
    return key.model_dump(mode="json", exclude={"salt", "hash"}) | {"is_expired": is_expired}


def _expiry(key: ApiKey) -> str:
    if key.expires_at is None:
        return "never"
    is_over = key.is_expired(datetime.now(UTC).timestamp())
    return f"{key.expires_at:%Y-%m-%d %H:%M} UTC{', which is over' if is_over else ''}"
