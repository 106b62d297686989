"""One small index and one application over it, with tiny random models: for claims about shape, order and offsets.

What random models cannot support (which passage is best, which span is right) is claimed in test_cases.py, with the
bundled models.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI
from fastapi.testclient import TestClient

from indexer.build import build_snapshot
from indexer.documents import Document
from indexer.recipe import IndexModels
from models.folder import open_model_folder, write_settings
from service.app import Outcome, create_app
from service.engine import load_models
from service.server import bind, http_config
from service.settings import Settings
from tests.conftest import TinyModels as TinyModels

DOCUMENTS = [
    Document("alpha/1", "alpha", title="One"),
    Document("alpha/2", "alpha", title="One"),
    Document("beta", "beta is the answer", title="Which"),
    Document("café", "Ana keeps bees in Porto. The café sells honey 🐝🐝 and bread.", url="https://bees.example/ana"),
    Document("turku", "Ben keeps bees in Turku", metadata={"year": 1999, "is_cold": True}),
    Document("space", "🚀🚀 The probe left from Kourou 👩‍🚀 on Tuesday."),
    Document("fog", "fog over the harbour\r\n\r\nferry times and ticket prices\r\n"),
    Document("long", "the probe kept bees and the answer was honey over the harbour. " * 40, title="Long"),
]


def tiny_settings(models: TinyModels, data_path: Path, **changes: Any) -> Settings:
    return Settings(
        data_path=data_path,
        dual_encoder=str(models.dual_encoder),
        cross_encoder=str(models.cross_encoder),
        reader=str(models.reader),
        n_threads=1,
        **changes,
    )


@pytest.fixture(scope="session")
def settings(tiny_models: TinyModels, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Settings that serve an index of DOCUMENTS."""
    settings = tiny_settings(tiny_models, tmp_path_factory.mktemp("data"), drain_seconds=0)
    build_index(DOCUMENTS, settings)
    return settings


def build_index(documents: list[Document], settings: Settings) -> None:
    """Build the index that the settings serve."""
    models = load_models(settings)
    cross_encoder = models.cross_encoder
    build_snapshot(
        documents,
        index_path=settings.data_path / settings.index,
        models=IndexModels(models.dual_encoder, cross_encoder.tokenizer, cross_encoder.tokenizer_fingerprint),
    )


def started(settings: Settings, change: Callable[[FastAPI], None] = lambda app: None) -> Iterator[TestClient]:
    """Yield a client of an application that is ready."""
    ready = threading.Event()
    outcome = Outcome(lambda _: ready.set())
    app = create_app(settings, outcome)
    change(app)
    with TestClient(app, base_url="http://localhost:8000", raise_server_exceptions=False) as client:
        assert ready.wait(60)
        assert outcome.failure is None, outcome.failure
        yield client


@dataclass(frozen=True)
class Served:
    url: str
    app: FastAPI


@contextmanager
def serving(settings: Settings) -> Iterator[Served]:
    """Serve an application on a free port, in a thread of its own; give it when it is ready."""
    ready = threading.Event()
    outcome = Outcome(lambda _: ready.set())
    app = create_app(settings, outcome)
    listening = bind("127.0.0.1", 0)
    server = uvicorn.Server(http_config(app, settings))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        assert ready.wait(60)
        assert outcome.failure is None, outcome.failure
        yield Served(f"http://127.0.0.1:{listening.getsockname()[1]}", app)
    finally:
        server.should_exit = True
        thread.join(60)
        listening.close()


@pytest.fixture(scope="session")
def client(settings: Settings) -> Iterator[TestClient]:
    yield from started(settings)


def whole_text(document_id: str) -> str:
    return next(document.text for document in DOCUMENTS if document.document_id == document_id)


@pytest.fixture
def other_encoder(tiny_models: TinyModels, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A dual encoder with the same weights under another name, and so another fingerprint."""
    path = tmp_path_factory.mktemp("other")
    original = tiny_models.dual_encoder
    for file in original.iterdir():
        (path / file.name).write_bytes(file.read_bytes())
    folder = open_model_folder(str(path), "dual-encoder")
    write_settings(path, folder.settings.model_copy(update={"name": "other"}))
    return str(path)
