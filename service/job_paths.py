"""Which files an indexing job may read: those below one folder, whatever `..` and links say.

What is found out here holds as long as nobody changes the folder meanwhile; who may write there is trusted with that.
"""

import os
from pathlib import Path


def real_folder(path: Path) -> Path:
    """Return a folder's path without links."""
    return Path(os.path.realpath(path))


def located(root: Path, source: str) -> Path | None:
    """Return the real path of what source names, seen from root; None if that is nothing, or not below root.

    Args:
        root: a folder, as `real_folder` returns it.
        source: what a client sent.
    """
    try:
        real = Path(os.path.realpath(root / source, strict=True))
    except (OSError, ValueError):  # nothing there, a loop of links, too long; a NUL in it
        return None
    return real if real.is_relative_to(root) else None


def leaving_link(root: Path, source: Path) -> Path | None:
    """Return the first link to a file below source that leads out of root, None if there is none.

    Links to folders are left aside, because sources don't follow them, and so is what is hidden.
    """
    for directory, folders, names in os.walk(source):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for path in (Path(directory, name) for name in sorted(names) if not name.startswith(".")):
            if path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(root):
                return path
    return None
