"""The house rules that a machine can check, read from the source by `ast`."""

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LAYERS = ("models", "indexer", "service")
CLIENT = "tercet_client"  # a distribution of its own: it and the layers know nothing of each other
VAGUE_NAMES = {"base", "common", "core", "helper", "helpers", "manager", "misc", "shared", "types", "util", "utils"}
ENVIRONMENT = {"environ", "environb", "getenv", "getenvb"}
READS_SETTINGS = ROOT / "service" / "settings.py"
MAX_FILE_LINES = 300
MAX_FUNCTION_LINES = 35
MAX_PARAMETERS = 5

FOLDERS = (*LAYERS, f"client/src/{CLIENT}")
MODULES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
by_module = pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))

Function = ast.FunctionDef | ast.AsyncFunctionDef


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def layer_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0]


def imported_modules(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or "")


def functions(module: ast.Module) -> Iterator[Function]:
    return (node for node in ast.walk(module) if isinstance(node, Function))


def lines_without_docstring(function: Function) -> int:
    has_docstring = ast.get_docstring(function, clean=False) is not None
    body = function.body[1:] if has_docstring else function.body
    head = function.body[0].lineno - function.lineno
    return head + (function.end_lineno or 0) - body[0].lineno + 1 if body else head


def declares_a_command(function: Function) -> bool:
    """The parameters of a Typer command are the options that a user can type, not an interface in the code."""
    return any(
        isinstance(node, ast.Attribute) and node.attr in ("command", "callback")
        for decorator in function.decorator_list
        for node in ast.walk(decorator)
    )


def reads_environment(module: ast.Module) -> bool:
    return any(
        (isinstance(node, ast.Attribute) and node.attr in ENVIRONMENT)
        or (isinstance(node, ast.ImportFrom) and node.module == "os" and ENVIRONMENT & {a.name for a in node.names})
        for node in ast.walk(module)
    )


@by_module
def test_imports_point_left_only(path: Path) -> None:
    layer = layer_of(path)
    right = LAYERS if layer == "client" else (*LAYERS[LAYERS.index(layer) + 1 :], CLIENT)
    wrong = [name for name in imported_modules(tree(path)) if name.split(".")[0] in right or name.startswith(".")]
    assert wrong == []


@by_module
def test_only_settings_reads_the_environment(path: Path) -> None:
    assert reads_environment(tree(path)) == (path == READS_SETTINGS)


@by_module
def test_modules_have_names_that_say_something(path: Path) -> None:
    assert VAGUE_NAMES.isdisjoint(path.relative_to(ROOT).with_suffix("").parts)


@by_module
def test_files_and_functions_stay_short(path: Path) -> None:
    long = [
        f"{function.name}: {lines_without_docstring(function)} lines"
        for function in functions(tree(path))
        if lines_without_docstring(function) > MAX_FUNCTION_LINES and not declares_a_command(function)
    ]
    assert long == []
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MAX_FILE_LINES


@by_module
def test_functions_take_few_parameters(path: Path) -> None:
    many = []
    for function in functions(tree(path)):
        arguments = [a.arg for a in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
        counted = [name for name in arguments if name not in ("self", "cls")]
        if len(counted) > MAX_PARAMETERS and not declares_a_command(function):
            many.append(f"{function.name}: {len(counted)} parameters")
    assert many == []


@by_module
def test_every_exported_name_exists(path: Path) -> None:
    exported = [
        ast.literal_eval(node.value)
        for node in tree(path).body
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets)
    ]
    if exported:
        parts = path.relative_to(ROOT / "client/src" if layer_of(path) == "client" else ROOT).with_suffix("").parts
        name = ".".join(parts).removesuffix(".__init__")
        module = importlib.import_module(name)
        assert [each for each in exported[0] if not hasattr(module, each)] == []


def test_the_checks_see_what_they_look_for() -> None:
    wrong = ast.parse("import os\nfrom service.app import create_app\ndef f():\n    return os.environ['A']\n")
    assert "service.app" in imported_modules(wrong)
    assert reads_environment(wrong)
    assert [lines_without_docstring(function) for function in functions(wrong)] == [2]
