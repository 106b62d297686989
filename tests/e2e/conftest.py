"""One small index and one service process for all end-to-end tests; stopping it cleanly is part of the claim."""

import json
import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, sync_playwright

from models.folder import BUNDLED_CROSS_ENCODER, BUNDLED_DUAL_ENCODER, BUNDLED_READER

from .processes import DEADLINE_SECONDS, ROOT, RunningService, running_service, system_program, tool

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
DOCUMENTS: list[dict[str, Any]] = [
    {
        "id": "lighthouse",
        "title": "Cape Wren lighthouse",
        "text": "The lighthouse at Cape Wren was built in 1871. Its first keeper was Ingrid Vale, who kept it for "
        "twenty years. The lamp was lit with whale oil until 1902.",
        "url": "https://lighthouses.example/cape-wren",
        "metadata": {"kind": "building"},
    },
    {
        "id": "probe",
        "title": "The probe 🚀",
        "text": "🚀🚀 The probe left from Kourou 👩‍🚀 on Tuesday. It carried a camera and two spectrometers.",
    },
    {
        "id": "markup",
        "title": "<b>Bold</b> & <script>document.title = 'stolen'</script>",
        "text": "The tag <img src=x onerror=\"document.title='stolen'\"> must be shown as text, never obeyed.",
    },
    {
        "id": "beavers",
        "title": "Beavers",
        "text": "Beavers build dams of branches and mud across streams. A beaver lodge has its entrance under water.",
    },
    {
        "id": "bread",
        "title": "Rye bread",
        "text": "Rye bread is baked from rye flour, water, salt and sourdough. Bake the loaf for fifty minutes.",
    },
    {
        "id": "boiler",
        "title": "Boiler manual",
        "text": "Boilers are heated by gas. To reset the boiler, hold the red button for five seconds.",
    },
]


@pytest.fixture(scope="session")
def model_settings(request: pytest.FixtureRequest) -> dict[str, str]:
    """The bundled models, which serve by default; tiny random ones for those that are not in the checkout."""
    names = {"DUAL_ENCODER": BUNDLED_DUAL_ENCODER, "CROSS_ENCODER": BUNDLED_CROSS_ENCODER, "READER": BUNDLED_READER}
    if all((ROOT / "models/bundled" / name / "model.onnx").exists() for name in names.values()):
        return {}
    tiny = request.getfixturevalue("tiny_models")
    return {name: str(getattr(tiny, name.lower())) for name in names}


@pytest.fixture(scope="session")
def service_settings(tmp_path_factory: pytest.TempPathFactory, model_settings: dict[str, str]) -> dict[str, str]:
    """Settings that serve an index of DOCUMENTS, built by the command line."""
    folder = tmp_path_factory.mktemp("index")
    source = folder / "documents.jsonl"
    source.write_text("".join(json.dumps(document, ensure_ascii=False) + "\n" for document in DOCUMENTS))
    settings = {**model_settings, "DATA_PATH": str(folder / "data")}
    environment = os.environ | {f"TERCET_{name}": value for name, value in settings.items()}
    command = [tool("tercet"), "index", str(source), "--on-error", "fail"]
    built = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=2 * DEADLINE_SECONDS)
    assert built.returncode == 0, built.stderr
    return settings


@pytest.fixture(scope="session")
def service(service_settings: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    with running_service(service_settings, folder=tmp_path_factory.mktemp("service")) as running:
        yield running
        assert running.stop() == 0, running.log_text()


# Not for the session: while Playwright runs, so does an event loop in this thread, and others start their own.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = system_program("chromium")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield started
        started.close()


@pytest.fixture(scope="session")
def bundled_models(model_settings: dict[str, str]) -> None:
    """For claims about what is found, which random models cannot support."""
    if model_settings:
        pytest.skip("the bundled models are not in this checkout")


def document_text(document_id: str) -> str:
    text: str = next(document["text"] for document in DOCUMENTS if document["id"] == document_id)
    return text
