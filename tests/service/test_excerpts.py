"""Reading an excerpt of each passage instead of all of it, over HTTP with tiny random models."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from indexer.documents import Document
from models.excerpts import TokenRarity
from models.folder import TOKENIZER_FILE, open_model_folder, write_settings
from service.costs import search_cost
from service.queries import SearchQuery
from tests.conftest import TinyModels
from tests.service.conftest import build_index, started, tiny_settings
from tests.service.test_http import count, engine_of

FILLER = "bread and fog over the ferry and the probe"
SHORT, EXCERPT = "honey from porto", 6
DOCUMENTS = [
    Document("late", f"{FILLER} {FILLER} {SHORT}"),
    Document("early", f"{SHORT} {FILLER} {FILLER}"),
    Document("short", SHORT),
]


@pytest.fixture(scope="module")
def client(tiny_models: TinyModels, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    settings = tiny_settings(tiny_models, tmp_path_factory.mktemp("excerpts") / "data", drain_seconds=0)
    build_index(DOCUMENTS, settings)
    yield from started(settings)


def search(client: TestClient, **fields: Any) -> dict[str, Any]:
    body = {"query": "honey porto", "settle_k": 0, "highlight": False} | fields
    response = client.post("/v1/search", json=body)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def logits(client: TestClient, **fields: Any) -> dict[str, float]:
    """The rerank logits by document."""
    return {each["document_id"]: each["scores"]["rerank_logit"] for each in search(client, **fields)["results"]}


def n_tokens(client: TestClient, outcome: str) -> float:
    return count(client, "tercet_rerank_tokens_total", outcome=outcome)


def test_what_is_left_out_is_said_and_counted_and_no_truncation(client: TestClient) -> None:
    before = [n_tokens(client, each) for each in ("read", "left_out")]
    found = search(client, rerank_tokens=EXCERPT)
    read, left_out = [n_tokens(client, each) - n for each, n in zip(("read", "left_out"), before, strict=True)]
    encode = engine_of(client).models.cross_encoder.tokenizer.encode
    lengths = [encode(each.text).ids.size for each in DOCUMENTS]
    assert found["n_tokens_left_out"] == left_out == sum(max(0, n - EXCERPT) for n in lengths) > 0
    assert read == sum(min(n, EXCERPT) + encode("honey porto").ids.size + 3 for n in lengths)
    assert (found["truncated"], found["n_passages_cut"]) == (False, 0)
    assert {each["cut_tokens"] for each in found["results"]} == {0}
    assert search(client)["n_tokens_left_out"] == 0


def test_what_is_known_is_not_read_again(client: TestClient) -> None:
    asked = {"query": "fog over the harbour", "rerank_tokens": EXCERPT}
    first = search(client, **asked)
    before = [n_tokens(client, each) for each in ("read", "left_out")]
    assert search(client, **asked)["n_tokens_left_out"] == first["n_tokens_left_out"] > 0
    assert [n_tokens(client, each) for each in ("read", "left_out")] == before


def test_an_excerpt_is_taken_where_the_query_is(client: TestClient) -> None:
    found = logits(client, rerank_tokens=3)
    assert found["late"] == found["early"] == found["short"]


def test_what_is_known_of_excerpts_is_not_taken_for_whole_passages(client: TestClient) -> None:
    found = [logits(client, query="honey and fog", rerank_tokens=n) for n in (0, EXCERPT, 0, EXCERPT)]
    assert found[0] == found[2] != found[1] == found[3]


def test_an_excerpt_of_all_changes_nothing(client: TestClient) -> None:
    assert logits(client, rerank_tokens=512) == logits(client)


def test_tokens_that_the_model_does_not_take_have_no_say(client: TestClient) -> None:
    most = engine_of(client).models.cross_encoder.lengths.max_query_tokens
    fits = "fog " * most
    assert logits(client, query=f"{fits} porto", rerank_tokens=1) == logits(client, query=fits, rerank_tokens=1)


def test_excerpts_cost_less(client: TestClient) -> None:
    models, query = engine_of(client).models, SearchQuery("honey porto", settle_k=0)
    with engine_of(client).borrowed(None) as snapshot:
        whole, part, all_of_it = (
            search_cost(models, replace(query, rerank_tokens=n), snapshot).tokens
            for n in (0, EXCERPT, snapshot.mean_passage_tokens)
        )
    assert part < whole == all_of_it


def test_an_answer_reranks_by_excerpts_too(client: TestClient) -> None:
    before = n_tokens(client, "left_out")
    response = client.post("/v1/answer", json={"query": "who has honey", "rerank_tokens": EXCERPT})
    assert response.status_code == 200
    assert n_tokens(client, "left_out") - before == response.json()["n_tokens_left_out"] > 0


def test_own_passages_are_not_reranked(client: TestClient) -> None:
    body = {"query": "who has honey", "passages": [{"id": "a", "text": SHORT}], "rerank_tokens": EXCERPT}
    response = client.post("/v1/answer", json=body)
    assert response.status_code == 422
    assert "rerank_tokens" in response.text


def test_in_an_index_of_another_tokenizer_all_tokens_count_alike(tiny_models: TinyModels, tmp_path: Path) -> None:
    """It is the same tokenizer, written otherwise: what its tokens are is known by the hash of its file alone."""
    settings = tiny_settings(tiny_models, tmp_path / "data", drain_seconds=0)
    build_index(DOCUMENTS, settings)
    shutil.copytree(tiny_models.cross_encoder, tmp_path / "other")
    (tmp_path / "other" / TOKENIZER_FILE).write_text(
        json.dumps(json.loads((tiny_models.cross_encoder / TOKENIZER_FILE).read_text()), indent=1)
    )
    folder = open_model_folder(str(tiny_models.cross_encoder), "cross-encoder")
    write_settings(tmp_path / "other", folder.settings)
    query, n_tokens = "honey the", 1
    for client in started(settings.model_copy(update={"cross_encoder": str(tmp_path / "other")})):
        found = search(client, query=query, rerank_tokens=n_tokens)
        cross_encoder = engine_of(client).models.cross_encoder
    passages = [text.ids for text in cross_encoder.tokenizer.encode_batch([each.text for each in DOCUMENTS])]
    alike, by_sample = (
        cross_encoder.excerpts(query, passages, TokenRarity(sample), n_tokens=n_tokens) for sample in ([], passages)
    )
    assert [each.tolist() for each in alike] != [each.tolist() for each in by_sample]
    expected = cross_encoder.logits(cross_encoder.inputs(query, alike))
    by_document = dict(zip((each.document_id for each in DOCUMENTS), expected.tolist(), strict=True))
    assert {each["document_id"]: each["scores"]["rerank_logit"] for each in found["results"]} == by_document
    assert "stored_tokens:other_tokenizer" in found["skipped"]
