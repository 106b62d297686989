"""Print what the standard library documents, as JSON Lines. Run as a script, by `indexer.python_documentation`.

It runs in a process of its own because it imports every public module of the standard library: whatever an import
prints, registers or starts stays here. It must import nothing but the standard library.
"""

import builtins
import importlib
import inspect
import json
import os
import pkgutil
import re
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from types import ModuleType

# Imports that open a browser, print, draw, or belong to tests or to what was withdrawn; codecs, and modules whose
# content has a public name elsewhere.
_SKIPPED_NAMES = (
    "antigravity this idlelib turtle turtledemo test lib2to3 distutils ensurepip pydoc_data encodings genericpath nt"
    " ntpath nturl2path posix posixpath sre_compile sre_constants sre_parse"
)
SKIPPED = frozenset(_SKIPPED_NAMES.split())
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_LONGEST_DEFAULT = 60
_UNTELLING = re.compile(r"Alias for field number \d+|The most base type|Initialize self\.")


@dataclass(frozen=True)
class Described:
    """One documented object: kind is topic, module, class, exception, function, method or property."""

    document_id: str
    title: str
    kind: str
    text: str


def described_objects() -> Iterator[Described]:
    """Yield topics, then modules, then what modules hold, each object once, under its shortest public name."""
    yield from topics()
    modules = dict(public_modules())
    members = _named_members(modules)
    for name, module in modules.items():
        if name not in members and (doc := _own_doc(module)):  # unittest.main is a class and, hidden by it, a module
            yield Described(name, name, "module", f"module {name}\n\n{doc}")
    for name, member in sorted(members.items()):
        yield from _describe(name, member, "function")
        if inspect.isclass(member):
            for member_name, attribute in sorted(vars(member).items()):
                if not member_name.startswith("_") and not inspect.isclass(attribute):
                    yield from _describe(f"{name}.{member_name}", attribute, "method")


def topics() -> Iterator[Described]:
    """Yield the topics of the language reference, titled by their first line."""
    from pydoc_data.topics import topics as texts

    for key, text in sorted(texts.items()):
        stripped = text.strip("\n")
        title = stripped.split("\n", 1)[0].replace('"', "")
        yield Described(f"topic:{key}", title, "topic", stripped)


def public_modules() -> Iterator[tuple[str, ModuleType]]:
    """Yield the standard library's public modules by name, in order; those that fail to import are left out."""
    names = sorted(name for name in sys.stdlib_module_names if not name.startswith("_") and name not in SKIPPED)
    names.append("os.path")
    while names:
        name = names.pop(0)
        module = _imported(name)
        if module is None:
            continue
        yield name, module
        inner = sorted(info.name for info in pkgutil.iter_modules(getattr(module, "__path__", [])))
        names.extend(f"{name}.{part}" for part in inner if not part.startswith("_") and part not in ("test", "tests"))


def _imported(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except BaseException:  # noqa: BLE001 - an import may raise anything, SystemExit too; that module is left out
        return None


def _named_members(modules: dict[str, ModuleType]) -> dict[str, object]:
    """Return classes and functions by their best name: the one with the fewest dots, then the shortest."""
    best: dict[int, tuple[tuple[int, int, str], object]] = {}
    for module_name, module in modules.items():
        prefix = "" if module_name == "builtins" else f"{module_name}."
        for name in _public_names(module):
            member = getattr(module, name, None)
            full = prefix + name
            rank = (full.count("."), len(full), full)
            is_better = id(member) not in best or rank < best[id(member)][0]
            if (inspect.isclass(member) or inspect.isroutine(member)) and is_better:
                best[id(member)] = (rank, member)
    return {rank[2]: member for rank, member in best.values()}


def _public_names(module: ModuleType) -> list[str]:
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return [str(name) for name in listed]
    homes = (module.__name__, f"_{module.__name__}")
    return [
        name
        for name, member in vars(module).items()
        if not name.startswith("_") and (module is builtins or getattr(member, "__module__", None) in homes)
    ]


def _describe(name: str, member: object, kind: str) -> Iterator[Described]:
    doc = _own_doc(member)
    if doc and not _UNTELLING.match(doc):
        kind = _kind(member, kind)
        yield Described(name, name, kind, f"{kind} {name}{_signature(member)}\n\n{doc}")


def _own_doc(member: object) -> str:
    """Return an object's own documentation, not that of its class or base class; "" if it has none."""
    doc = vars(member).get("__doc__") if inspect.isclass(member) else getattr(member, "__doc__", None)
    is_inherited = not inspect.isclass(member) and doc == getattr(type(member), "__doc__", None)
    return "" if not isinstance(doc, str) or is_inherited else _ADDRESS.sub("", inspect.cleandoc(doc))


def _kind(member: object, kind: str) -> str:
    if inspect.isclass(member):
        return "exception" if issubclass(member, BaseException) else "class"
    is_data = inspect.isdatadescriptor(member) and not inspect.isroutine(member)
    return "property" if is_data else kind


def _signature(member: object) -> str:
    function = getattr(member, "__func__", member)  # of a static or class method
    try:
        return _shown(inspect.signature(function)) if callable(function) else ""
    except Exception:  # noqa: BLE001 - signatures are evaluated, so anything may come; it has none then
        return ""


def _shown(signature: inspect.Signature) -> str:
    """Return a signature without addresses, and with `...` for defaults that are no short value.

    Such a default may be the whole environment of this process, as that of cgi.parse is.
    """
    parameters = [
        parameter if _is_short(parameter.default) else parameter.replace(default=...)
        for parameter in signature.parameters.values()
    ]
    return _ADDRESS.sub("", str(signature.replace(parameters=parameters))).replace("=Ellipsis", "=...")


def _is_short(default: object) -> bool:
    return default is inspect.Parameter.empty or len(repr(default)) <= _LONGEST_DEFAULT


def main() -> None:
    """Write to the process's own standard output, which no import can reach."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace", newline="\n") as output:
        silence = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(silence, descriptor)
        for described in described_objects():
            output.write(json.dumps(asdict(described)) + "\n")


if __name__ == "__main__":
    main()
