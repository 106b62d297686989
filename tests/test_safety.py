"""What no product code does, read from the source by `ast`: run what is data, ask a shell, or unpack what comes.

ruff's S rules are on as well. bandit 1.9 finds nothing beyond both: its 37 remarks are `assert`, the random numbers of
training, and places that ruff has been told of.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from .test_layering import MODULES, ROOT, imported_modules, tree

UNPICKLERS = {"cPickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "jsonpickle"}
PICKLE_ERRORS = {"PickleError", "UnpicklingError"}  # which torch raises
RUNNERS = {"eval", "exec", "compile", "__import__"}
SHELLS = {"system", "popen", "getoutput", "getstatusoutput", "create_subprocess_shell"}
UNSAFE_YAML = {"unsafe_load", "full_load", "unsafe_load_all", "full_load_all", "load_all"}
UNPACKERS = {"extract", "extractall", "unpack_archive"}
UNPACKS = ROOT / "indexer" / "archives.py"


def name_of(node: ast.expr) -> str:
    """The last part of a dotted name."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def owner_of(node: ast.expr) -> str:
    """What stands before the last dot."""
    return name_of(node.value) if isinstance(node, ast.Attribute) else ""


def is_constant(call: ast.Call, keyword: str, value: object) -> bool:
    found = [each.value for each in call.keywords if each.arg == keyword]
    return len(found) == 1 and isinstance(found[0], ast.Constant) and found[0].value is value


def safe_loaders(module: ast.Module) -> set[str]:
    """Classes of a module that are yaml's safe loader and more."""
    classes = (node for node in ast.walk(module) if isinstance(node, ast.ClassDef))
    return {each.name for each in classes if "SafeLoader" in {name_of(base) for base in each.bases}} | {"SafeLoader"}


def imports(module: ast.Module) -> set[str]:
    """The first parts of all modules that are imported."""
    return {name.split(".")[0] for name in imported_modules(module)}


def unpickling(module: ast.Module) -> Iterator[str]:
    yield from (f"imports {name}" for name in imports(module) & UNPICKLERS)
    for node in ast.walk(module):
        if isinstance(node, ast.Attribute) and owner_of(node) == "pickle" and node.attr not in PICKLE_ERRORS:
            yield f"pickle.{node.attr}"
        if isinstance(node, ast.ImportFrom) and node.module == "pickle":
            yield from (f"pickle.{alias.name}" for alias in node.names if alias.name not in PICKLE_ERRORS)


def dangerous_call(call: ast.Call, loaders: set[str]) -> str | None:
    name, owner = name_of(call.func), owner_of(call.func)
    keywords = {each.arg for each in call.keywords}
    loader = name_of(call.args[1]) if len(call.args) > 1 else ""
    wrong = {
        "runs text": isinstance(call.func, ast.Name) and name in RUNNERS,
        "asks a shell": name in SHELLS or ("shell" in keywords and not is_constant(call, "shell", False)),
        "runs a model's code": "trust_remote_code" in keywords and not is_constant(call, "trust_remote_code", False),
        "unpickles": (
            (owner == "torch" and name == "load" and not is_constant(call, "weights_only", True))
            or ("allow_pickle" in keywords and not is_constant(call, "allow_pickle", False))
            or name == "read_pickle"
        ),
        "may ask a hub": name == "from_pretrained" and not is_constant(call, "local_files_only", True),
        "makes objects of YAML": owner == "yaml"
        and (name in UNSAFE_YAML or (name == "load" and loader not in loaders)),
        "unpacks": name in UNPACKERS,
    }
    return next((what for what, is_so in wrong.items() if is_so), None)


def faults(module: ast.Module) -> list[str]:
    loaders = safe_loaders(module)
    calls = (node for node in ast.walk(module) if isinstance(node, ast.Call))
    told = ((dangerous_call(call, loaders), call.lineno) for call in calls)
    return [*unpickling(module), *(f"line {line} {what}" for what, line in told if what is not None)]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_product_code_runs_no_data_and_asks_no_shell(path: Path) -> None:
    assert faults(tree(path)) == []


def test_archives_are_unpacked_in_one_place_by_their_manifest_s_names() -> None:
    """That place writes only what the manifest names, below one folder; tests/indexer/test_archives.py holds that."""
    assert [path for path in MODULES if "tarfile" in imports(tree(path))] == [UNPACKS]
    assert [path.name for path in MODULES if "zipfile" in imports(tree(path))] == ["office.py"]


@pytest.mark.parametrize(
    "source",
    [
        "import dill", "from pickle import loads", "import pickle\npickle.load(f)", "from joblib import load",
        "eval(x)", "exec(x)", "compile(x, '', 'exec')", "__import__(x)", "os.system(x)",
        "subprocess.run(x, shell=True)", "subprocess.run(x, shell=y)", "asyncio.create_subprocess_shell(x)",
        "f(trust_remote_code=True)", "torch.load(x)", "torch.load(x, weights_only=False)", "pd.read_pickle(x)",
        "np.load(x, allow_pickle=True)", "yaml.load(x)", "yaml.load(x, yaml.Loader)", "yaml.full_load(x)",
        "tar.extractall(x)", "shutil.unpack_archive(x)", "AutoModel.from_pretrained(x)",
    ],
)  # fmt: skip
def test_the_checks_see_what_they_look_for(source: str) -> None:
    assert faults(ast.parse(source))


@pytest.mark.parametrize(
    "source",
    [
        "import pickle\nfaults = pickle.UnpicklingError", "from pickle import UnpicklingError", "model.eval()",
        "re.compile(x)", "torch.load(x, weights_only=True)", "class A(yaml.SafeLoader): pass\nyaml.load(x, A)",
        "np.load(x)", "AutoModel.from_pretrained(x, local_files_only=True)",
    ],
)  # fmt: skip
def test_and_let_the_rest_be(source: str) -> None:
    assert faults(ast.parse(source)) == []
