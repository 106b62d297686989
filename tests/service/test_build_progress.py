"""Progress for a program: one JSON object a line, the beginning and the end of each stage always told."""

import json
import re
from pathlib import Path

import pytest
import typer
import yaml

from indexer.recipe import BuildProgress
from service.cli import app
from service.commands.build_progress import SECONDS_BETWEEN_JSON_LINES, JsonLines
from service.settings import check_known
from tests.service.commands import tercet_with
from tests.service.conftest import TinyModels

DOCS = Path(__file__).parents[2] / "docs" / "jobs.md"


def told(news: list[tuple[float, BuildProgress]]) -> list[dict[str, object]]:
    written: list[str] = []
    now = [0.0]
    lines = JsonLines(written.append, clock=lambda: now[0])
    for now[0], progress in news:
        lines.update(progress)
    lines.finish()
    return [json.loads(line) for line in written]


def test_the_first_and_the_last_news_of_a_stage_are_told() -> None:
    """Nothing between them is, since the clock stands still."""
    stages = [BuildProgress("read", n, None) for n in (1, 2, 3)] + [BuildProgress("embed", n, 9) for n in (4, 9)]
    assert told([(0.0, each) for each in stages]) == [
        {"stage": "read", "done": 1, "total": None},
        {"stage": "read", "done": 3, "total": None},
        {"stage": "embed", "done": 4, "total": 9},
        {"stage": "embed", "done": 9, "total": 9},
    ]


@pytest.mark.parametrize(("seconds", "n_lines"), [(0.0, 2), (SECONDS_BETWEEN_JSON_LINES, 100)])
def test_lines_come_no_faster_than_they_can_be_read(seconds: float, n_lines: int) -> None:
    assert len(told([(n * seconds, BuildProgress("read", n, None)) for n in range(100)])) == n_lines


def test_index_tells_a_program_how_far_it_is(tiny_models: TinyModels, tmp_path: Path) -> None:
    source = tmp_path / "documents.jsonl"
    source.write_text('{"id": "fog", "text": "Fog over the harbour."}\n')
    done = tercet_with(tiny_models, tmp_path / "data")("index", "--once", "--progress", "json", "--json", source)
    assert done.code == 0, done.stderr
    stages = [json.loads(line)["stage"] for line in done.stderr.splitlines() if line.startswith("{")]
    assert list(dict.fromkeys(stages)) == ["read", "chunk", "embed", "publish"]
    assert done.result["n_documents"] == 1


def test_the_command_of_the_documented_cron_job_is_one_that_tercet_takes() -> None:
    [block] = re.findall(r"```yaml\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    pod = yaml.safe_load(block)["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    check_known({variable["name"]: variable["value"] for variable in container["env"]})
    program, *arguments = container["command"]
    assert program == "tercet"
    command = typer.main.get_group(app).commands[arguments[0]]
    assert command.make_context(arguments[0], arguments[1:]).params["once"] is True
