"""What a failed command tells its user: one sentence where the user or the world is at fault."""

import errno

from indexer.errors import IndexerError
from models.errors import ModelError
from service.extras import StartupError


class CommandError(Exception):
    """A command cannot do what was asked; the message is one sentence for the user."""


def explanation(error: Exception) -> str | None:
    """Return one sentence about a fault of the user or the world, None for a fault of ours."""
    if isinstance(error, CommandError | IndexerError | ModelError | StartupError):
        return _sentence(str(error))
    if isinstance(error, OSError):
        return _sentence(_about_file(error))
    if isinstance(error, MemoryError):
        return "There is not enough memory for this."
    return None


def _about_file(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename is not None else ""
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return f"{where}no space is left on the disk"
        case errno.EACCES | errno.EPERM:
            return f"{where}this user has no permission for it"
        case None:
            return f"{where}{error}"
        case _:
            return f"{where}{error.strerror}"


def _sentence(message: str) -> str:
    lines = " ".join(message.split())
    return lines if lines.endswith((".", "!", "?")) else f"{lines}."
