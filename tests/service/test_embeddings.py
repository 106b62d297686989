"""Texts that a caller sends, encoded in the shapes of OpenAI and text-embeddings-inference; tiny random models."""

import base64
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from indexer.documents import Document
from models.dual_encoder import DualEncoder
from models.folder import open_model_folder, write_settings
from models.session import Runtime
from service.settings import Settings

from .conftest import build_index, started
from .test_http import count, faults, problem_of

TEXTS = ["Ana keeps bees in Porto.", "fog over the harbour", "bees", "bees"]
LONG = "the keeper of the lighthouse was ingrid " * 30


def embeddings(client: TestClient, texts: object, **fields: Any) -> dict[str, Any]:
    response = client.post("/v1/embeddings", json={"input": texts} | fields)
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    return body


def vectors(body: dict[str, Any]) -> list[Any]:
    return [each["embedding"] for each in body["data"]]


@pytest.fixture(scope="module")
def encoder(settings: Settings) -> DualEncoder:
    return DualEncoder(open_model_folder(settings.dual_encoder, "dual-encoder"), Runtime())


@pytest.fixture(scope="module")
def sided(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """The same service with a dual encoder that has another prefix for each side."""
    path = Path(shutil.copytree(settings.dual_encoder, tmp_path_factory.mktemp("models") / "sided"))
    folder = open_model_folder(str(path), "dual-encoder")
    write_settings(path, folder.settings.model_copy(update={"query_prefix": "what ", "passage_prefix": "paper "}))
    changed = settings.model_copy(update={"dual_encoder": str(path), "data_path": tmp_path_factory.mktemp("data")})
    build_index([Document("a", "bees")], changed)
    yield from started(changed)


def test_the_response_has_openai_s_shape(client: TestClient, encoder: DualEncoder) -> None:
    body = embeddings(client, TEXTS, model="text-embedding-3-small", user="me")
    assert (body["object"], body["model"]) == ("list", "tiny-dual-encoder")
    assert [(each["object"], each["index"]) for each in body["data"]] == [("embedding", i) for i in range(4)]
    n_tokens = sum(item.ids.size for item in encoder.inputs(TEXTS, "passage"))
    assert body["usage"] == {"prompt_tokens": n_tokens, "total_tokens": n_tokens}
    np.testing.assert_array_equal(np.array(vectors(body), np.float32), encoder.encode_passages(TEXTS).vectors)


def test_one_text_is_a_list_of_one(client: TestClient) -> None:
    assert embeddings(client, "bees")["data"] == embeddings(client, ["bees"])["data"]


def test_no_texts_give_no_vectors(client: TestClient) -> None:
    body = embeddings(client, [])
    assert (body["data"], body["usage"]["total_tokens"]) == ([], 0)
    assert client.post("/embed", json={"inputs": []}).json() == []


def test_base64_holds_the_same_little_endian_float32(client: TestClient) -> None:
    encoded = vectors(embeddings(client, TEXTS, encoding_format="base64"))
    decoded = [np.frombuffer(base64.b64decode(each), "<f4").tolist() for each in encoded]
    numbers = np.array(vectors(embeddings(client, TEXTS, encoding_format="float")), np.float32)
    assert decoded == numbers.tolist()


@pytest.mark.parametrize(
    ("name", "side"),
    [
        ("query", "query"),
        ("search_query", "query"),
        ("retrieval.query", "query"),
        ("passage", "passage"),
        ("document", "passage"),
        ("search_document", "passage"),
        ("retrieval.passage", "passage"),
        (None, "passage"),
    ],
)
def test_a_text_is_a_passage_unless_it_is_said_to_be_a_query(
    sided: TestClient, client: TestClient, name: str | None, side: str
) -> None:
    expected = vectors(embeddings(client, ["what bees" if side == "query" else "paper bees"]))
    for field in ("input_type", "task"):
        assert vectors(embeddings(sided, ["bees"], **{field: name})) == expected
    assert sided.post("/embed", json={"inputs": "bees", "prompt_name": name}).json() == expected


def test_what_was_cut_is_flagged_and_counted_on_its_side(client: TestClient) -> None:
    def counts() -> list[float]:
        return [count(client, "tercet_truncated_total", what=what) for what in ("passage", "query")]

    before = counts()
    data = embeddings(client, ["bees", LONG, LONG])["data"]
    assert [each["truncated"] for each in data] == [False, True, True]
    assert data[0]["cut_tokens"] == 0 < data[1]["cut_tokens"] == data[2]["cut_tokens"]
    embeddings(client, LONG, input_type="query")
    response = client.post("/embed", json={"inputs": ["bees", LONG], "truncate": True})
    assert response.headers["x-inputs-cut"] == "1"
    assert [after - earlier for earlier, after in zip(before, counts(), strict=True)] == [3, 1]


@pytest.mark.parametrize(("path", "field"), [("/v1/embeddings", "input"), ("/embed", "inputs")])
def test_what_may_not_be_cut_is_a_413_that_names_it(client: TestClient, path: str, field: str) -> None:
    body = {field: ["bees", LONG], "truncate": False}
    problem = problem_of(client.post(path, json=body), 413, "input-too-long")
    [fault] = problem["errors"]
    assert fault["pointer"] == f"#/{field}/1"
    assert fault["detail"].endswith("the model takes 64 of them.")
    assert client.post(path, json=body | {field: ["bees"]}).status_code == 200


@pytest.mark.parametrize("path", ["/v1/embeddings", "/embed"])
def test_a_dimension_other_than_the_model_s_is_refused(client: TestClient, encoder: DualEncoder, path: str) -> None:
    body = {"input" if path == "/v1/embeddings" else "inputs": "bees"}
    assert client.post(path, json=body | {"dimensions": encoder.dimension}).status_code == 200
    wrong = client.post(path, json=body | {"dimensions": 8})
    assert faults(wrong) == {"#/dimensions": "The model's vectors have 32 dimensions and cannot be shortened."}


@pytest.mark.parametrize(
    ("fields", "pointers"),
    [
        ({"input": ""}, {"#/input"}),
        ({"input": " \n"}, {"#/input"}),
        ({"input": "a" * 100_001}, {"#/input"}),
        ({"input": ["a", "", "\t"]}, {"#/input/1", "#/input/2"}),
        ({"input": ["a", "b" * 100_001, None]}, {"#/input/1", "#/input/2"}),
        ({"input": ["a"] * 2049}, {"#/input"}),
        ({"input": None}, {"#/input"}),
        ({"input": {"text": "a"}}, {"#/input"}),
        ({"encoding_format": "int8"}, {"#/encoding_format"}),
        ({"input_type": "classification"}, {"#/input_type"}),
        ({"input_type": "query", "task": "query"}, {"#/task"}),
        ({"late_chunking": True}, {"#/late_chunking"}),
    ],
)
def test_what_does_not_fit_is_named(client: TestClient, fields: dict[str, Any], pointers: set[str]) -> None:
    assert set(faults(client.post("/v1/embeddings", json={"input": "bees"} | fields))) == pointers


@pytest.mark.parametrize("tokens", [[1, 2, 3], [[1, 2], [3]], ["bees", [1]]])
def test_token_ids_are_refused_with_a_reason(client: TestClient, tokens: object) -> None:
    assert "send texts" in faults(client.post("/v1/embeddings", json={"input": tokens}))["#/input"]


def test_a_bare_array_holds_the_same_vectors(client: TestClient) -> None:
    expected = vectors(embeddings(client, TEXTS))
    for normalize in (True, False):
        assert client.post("/embed", json={"inputs": TEXTS, "normalize": normalize}).json() == expected
    response = client.post("/embed", json={"inputs": ["bees", ""], "truncation_direction": "left"})
    assert set(faults(response)) == {"#/inputs/1", "#/truncation_direction"}


def test_many_texts_come_back_in_order(client: TestClient, encoder: DualEncoder) -> None:
    texts = [f"bees {i}" for i in range(2048)]
    found = np.array(vectors(embeddings(client, texts)), np.float32)
    np.testing.assert_array_equal(found[::512], encoder.encode_passages(texts[::512]).vectors)
