import subprocess
import sys
from pathlib import Path

import pytest

import indexer.python_objects
from indexer.documents import Document
from indexer.python_documentation import python_documentation


@pytest.fixture(scope="module")
def documents() -> dict[str, Document]:
    return {document.document_id: document for document in python_documentation()}


def test_there_are_thousands_each_once_with_title_and_text(documents: dict[str, Document]) -> None:
    assert len(documents) > 4000
    assert len(list(python_documentation())) == len(documents)
    assert all(document.title and document.text.strip() for document in documents.values())


@pytest.mark.parametrize(
    ("document_id", "start"),
    [
        ("csv.reader", "function csv.reader"),
        ("json.JSONDecodeError", "exception json.JSONDecodeError(msg, doc, pos)"),
        ("dict.get", "method dict.get(self, key, default=None, /)"),
        ("KeyError", "exception KeyError\n\nMapping key not found."),
        ("os.path.join", "function os.path.join(a, *p)"),
        ("open", "function open(file, mode='r'"),
        ("asyncio.gather", "function asyncio.gather(*coros_or_futures"),
        ("pathlib.Path.read_text", "method pathlib.Path.read_text(self"),
        ("csv", "module csv\n\nCSV"),
    ],
)
def test_names_are_the_public_ones_and_signatures_are_in_the_text(
    documents: dict[str, Document], document_id: str, start: str
) -> None:
    assert documents[document_id].title == document_id
    assert documents[document_id].text.startswith(start)


def test_topics_are_titled_by_their_heading(documents: dict[str, Document]) -> None:
    assert documents["topic:yield"].title == "The yield statement"
    assert documents["topic:yield"].metadata["kind"] == "topic"


def test_nothing_depends_on_where_objects_lie_in_memory(documents: dict[str, Document]) -> None:
    assert not any(" at 0x" in document.text for document in documents.values())
    assert {document.document_id: document for document in python_documentation()} == documents


def test_tests_games_and_private_modules_are_left_out(documents: dict[str, Document]) -> None:
    roots = {document_id.split(".")[0] for document_id in documents}
    assert not roots & {"antigravity", "this", "idlelib", "test", "turtledemo", "distutils", "lib2to3"}
    assert not any(root.startswith("_") for root in roots)


def test_reading_changes_nothing_in_this_process_and_prints_nothing(tmp_path: Path) -> None:
    program = (
        "import sys; from indexer.python_documentation import python_documentation; before = set(sys.modules)\n"
        "n = sum(1 for _ in python_documentation()); print(n > 4000, sorted(set(sys.modules) - before))"
    )
    root = Path(indexer.python_objects.__file__).parents[1]
    command = [sys.executable, "-W", "error", "-c", f"import sys; sys.path.insert(0, {str(root)!r})\n{program}"]
    finished = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)
    assert finished.stdout.startswith("True [")
    assert "tkinter" not in finished.stdout
    assert "asyncore" not in finished.stdout
    assert finished.stderr == ""
    assert list(tmp_path.iterdir()) == []


def test_the_environment_of_the_reading_process_is_not_in_a_signature(documents: dict[str, Document]) -> None:
    assert documents["cgi.parse"].text.startswith("function cgi.parse(fp=None, environ=..., ")
    assert not any("PYTHONHASHSEED': " in document.text for document in documents.values())
