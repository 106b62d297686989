"""A data folder with API keys and the index of the other tests, and how a client sends a key."""

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from service.key_file import KeyFile
from service.keys import Limits, new_key
from service.scopes import KeyScope
from service.settings import Settings

NO_LIMITS = Limits()


def keyed_settings(settings: Settings, folder: Path, **changes: object) -> Settings:
    """Return settings that serve the same index from a folder of its own, in which keys can be made."""
    (folder / settings.index).symlink_to(settings.data_path / settings.index)
    return settings.model_copy(update={"data_path": folder, **changes})


def add_key(
    folder: Path,
    name: str,
    *scopes: KeyScope,
    limits: Limits = NO_LIMITS,
    expires_at: datetime | None = None,
) -> str:
    """Make a key, for searching unless more is said, and return its text."""
    text, key = new_key(name, scopes or (KeyScope.SEARCH,), limits=limits, expires_at=expires_at)
    with KeyFile(folder).changed() as keys:
        keys.append(key)
    return text


def revoke(folder: Path, names: Iterable[str]) -> None:
    """Remove keys by name."""
    with KeyFile(folder).changed() as keys:
        keys[:] = [key for key in keys if key.name not in names]


def bearer(text: str) -> dict[str, str]:
    """Return the header that sends a key."""
    return {"Authorization": f"Bearer {text}"}


def at(seconds: float) -> datetime:
    """Return the moment so many seconds after 1970."""
    return datetime.fromtimestamp(seconds, UTC)
