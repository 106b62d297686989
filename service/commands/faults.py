"""What a failed command tells its user: one sentence, where the user or the world is at fault."""

import errno

from indexer.errors import IndexerError
from models.errors import ModelError
from service.extras import StartupError
from service.settings import SettingsError


class CommandError(Exception):
    """A command cannot do what was asked; the message is one sentence for the user."""


class UsageError(CommandError):
    """What was asked for makes no sense, however often it is asked."""


FAULTS = (CommandError, IndexerError, ModelError, StartupError, OSError, MemoryError)


def exit_code(error: BaseException) -> int:
    """Return what a command ends with that an exception of the kinds in FAULTS ended: 2 for wrong use, else 1."""
    return 2 if isinstance(error, UsageError | SettingsError) else 1


def explanation(error: BaseException) -> str:
    """Return one sentence about an exception of the kinds in FAULTS."""
    if isinstance(error, OSError):
        return _sentence(_about_file(error))
    if isinstance(error, MemoryError):
        return "There is not enough memory for this."
    return _sentence(str(error))


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
    """Return the message on one line, its first letter a capital unless a name, such as a file's, stands there."""
    one_line = " ".join(message.split())
    first, _, _ = one_line.partition(" ")
    capital = one_line[:1].upper() + one_line[1:] if first.isascii() and first.isalpha() else one_line
    return capital if capital.endswith((".", "!", "?")) else f"{capital}."
