"""docs/api.md: its examples run as they stand and give what stands below them, and its tables are those of the API."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from service.app import create_app
from service.schemas import SKIPPED
from service.settings import Settings

from .processes import ROOT, RunningService, system_program

PAGE = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```sh\n(.*?)^```\n\n```json\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
SECTION = dict(re.findall(r"^## (.+?)$(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
# What an answer takes as a search does.
ALIKE = {
    "query",
    "mode",
    "retrieve_k",
    "rerank",
    "rerank_k",
    "rerank_tokens",
    "settle_k",
    "filter",
    "index",
    "timeout_ms",
}


def values(text: str) -> Iterator[Any]:
    """The JSON values that stand one behind the other."""
    text = text.lstrip()
    while text:
        value, end = json.JSONDecoder().raw_decode(text)
        yield value
        text = text[end:].lstrip()


def differences(excerpt: Any, whole: Any, place: str = "#") -> Iterator[str]:
    """Where a response is not what an excerpt shows: a fraction stands for any number, a list for how one begins."""
    if isinstance(excerpt, dict) and isinstance(whole, dict):
        for name, value in excerpt.items():
            yield from differences(value, whole.get(name, ...), f"{place}/{name}")
    elif isinstance(excerpt, list) and isinstance(whole, list) and len(excerpt) <= len(whole):
        for i, value in enumerate(excerpt):
            yield from differences(value, whole[i], f"{place}/{i}")
    elif type(excerpt) is not type(whole) or (excerpt != whole and not isinstance(excerpt, float)):
        yield f"{place}: {excerpt!r} on the page, {whole!r} in the response"


@pytest.mark.usefixtures("bundled_models")
@pytest.mark.parametrize(("command", "shown"), EXAMPLES, ids=lambda text: text.split("\n")[0][:60])
def test_an_example_gives_what_stands_below_it(service: RunningService, command: str, shown: str) -> None:
    system_program("curl")
    script = command.replace("127.0.0.1:8000", service.url).replace(
        "curl ", "curl --silent --show-error --noproxy '*' "
    )
    done = subprocess.run(["bash", "-euc", script], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    excerpts, responses = list(values(shown)), list(values(done.stdout))
    assert len(excerpts) == len(responses)
    found = [each for pair in zip(excerpts, responses, strict=True) for each in differences(*pair)]
    assert found == []


def test_every_command_of_the_page_is_an_example() -> None:
    assert len(EXAMPLES) == PAGE.count("```sh") == 6
    assert len(re.findall(r"^curl ", PAGE, flags=re.MULTILINE)) == 7


def test_the_comparison_sees_what_it_looks_for() -> None:
    whole = {"a": [1, {"b": "c"}], "d": 0.5, "e": None}
    assert list(differences({"a": [1], "d": 0.9}, whole)) == []
    wrong = [
        {"a": [2]}, {"a": [1, {"b": "d"}]}, {"a": [1, {}, 3]}, {"d": 1}, {"d": None}, {"e": 1.0}, {"f": None}
    ]  # fmt: skip
    for excerpt in wrong:
        assert len(list(differences(excerpt, whole))) == 1


def rows(text: str) -> dict[str, list[str]]:
    """The rows of the tables in a text, by the name that stands in the first cell."""
    found = re.findall(r"^\| `([\w:]+)` \|(.*)\|$", text, flags=re.MULTILINE)
    return {name: [cell.strip() for cell in rest.split("|")] for name, rest in found}


def bounds(schema: dict[str, Any]) -> str:
    [schema, *_] = [each for each in schema.get("anyOf", [schema]) if each.get("type") != "null"]
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "maximum" in schema:
        return f"{schema['minimum']:g} to {schema['maximum']:.0f}"
    if "maxLength" in schema:
        least = f"{schema['minLength']} to" if "minLength" in schema else "at most"
        return f"{least} {schema['maxLength']} characters"
    return f"at most {schema['maxItems']}" if "maxItems" in schema else ""


@pytest.mark.parametrize(
    ("section", "name", "elsewhere"), [("Search", "SearchRequest", set()), ("Answer", "AnswerRequest", ALIKE)]
)
def test_the_table_of_a_body_has_every_field_with_its_default_and_bounds(
    section: str, name: str, elsewhere: set[str]
) -> None:
    properties = create_app(Settings()).openapi()["components"]["schemas"][name]["properties"]
    table = {field: cells for field, cells in rows(SECTION[section]).items() if len(cells) == 3}
    assert set(table) == set(properties) - elsewhere
    for field, (default, bound, _) in table.items():
        schema = properties[field]
        required = field == "query"
        assert default == ("" if required else f"`{json.dumps(schema.get('default'))}`"), field
        assert bound.startswith(bounds(schema)), field
        assert bool(bound) == bool(bounds(schema)), field
    assert {field for field in elsewhere if f"`{field}`" not in SECTION[section]} == set()


def test_everything_that_can_be_skipped_and_every_reason_is_explained() -> None:
    schemas = create_app(Settings()).openapi()["components"]["schemas"]
    skipped = set(re.findall(r"`(\w+:\w+)`", SKIPPED)) - {"stage:reason"}
    assert skipped == {name for name in rows(SECTION["Time and load"]) if ":" in name}
    [reasons, _] = schemas["NoAnswerBody"]["properties"]["reason"]["anyOf"]
    assert set(reasons["enum"]) <= set(rows(SECTION["Answer"]))
    [kinds] = [schemas["ResultBody"]["properties"]["score_kind"]["enum"]]
    assert set(kinds) <= set(rows(SECTION["Search"]))


def test_every_route_is_listed_and_links_lead_somewhere() -> None:
    paths = create_app(Settings()).openapi()["paths"]
    listed = {re.sub(r"\{\w+\}", "{}", path) for path in re.findall(r"(/[\w/{}]+)`", PAGE)}
    assert {re.sub(r"\{\w+\}", "{}", path) for path in paths} <= listed
    for target in re.findall(r"\]\(([^)#]+)(?:#[\w-]+)?\)", PAGE):
        assert os.path.exists(ROOT / "docs" / target), target
