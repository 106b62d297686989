"""The entry point of the `tercet` command; written so that any Python 3 can run it and get a clear sentence."""

import sys

OLDEST_PYTHON = (3, 11)


def complaint(version: tuple) -> str:  # type: ignore[type-arg]  # `tuple[int, ...]` fails before Python 3.9
    """Return what is wrong with a Python of this version, the empty string when it will do."""
    if version[:2] >= OLDEST_PYTHON:
        return ""
    wanted, found = (".".join(str(part) for part in parts[:2]) for parts in (OLDEST_PYTHON, version))
    return "Tercet needs Python " + wanted + " or newer; this is Python " + found + "."


def main() -> None:
    """Run the command line and exit: 0 done, 1 failed, 2 wrong use, 130 interrupted."""
    found = complaint(sys.version_info)
    if found:
        sys.exit(found)

    try:
        from service.cli import run  # what it imports needs OLDEST_PYTHON

        code = run(sys.argv[1:])
    except KeyboardInterrupt:  # `run` says so itself, but for the second in which it is imported
        sys.stderr.write("tercet: Interrupted.\n")
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    main()
