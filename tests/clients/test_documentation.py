"""What docs/clients.md shows is run as it stands, at the address of a real service."""

import gc
import json
import re
import shlex

import httpx
import huggingface_hub
import pytest

from tests.e2e.processes import ROOT, RunningService

TEXT = (ROOT / "docs" / "clients.md").read_text(encoding="utf-8")
ADDRESS = "127.0.0.1:8000"
COMMANDS = re.findall(r"^    (curl .+)$", TEXT, re.MULTILINE)
SNIPPETS = re.findall(r"^```python\n(.+?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def test_there_is_something_to_run() -> None:
    assert len(COMMANDS) >= 5
    assert len(SNIPPETS) >= 6


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_answered(service: RunningService, command: str) -> None:
    curl, url, json_option, body = shlex.split(command)
    assert (curl, json_option) == ("curl", "--json")
    response = httpx.post(url.replace(ADDRESS, service.url), json=json.loads(body), timeout=60)
    assert response.status_code == 200, response.text


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")  # LangChain's client has nothing to close
@pytest.mark.parametrize("snippet", SNIPPETS, ids=lambda snippet: snippet.split()[1])
@pytest.mark.usefixtures("bundled_models")
def test_a_snippet_runs(service: RunningService, capsys: pytest.CaptureFixture[str], snippet: str) -> None:
    exec(snippet.replace(f"http://{ADDRESS}", service.url), {})
    huggingface_hub.close_session()
    gc.collect()
    shown = capsys.readouterr().out
    assert shown
    if "document" in snippet:
        assert shown.startswith("Lima is the capital of Peru.")
