"""The file of API keys, which several processes may read and change at once.

<data>/.keys.json   what is kept of each key; mode 0600, replaced by one rename
<data>/.keys.lock   held (flock) while a process changes it
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from models.folder import first_fault
from service.extras import StartupError
from service.keys import ApiKey

MOST_KEYS = 1_000  # each is a label in the metrics

Stamp: TypeAlias = tuple[int, ...]


class KeyFileError(StartupError):
    """The file of keys cannot be used; the message is one sentence for the operator."""


class _Content(BaseModel):
    model_config = ConfigDict(extra="forbid")

    format: Literal[1] = 1
    keys: list[ApiKey]

    @field_validator("keys")
    @classmethod
    def _are_told_apart(cls, keys: list[ApiKey]) -> list[ApiKey]:
        if len({key.key_id for key in keys}) < len(keys) or len({key.name for key in keys}) < len(keys):
            raise ValueError("two keys have one name or one id")
        return keys


class KeyFile:
    """The keys of a data folder."""

    def __init__(self, data_path: Path) -> None:
        self.path = data_path / ".keys.json"

    def read(self) -> list[ApiKey]:
        """Return the keys in the order of their creation, none where there is no file.

        Raises:
            KeyFileError: it cannot be read, or is damaged.
        """
        try:
            return _Content.model_validate_json(self.path.read_bytes()).keys
        except FileNotFoundError:
            return []
        except OSError as error:
            raise KeyFileError(f"The file of API keys {self.path} cannot be read: {error.strerror}.") from error
        except ValidationError as error:
            raise KeyFileError(
                f"The file of API keys {self.path} is damaged ({first_fault(error)}): "
                "put a copy of it back, or remove it and create the keys anew."
            ) from None  # whose message would quote the file

    def stamp(self) -> Stamp:
        """Return what changes whenever the file does, is there no more, or cannot be looked at."""
        try:
            status = self.path.stat()
        except OSError as error:
            return (error.errno or 0,)
        return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns

    @contextmanager
    def changed(self) -> Iterator[list[ApiKey]]:
        """Give the keys to change, alone, and write them at the end unless that is an exception.

        Raises:
            KeyFileError: as `read`.
            OSError: it cannot be written, or there is no such folder; the file is as it was.
        """
        lock = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            self._give_to_owner(lock)
            fcntl.flock(lock, fcntl.LOCK_EX)
            keys = self.read()
            yield keys
            self._write(keys)
        finally:
            os.close(lock)

    def _write(self, keys: list[ApiKey]) -> None:
        """Replace the file; a reader, or a machine that lost its power, has either the old or the new one."""
        partial = self.path.with_suffix(".new")
        partial.unlink(missing_ok=True)
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "wb") as file:
            self._give_to_owner(descriptor)
            file.write(_Content(keys=keys).model_dump_json(indent=2).encode() + b"\n")
            file.flush()
            os.fsync(descriptor)
        partial.replace(self.path)

    def _give_to_owner(self, descriptor: int) -> None:
        """Let what root writes belong to the data folder's owner, as whom the service runs."""
        if os.geteuid() == 0:
            owner = self.path.parent.stat()
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
