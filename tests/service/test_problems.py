"""One table of problems: documented completely, constant per type, and silent about causes."""

from pathlib import Path

import pytest
from starlette.exceptions import HTTPException

from service import problems
from service.problem_handlers import as_problem
from service.problems import InternalError, Overloaded, Problem, json_pointer

DOCS = Path(__file__).parents[2] / "docs" / "problems.md"
KINDS = [kind for kind in vars(problems).values() if isinstance(kind, type) and issubclass(kind, Problem)]


def test_docs_list_every_problem_with_status_and_title() -> None:
    rows = [line.split(" | ")[:3] for line in DOCS.read_text(encoding="utf-8").splitlines() if "`/problems/" in line]
    documented = {tuple(cell.strip("| ") for cell in row) for row in rows if len(row) == 3}
    assert documented == {(f"`{kind.type}`", str(kind.status), kind.title) for kind in KINDS if kind is not Problem}


def test_a_type_stands_for_one_problem() -> None:
    types = [kind.type for kind in KINDS if kind is not Problem]
    assert len(set(types)) == len(types)


@pytest.mark.parametrize(
    ("path", "pointer"),
    [
        ((), "#"),
        (("passages", 3, "text"), "#/passages/3/text"),
        (("a/b", "c~d"), "#/a~1b/c~0d"),
        (("é ",), "#/%C3%A9%20"),
    ],
)
def test_json_pointers_are_escaped(path: tuple[str | int, ...], pointer: str) -> None:
    assert json_pointer(path) == pointer


def test_an_unexpected_exception_becomes_a_500_without_its_message() -> None:
    problem = as_problem(RuntimeError("secret"))
    assert isinstance(problem, InternalError)
    assert problem.document("id") == {
        "type": "/problems/internal-error",
        "title": "Internal server error",
        "status": 500,
        "request_id": "id",
    }


def test_the_framework_s_404_and_405_have_their_types() -> None:
    assert as_problem(HTTPException(404)).type == "/problems/unknown-route"
    assert as_problem(HTTPException(405)).type == "/problems/method-not-allowed"


def test_an_overload_says_when_to_come_back() -> None:
    assert Overloaded("full", retry_after_seconds=7).headers == {"Retry-After": "7"}
