"""Publishing while clients ask: no request fails, each is answered from one snapshot, and the old ones go."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from indexer.build import build_snapshot
from indexer.documents import Document
from service.commands.index import index_models
from service.settings import Settings

from ..conftest import TinyModels
from .processes import RunningService, running_service, wait_until

N_CLIENTS = 8
N_PUBLISHES = 20


class Index:
    """An index whose documents all name the generation that they belong to."""

    def __init__(self, models: TinyModels, data_path: Path) -> None:
        self.settings = {
            "DATA_PATH": str(data_path),
            "DUAL_ENCODER": str(models.dual_encoder),
            "CROSS_ENCODER": str(models.cross_encoder),
            "READER": str(models.reader),
            "SNAPSHOT_POLL_SECONDS": "0.05",
        }
        self.path = data_path / "default"
        self._models = index_models(
            Settings.model_validate({name.lower(): value for name, value in self.settings.items()})
        )
        self.generation_of: dict[str, int] = {}

    def publish(self, generation: int) -> str:
        documents = [Document(f"d{i}", f"the harbour of generation {generation}") for i in range(30)]
        snapshot_id = build_snapshot(documents, index_path=self.path, models=self._models).snapshot_id
        self.generation_of[snapshot_id] = generation
        return snapshot_id


@pytest.fixture
def index(tiny_models: TinyModels, tmp_path: Path) -> Index:
    index = Index(tiny_models, tmp_path / "data")
    index.publish(0)
    return index


@pytest.fixture
def serving(index: Index, tmp_path: Path) -> Iterator[RunningService]:
    with running_service(index.settings, folder=tmp_path) as service:
        yield service
        assert service.stop() == 0, service.log_text()


def served(service: RunningService) -> str:
    snapshot: str = service.get("/v1/indexes").json()["indexes"][0]["snapshot"]
    return snapshot


def mapped_snapshots(service: RunningService) -> set[str]:
    """Return the snapshots of which the process has files mapped."""
    lines = Path(f"/proc/{service.process.pid}/maps").read_text().splitlines()
    return {line.split("/snapshots/")[1].split("/")[0] for line in lines if "/snapshots/" in line}


def test_clients_see_no_error_through_twenty_publishes(index: Index, serving: RunningService) -> None:
    answers: list[tuple[int, dict[str, Any]]] = []
    is_over = threading.Event()

    def ask() -> None:
        with httpx.Client(base_url=serving.url, timeout=60) as client:
            while not is_over.is_set():
                response = client.post("/v1/search", json={"query": "harbour", "top_k": 5, "rerank_k": 5})
                answers.append((response.status_code, response.json()))

    clients = [threading.Thread(target=ask) for _ in range(N_CLIENTS)]
    for client in clients:
        client.start()
    for generation in range(1, N_PUBLISHES + 1):
        snapshot_id = index.publish(generation)
        wait_until(lambda: served(serving) == snapshot_id, f"generation {generation} is served")  # noqa: B023
    is_over.set()
    for client in clients:
        client.join()
    assert {status for status, _ in answers} == {200}
    for _, body in answers:
        texts = {result["text"] for result in body["results"]}
        assert texts == {f"the harbour of generation {index.generation_of[body['snapshot']]}"}
    assert len({body["snapshot"] for _, body in answers}) > N_PUBLISHES / 2
    last = served(serving)
    wait_until(lambda: mapped_snapshots(serving) <= {last}, "the files of old snapshots are let go")
    assert len(list((index.path / "snapshots").iterdir())) <= 3
    assert 'tercet_snapshot_swaps_total{outcome="swapped"} 20.0' in serving.get("/metrics").text


def test_a_damaged_snapshot_is_refused_and_the_one_before_goes_on(index: Index, serving: RunningService) -> None:
    before = served(serving)
    publishing = index.publish(1)
    wait_until(lambda: served(serving) == publishing, "the good one is served")
    damaged = index.path / "snapshots" / index.publish(2)
    wait_until(lambda: served(serving) == damaged.name, "the second is served")
    (index.path / "current").unlink()
    (index.path / "current").symlink_to(f"snapshots/{publishing}")
    wait_until(lambda: served(serving) == publishing, "an older one that was made current is served")
    (damaged / "tokens.bin").unlink()
    (index.path / "next").symlink_to(f"snapshots/{damaged.name}")
    (index.path / "next").replace(index.path / "current")
    wait_until(
        lambda: 'tercet_snapshot_swaps_total{outcome="refused"} 1.0' in serving.get("/metrics").text, "it is refused"
    )
    assert served(serving) == publishing != before
    assert serving.post("/v1/search", query="harbour").status_code == 200
    [line] = [line for line in serving.log() if line["message"] == "snapshot refused"]
    assert line["reason"].endswith("tokens.bin is missing")
