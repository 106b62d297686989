"""Inputs that broke other products, with the bundled models: what is found, not only that it is well formed.

Where the bundled cross-encoder is not in the checkout, a tiny random one stands in, and what depends on it is skipped.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from indexer.build import build_snapshot
from indexer.documents import Document
from indexer.recipe import IndexModels
from models.folder import BUNDLED, BUNDLED_CROSS_ENCODER, BUNDLED_DUAL_ENCODER, BUNDLED_READER
from service.engine import load_models
from service.settings import Settings
from tests.conftest import TinyModels

from .conftest import started

FILLER = "The committee met again and talked about the colour of the new benches in the park. "
DOCUMENTS = [
    Document("kenya/height", "Mount Kenya rises to 5,199 metres."),
    Document("kenya/tea", "Kenya exports tea."),
    Document("bread", "Bake for twenty minutes."),
    Document("peru/capital", "Lima is the capital of Peru."),
    Document("peru/blank", ""),
    Document("peru/spaces", "   "),
    Document("peru/potatoes", "Potatoes come from the Andes."),
    Document("same/0", "alpha"),
    Document("same/1", "alpha"),
    Document("same/2", "beta is the answer"),
    Document("same/3", "alpha"),
    Document("boiler/manual", FILLER * 60 + "The reset code for the boiler is 7-7-3."),
    Document("boiler/gas", "Boilers are heated by gas."),
]


def is_bundled(name: str) -> bool:
    return (BUNDLED / name / "model.json").is_file()


pytestmark = pytest.mark.skipif(
    not (is_bundled(BUNDLED_DUAL_ENCODER) and is_bundled(BUNDLED_READER)), reason="no bundled encoder and reader"
)
needs_cross_encoder = pytest.mark.skipif(not is_bundled(BUNDLED_CROSS_ENCODER), reason="no bundled cross-encoder")


@pytest.fixture(scope="module")
def cases(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    cross_encoder: str | Path = BUNDLED_CROSS_ENCODER
    if not is_bundled(BUNDLED_CROSS_ENCODER):
        tiny: TinyModels = request.getfixturevalue("tiny_models")
        cross_encoder = tiny.cross_encoder
    settings = Settings(data_path=tmp_path_factory.mktemp("cases"), cross_encoder=str(cross_encoder))
    models = load_models(settings)
    tokenizer = models.cross_encoder.tokenizer
    build_snapshot(
        DOCUMENTS,
        index_path=settings.data_path / settings.index,
        models=IndexModels(models.dual_encoder, tokenizer, models.cross_encoder.tokenizer_fingerprint),
    )
    yield from started(settings)


def search(client: TestClient, query: str, **fields: Any) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = client.post("/v1/search", json={"query": query, **fields}).json()["results"]
    return results


def rerank(client: TestClient, query: str, documents: list[str], **fields: Any) -> dict[str, Any]:
    response = client.post("/v1/rerank", json={"query": query, "documents": documents, **fields})
    assert response.status_code == 200
    body: dict[str, Any] = response.json()
    return body


def read(client: TestClient, query: str, *texts: str, **fields: Any) -> dict[str, Any]:
    passages = [{"id": str(i), "text": text} for i, text in enumerate(texts)]
    response = client.post("/v1/answer", json={"query": query, "passages": passages, **fields})
    assert response.status_code == 200
    body: dict[str, Any] = response.json()
    return body


@needs_cross_encoder
def test_1_relevance_is_on_the_scale_that_its_name_says(cases: TestClient) -> None:
    results = {each["document_id"]: each for each in search(cases, "how tall is mount kenya", top_k=100)}
    assert results["kenya/height"]["rank"] == 1
    assert results["kenya/height"]["score"] > 0.5 > results["bread"]["score"] >= 0
    assert results["kenya/height"]["score_kind"] == "relevance"


@needs_cross_encoder
def test_1_a_threshold_keeps_what_is_relevant_of_documents_that_are_sent(cases: TestClient) -> None:
    documents = ["Mount Kenya rises to 5,199 metres.", "Kenya exports tea.", "Bake for twenty minutes."]
    body = rerank(cases, "how tall is mount kenya", documents)
    scores = {each["index"]: each["relevance_score"] for each in body["results"]}
    kept = rerank(cases, "how tall is mount kenya", documents, min_score=0.5)["results"]
    assert body["results"][0]["index"] == 0
    assert [each["index"] for each in kept] == [0]
    raw = rerank(cases, "how tall is mount kenya", documents, raw_scores=True)["results"]
    assert [each["index"] for each in raw] == [each["index"] for each in body["results"]]
    for each in raw:
        assert scores[each["index"]] == pytest.approx(1 / (1 + math.exp(-each["relevance_score"])), abs=1e-6)


@needs_cross_encoder
def test_2_blank_documents_disturb_no_other(cases: TestClient) -> None:
    results = search(cases, "capital of peru", top_k=100)
    assert results[0]["document_id"] == "peru/capital"
    for each in results:
        text = next(document.text for document in DOCUMENTS if document.document_id == each["document_id"])
        assert each["text"] == text[each["start"] : each["end"]]


@needs_cross_encoder
def test_2_blank_documents_are_ranked_last_whatever_the_model_thinks_of_them(cases: TestClient) -> None:
    documents = ["Lima is the capital of Peru.", "", "   ", "Potatoes come from the Andes."]
    results = rerank(cases, "capital of peru", documents)["results"]
    assert [each["index"] for each in results] == [0, 3, 1, 2]
    assert [each["unscored"] for each in results] == [None, None, "blank", "blank"]


@needs_cross_encoder
def test_3_an_index_points_at_the_document_that_was_sent(cases: TestClient) -> None:
    documents = ["alpha", "alpha", "beta is the answer", "alpha"]
    [first] = rerank(cases, "which one is the answer", documents, top_n=1)["results"]
    assert first["index"] == 2
    results = rerank(cases, "which one is the answer", documents, top_n=4)["results"]
    assert [each["index"] for each in results] == [2, 0, 1, 3]
    assert len({each["relevance_score"] for each in results[1:]}) == 1


@needs_cross_encoder
def test_3_duplicates_keep_their_own_ids(cases: TestClient) -> None:
    [first] = search(cases, "which one is the answer", top_k=1)
    assert first["document_id"] == "same/2"
    results = search(cases, "which one is the answer", top_k=100)
    alphas = [each for each in results if each["text"] == "alpha"]
    assert [each["document_id"] for each in alphas] == ["same/0", "same/1", "same/3"]
    assert len({each["scores"]["rerank_logit"] for each in alphas}) == 1


@needs_cross_encoder
def test_5_the_end_of_a_long_document_is_found(cases: TestClient) -> None:
    first = search(cases, "boiler reset code")[0]
    assert first["document_id"] == "boiler/manual"
    assert "7-7-3" in first["text"]
    body = cases.post("/v1/answer", json={"query": "what is the reset code for the boiler"}).json()
    assert body["answer"]["text"] == "7-7-3"


@needs_cross_encoder
def test_5_with_windows_the_end_of_a_long_document_counts(cases: TestClient) -> None:
    answer = "The reset code for the boiler is 7-7-3."
    documents = [FILLER * 56 + answer, "Boilers are heated by gas."]  # 900 words before the answer
    cut = {each["index"]: each for each in rerank(cases, "boiler reset code", documents)["results"]}
    assert (cut[0]["truncated"], cut[1]["truncated"]) == (True, False)
    assert 0 < cut[0]["cut_tokens"] < cut[0]["n_tokens"]
    first = rerank(cases, "boiler reset code", documents, window=True)["results"][0]
    assert (first["index"], first["truncated"]) == (0, False)
    window = documents[0][first["best_window"]["start"] : first["best_window"]["end"]]
    assert window.endswith(answer)
    long_query = rerank(cases, "boiler reset code " * 200, documents)
    assert long_query["query_cut_tokens"] > 0
    assert {each["unscored"] for each in long_query["results"]} == {None}


def test_7_emoji_shift_no_span(cases: TestClient) -> None:
    text = "🚀🚀 The probe left from Kourou 👩‍🚀 on Tuesday."
    found = read(cases, "where did the probe leave from", text)["answer"]
    assert found["text"].startswith("Kourou")  # whether the emoji after it belongs to the answer is the model's opinion
    assert (found["start"], found["start_utf16"]) == (23, 25)
    assert found["text"] == text[found["start"] : found["end"]]
    assert (
        found["text"].encode("utf-16-le") == text.encode("utf-16-le")[2 * found["start_utf16"] : 2 * found["end_utf16"]]
    )


def test_8_carriage_returns_shift_no_span(cases: TestClient) -> None:
    found = read(cases, "what is the vault code", "Line one.\r\nLine two.\r\n\r\nThe vault code is 4471.\r\n")["answer"]
    assert (found["text"], found["start"], found["end"]) == ("4471", 42, 46)


def test_9_short_documents_of_unequal_length_are_read(cases: TestClient) -> None:
    body = read(cases, "who keeps bees in Porto", "Ana keeps bees in Porto.", "Ben keeps bees in Turku", top_k=10)
    first = body["answers"][0]
    assert (first["text"], first["document_id"], first["start"], first["end"]) == ("Ana", "0", 0, 3)


@pytest.mark.parametrize("texts", [("It rained yesterday.",), ("",), ()])
def test_10_what_no_passage_says_has_no_answer(cases: TestClient, texts: tuple[str, ...]) -> None:
    decisions = [read(cases, "what is the capital of Belarus", *texts, top_k=top_k) for top_k in (1, 10)]
    assert decisions[0]["no_answer"] == decisions[1]["no_answer"]
    assert (decisions[0]["answer"], decisions[0]["no_answer"]["is_no_answer"]) == (None, True)


@pytest.mark.parametrize("n_before", [0, 150, 230, 240, 250, 600, 1200])
def test_11_a_fact_is_found_wherever_the_windows_fall(cases: TestClient, n_before: int) -> None:
    words = (FILLER * 80).split()[:1200]
    text = " ".join([*words[:n_before], "The lighthouse keeper was Ingrid Vale.", *words[n_before:]])
    body = read(cases, "who was the lighthouse keeper", text, top_k=20)
    found = body["answer"]
    assert found["text"] == "Ingrid Vale"
    assert (found["start"], found["end"]) == (text.index("Ingrid"), text.index("Vale") + 4)
    spans = [(each["start"], each["end"]) for each in body["answers"]]
    assert len(spans) == len(set(spans))
