"""No text of a request names a file to the service: what it opens meanwhile is watched by an audit hook (PEP 578)."""

import os
import re
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient

from service.settings import Settings

from .conftest import started

SECRET = "zanzibarquux"
BASES: dict[str, dict[str, Any]] = {
    "/v1/search": {"query": "honey"},
    "/v1/answer": {"query": "honey"},
    "/v1/jobs": {"source": "nothing"},
}
OUR_CODE = Path(__file__).parents[2]
INSTALLED = tuple(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib"))


@dataclass
class Watch:
    """Notes the paths that this process touches while it is on; a hook stays for the life of a process."""

    is_on: bool = False
    touched: list[str] = field(default_factory=list)

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.is_on and (event in ("open", "sqlite3.connect") or event.startswith(("os.", "shutil."))):
            self.touched += [os.fsdecode(each) for each in arguments if isinstance(each, (str, bytes, os.PathLike))]

    @contextmanager
    def on(self) -> Iterator[None]:
        self.is_on = True
        yield
        self.is_on = False


@pytest.fixture(scope="module")
def watch() -> Watch:
    watch = Watch()
    sys.addaudithook(watch)
    return watch


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("outside")
    (folder / "secret.txt").write_text(SECRET)
    (folder / "root").mkdir()
    return folder


@pytest.fixture(scope="module")
def jobs_client(settings: Settings, outside: Path) -> Iterator[TestClient]:
    yield from started(settings.model_copy(update={"jobs_path": outside / "root"}))


def hostile(outside: Path) -> list[str]:
    secret = outside / "secret.txt"
    return [
        str(secret), f"/{secret}", f"file://{secret}", f"~{secret}", f"{secret}\0.txt", f"....//....//{secret}",
        "../secret.txt", "root/../../secret.txt", "..\\secret.txt", "..%2fsecret.txt", "/proc/self/environ",
        "..", "/", "",
    ]  # fmt: skip


def requests(description: dict[str, Any], texts: list[str]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield every operation with every text in each place in turn: in the path, raw and quoted, the query, the body."""
    for path, operations in description["paths"].items():
        for method, operation in operations.items():
            for text in texts:
                for parameter in operation.get("parameters", []):
                    name = parameter["name"]
                    if parameter["in"] == "path":
                        for quoted in (quote(text, safe=""), quote(text, safe="/.")):
                            yield method, path.replace(f"{{{name}}}", quoted), {}
                    else:
                        yield method, f"{path}?{name}={quote(text, safe='')}&file_name=a.txt", {"content": b"a"}
                for name in fields(description, operation):
                    yield method, path, {"json": BASES.get(path, {}) | {name: text}}


def fields(description: dict[str, Any], operation: dict[str, Any]) -> list[str]:
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    reference = content.get("schema", {}).get("$ref", "")
    schema = description["components"]["schemas"].get(reference.rpartition("/")[2], {})
    return list(schema.get("properties", {}))


JOB_CLOCK = re.compile(r"/proc/?(\d+/stat)?")  # what tells a job's processor time


def test_the_hook_sees_what_is_opened(watch: Watch, outside: Path) -> None:
    with watch.on():
        (outside / "secret.txt").read_text()
        os.listdir(outside)
    assert {str(outside / "secret.txt"), str(outside)} <= set(watch.touched)
    watch.touched.clear()


def test_what_a_request_says_is_never_opened(
    watch: Watch, jobs_client: TestClient, settings: Settings, outside: Path
) -> None:
    description = jobs_client.get("/openapi.json").json()
    sent = 0
    for method, url, arguments in requests(description, hostile(outside)):
        headers = {"content-type": "application/octet-stream"} if "content" in arguments else {}
        with watch.on():
            response = jobs_client.request(method, url, headers=headers, **arguments)
        sent += 1
        assert response.status_code < 500, (method, url, response.text)
        assert SECRET not in response.text, (method, url)
    assert sent > 300
    allowed = (settings.data_path.resolve(), OUR_CODE, *INSTALLED)
    touched = {Path(os.path.abspath(path)) for path in watch.touched if not JOB_CLOCK.fullmatch(str(path))}
    assert {path for path in touched if not any(path.is_relative_to(each) for each in allowed)} == set()
