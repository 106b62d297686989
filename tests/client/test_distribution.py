"""What is installed: the wheel holds the client alone, wants httpx alone, and is imported where there is no Tercet."""

import json
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

CLIENT = Path(__file__).parents[2] / "client"

# Without site no .pth is read, so that nothing which is installed for editing can be imported.
IMPORT = """
import json, sys
sys.path[:0] = [sys.argv[1], sys.argv[2]]
import tercet_client
found = [name for name in ("models", "indexer", "service", "fastapi", "numpy") if name in sys.modules]
try:
    import service
    found.append("service")
except ImportError:
    pass
print(json.dumps([tercet_client.__file__, found]))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("client")
    source = shutil.copytree(CLIENT, folder / "client", ignore=shutil.ignore_patterns("*.egg-info", "build"))
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run([*command, "--wheel-dir", folder, source], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    [built] = folder.glob("*.whl")
    return built


def test_the_wheel_holds_the_client_alone_with_its_types(wheel: Path) -> None:
    assert wheel.name == "tercet_client-0.1.0-py3-none-any.whl"
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"tercet_client", "tercet_client-0.1.0.dist-info"}
    modules = {path.name for path in (CLIENT / "src" / "tercet_client").iterdir() if path.is_file()}
    assert {name.split("/")[1] for name in names if name.startswith("tercet_client/")} == modules
    assert "py.typed" in modules


def test_it_wants_httpx_alone_and_an_older_python_than_the_service(wheel: Path) -> None:
    metadata = Parser().parsestr(zipfile.ZipFile(wheel).read("tercet_client-0.1.0.dist-info/METADATA").decode())
    assert [need.split(">")[0].split("<")[0] for need in metadata.get_all("Requires-Dist", [])] == ["httpx"]
    assert (metadata["Name"], metadata["Requires-Python"]) == ("tercet-client", ">=3.10")


def test_it_is_imported_where_there_is_no_tercet(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    packages = sysconfig.get_path("purelib")
    command = [sys.executable, "-I", "-S", "-c", IMPORT, str(tmp_path), packages]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    place, found = json.loads(done.stdout)
    assert Path(place).is_relative_to(tmp_path)
    assert found == []
