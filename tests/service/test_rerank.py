"""Documents that a caller sends, ranked in the shapes of Cohere, Jina and text-embeddings-inference, by tiny models.

Cases 1 to 5 of what broke others, as far as they are about shape and order; what is relevant is in test_cases.py.
"""

import math
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from fastapi.testclient import TestClient
from onnx import numpy_helper

from models.folder import Kind, RelevanceCalibration, open_model_folder, write_settings
from models.tokenization import Tokenizer
from service.rerank import LOWEST_LOGIT
from service.settings import Settings
from tests.conftest import TinyModels

from .conftest import started
from .test_http import count, faults, problem_of

QUERY = "who keeps bees over the harbour"
TEXTS = ["Ana keeps bees in Porto.", "fog over the harbour", "", "bees bees bees", "   ", "the river"]
LONG = "the keeper of the lighthouse was ingrid " * 30


def rerank(client: TestClient, documents: list[Any], *, path: str = "/v1/rerank", **fields: Any) -> dict[str, Any]:
    response = client.post(path, json={"query": QUERY, "documents": documents} | fields)
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    return body


def ranks(client: TestClient, texts: list[str], **fields: Any) -> list[dict[str, Any]]:
    response = client.post("/rerank", json={"query": QUERY, "texts": texts} | fields)
    assert response.status_code == 200, response.text
    body: list[dict[str, Any]] = response.json()
    return body


def sigmoid(logit: float) -> float:
    return 1 / (1 + math.exp(-logit))


@pytest.fixture(scope="module")
def calibrated(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """The same service with a cross-encoder whose logit alone is calibrated: scale 3, bias -1."""
    path = Path(shutil.copytree(settings.cross_encoder, tmp_path_factory.mktemp("models") / "calibrated"))
    curve = RelevanceCalibration(logit_weight=3.0, bias=-1.0, origin="made")
    folder = open_model_folder(str(path), "cross-encoder")
    write_settings(path, folder.settings.model_copy(update={"pair_relevance": curve}))
    yield from started(settings.model_copy(update={"cross_encoder": str(path)}))


@pytest.fixture(scope="module")
def spoiled(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """The same service with a cross-encoder whose weights for the word `fog` are not numbers."""
    path = Path(shutil.copytree(settings.cross_encoder, tmp_path_factory.mktemp("models") / "spoiled"))
    [fog] = Tokenizer(path / "tokenizer.json").encode("fog").ids.tolist()
    model = onnx.load(path / "model.onnx")
    [words] = [each for each in model.graph.initializer if "word_embeddings" in each.name]
    weights = numpy_helper.to_array(words).copy()
    weights[fog] = np.nan
    words.CopyFrom(numpy_helper.from_array(weights, words.name))
    onnx.save(model, path / "model.onnx")
    write_settings(path, open_model_folder(str(settings.cross_encoder), "cross-encoder").settings)
    yield from started(settings.model_copy(update={"cross_encoder": str(path)}))


@pytest.mark.parametrize(("path", "version"), [("/v1/rerank", "1"), ("/v2/rerank", "2")])
def test_the_response_has_what_clients_of_cohere_and_jina_look_for(client: TestClient, path: str, version: str) -> None:
    body = rerank(client, TEXTS, path=path, model="rerank-v3.5", return_documents=True)
    assert body["meta"]["api_version"] == {"version": version}
    assert body["meta"]["billed_units"] == {"search_units": 1}
    assert body["model"] == "tiny-cross-encoder"
    assert body["usage"]["total_tokens"] == body["usage"]["prompt_tokens"] == body["meta"]["tokens"]["input_tokens"] > 0
    assert [each["document"] for each in body["results"]] == [
        {"text": TEXTS[each["index"]]} for each in body["results"]
    ]
    assert {each["document"] for each in rerank(client, TEXTS, path=path)["results"]} == {None}


def test_the_id_is_the_request_s(client: TestClient) -> None:
    response = client.post("/v1/rerank", json={"query": QUERY, "documents": TEXTS}, headers={"x-request-id": "mine"})
    assert (response.json()["id"], response.headers["x-request-id"]) == ("mine", "mine")


def test_1_raw_scores_are_the_logits_of_the_scores_in_the_same_order(
    client: TestClient, calibrated: TestClient
) -> None:
    logits = {each["index"]: each["relevance_score"] for each in rerank(client, TEXTS, raw_scores=True)["results"]}
    for service, scale, bias, kinds in (
        (client, 1.0, 0.0, ("rerank_sigmoid", "rerank_logit")),
        (calibrated, 3.0, -1.0, ("relevance", "relevance_logit")),
    ):
        scored, raw = rerank(service, TEXTS), rerank(service, TEXTS, raw_scores=True)
        assert (scored["score_kind"], raw["score_kind"]) == kinds
        assert [each["index"] for each in scored["results"]] == [each["index"] for each in raw["results"]]
        for mine, logit in zip(scored["results"], raw["results"], strict=True):
            assert 0 <= mine["relevance_score"] <= 1
            if mine["unscored"] is None:
                assert mine["relevance_score"] == pytest.approx(sigmoid(logit["relevance_score"]), abs=1e-12)
                expected = scale * logits[mine["index"]] + bias
                assert logit["relevance_score"] == pytest.approx(expected, abs=1e-9)
        assert [each["score"] for each in ranks(service, TEXTS)] == [
            each["relevance_score"] for each in scored["results"]
        ]
        assert [each["score"] for each in ranks(service, TEXTS, raw_scores=True)] == [
            each["relevance_score"] for each in raw["results"]
        ]


def test_1_a_least_score_is_on_the_scale_of_the_scores(client: TestClient) -> None:
    scores = [each["relevance_score"] for each in rerank(client, TEXTS)["results"]]
    kept = rerank(client, TEXTS, min_score=scores[1])["results"]
    assert [each["relevance_score"] for each in kept] == scores[:2]
    assert rerank(client, TEXTS, min_score=scores[1], top_n=1)["results"] == kept[:1]
    for wrong in (-0.1, 1.5, 7):
        response = client.post("/v1/rerank", json={"query": QUERY, "documents": TEXTS, "min_score": wrong})
        assert "in [0, 1]" in faults(response)["#/min_score"]
    assert len(rerank(client, TEXTS, raw_scores=True, min_score=-50)["results"]) == 4
    assert len(rerank(client, TEXTS, raw_scores=True, min_score=50)["results"]) == 0


@pytest.mark.parametrize("raw_scores", [False, True])
def test_2_blank_documents_come_last_and_are_marked(client: TestClient, raw_scores: bool) -> None:
    lowest = LOWEST_LOGIT if raw_scores else 0.0
    results = rerank(client, TEXTS, raw_scores=raw_scores)["results"]
    assert sorted(each["index"] for each in results) == list(range(6))
    assert [(each["index"], each["unscored"], each["relevance_score"]) for each in results[-2:]] == [
        (2, "blank", lowest),
        (4, "blank", lowest),
    ]
    assert all(each["unscored"] is None and each["relevance_score"] > lowest for each in results[:-2])
    last = ranks(client, TEXTS, raw_scores=raw_scores)[-2:]
    assert [(each["index"], each["unscored"], each["score"]) for each in last] == [
        (2, "blank", lowest),
        (4, "blank", lowest),
    ]
    assert count(client, "tercet_not_finite_scores_total") == 0  # blank is no fault of the model's


def test_2_blank_documents_cost_no_model_time(client: TestClient) -> None:
    body = rerank(client, ["", " ", "\u200b", {"text": "\n"}])
    assert [each["unscored"] for each in body["results"]] == ["blank"] * 4
    assert body["usage"]["total_tokens"] == 0


def test_2_no_documents_give_no_results(client: TestClient) -> None:
    for path in ("/v1/rerank", "/v2/rerank"):
        body = rerank(client, [], path=path)
        assert (body["results"], body["usage"]["total_tokens"]) == ([], 0)
        assert body["meta"]["billed_units"] == {"search_units": 0}
    assert ranks(client, []) == []


def test_3_equal_texts_score_alike_and_stay_in_their_order(client: TestClient) -> None:
    documents = ["alpha", "alpha", "beta is the answer", "alpha"]
    results = rerank(client, documents, top_n=4)["results"]
    alphas = [each for each in results if each["index"] != 2]
    assert [each["index"] for each in alphas] == [0, 1, 3]
    assert len({each["relevance_score"] for each in alphas}) == 1
    assert rerank(client, documents, top_n=1)["results"] == results[:1]
    assert [each["index"] for each in ranks(client, documents)] == [each["index"] for each in results]


def test_4_logits_are_those_of_torch_with_token_types(
    client: TestClient, tiny_checkpoint: Callable[[Kind], Path], tiny_models: TinyModels
) -> None:
    import torch
    from transformers import BertForSequenceClassification

    texts = [text for text in TEXTS if text.strip()]
    tokenizer = Tokenizer(tiny_models.cross_encoder / "tokenizer.json")
    model = BertForSequenceClassification.from_pretrained(tiny_checkpoint("cross-encoder"))
    model.train(False)
    query = [tokenizer.cls_id, *tokenizer.encode(QUERY).ids.tolist(), tokenizer.sep_id]
    expected = []
    for text in texts:
        passage = [*tokenizer.encode(text).ids.tolist(), tokenizer.sep_id]
        types = [0] * len(query) + [1] * len(passage)
        with torch.inference_mode():
            expected.append(float(model(torch.tensor([query + passage]), token_type_ids=torch.tensor([types])).logits))
    scores = {each["index"]: each["score"] for each in ranks(client, texts, raw_scores=True)}
    np.testing.assert_allclose([scores[i] for i in range(len(texts))], expected, atol=1e-4)


def test_5_what_was_cut_is_flagged_and_counted(client: TestClient) -> None:
    before = [count(client, "tercet_truncated_total", what=what) for what in ("passage", "query")]
    body = rerank(client, ["bees", LONG])
    by_index = {each["index"]: each for each in body["results"]}
    assert (by_index[0]["truncated"], by_index[0]["n_tokens"], by_index[0]["cut_tokens"]) == (False, 1, 0)
    assert (by_index[1]["truncated"], by_index[1]["best_window"]) == (True, None)
    assert 0 < by_index[1]["cut_tokens"] < by_index[1]["n_tokens"]
    assert (body["truncated"], body["n_documents_cut"], body["query_cut_tokens"]) == (True, 1, 0)
    long_query = rerank(client, ["bees"], query="who " * 600)
    assert (long_query["truncated"], long_query["query_cut_tokens"]) == (True, 600 - 24)
    assert long_query["results"][0]["unscored"] is None
    after = [count(client, "tercet_truncated_total", what=what) for what in ("passage", "query")]
    assert [later - earlier for earlier, later in zip(before, after, strict=True)] == [1, 1]


def test_5_windows_read_all_of_a_document_and_say_which_part_counted(client: TestClient) -> None:
    body = rerank(client, ["bees", LONG], window=True, raw_scores=True)
    by_index = {each["index"]: each for each in body["results"]}
    assert (body["truncated"], by_index[1]["cut_tokens"]) == (False, 0)
    best = by_index[1]["best_window"]
    [alone] = ranks(client, [LONG[best["start"] : best["end"]]], raw_scores=True)
    assert by_index[1]["relevance_score"] == alone["score"]
    assert by_index[0]["best_window"] == {"start": 0, "end": 4}
    cut = {each["index"]: each for each in rerank(client, ["bees", LONG], raw_scores=True)["results"]}
    assert by_index[1]["relevance_score"] >= cut[1]["relevance_score"]
    assert by_index[0]["relevance_score"] == cut[0]["relevance_score"]


def test_5_the_number_of_windows_and_tokens_can_be_limited(client: TestClient) -> None:
    one, two = (rerank(client, [LONG], max_chunks_per_doc=n)["results"][0] for n in (1, 2))
    assert one["cut_tokens"] == rerank(client, [LONG])["results"][0]["cut_tokens"] > two["cut_tokens"] > 0
    assert rerank(client, [LONG], window=True, max_chunks_per_doc=2)["results"] == [two]
    [few] = rerank(client, [LONG], max_tokens_per_doc=5)["results"]
    assert (few["n_tokens"] - few["cut_tokens"], few["truncated"]) == (5, True)
    assert rerank(client, [LONG], max_tokens_per_doc=4096)["results"][0]["cut_tokens"] == one["cut_tokens"]


def test_5_what_may_not_be_cut_is_a_413_that_names_it(client: TestClient) -> None:
    fields = {"query": "who " * 30, "texts": ["bees", LONG], "truncate": False}
    problem = problem_of(client.post("/rerank", json=fields), 413, "input-too-long")
    assert {each["pointer"] for each in problem["errors"]} == {"#/query", "#/texts/1"}
    assert client.post("/rerank", json={"query": QUERY, "texts": ["bees"], "truncate": False}).status_code == 200
    for truncate in (True, None):
        response = client.post("/rerank", json=fields | {"truncate": truncate})
        assert response.headers["x-query-cut-tokens"] == "6"
        assert {each["index"]: each["truncated"] for each in response.json()} == {0: False, 1: True}


def test_a_candidate_without_a_finite_score_is_marked_last_and_counted(spoiled: TestClient) -> None:
    texts = ["fog", "bees", "", "the river", "fog over the harbour"]
    for raw_scores in (False, True):
        before = count(spoiled, "tercet_not_finite_scores_total")
        results = rerank(spoiled, texts, raw_scores=raw_scores)["results"]
        assert {each["index"] for each in results[:2]} == {1, 3}
        assert [(each["index"], each["unscored"]) for each in results[2:]] == [
            (0, "no_finite_score"),
            (2, "blank"),
            (4, "no_finite_score"),
        ]
        assert count(spoiled, "tercet_not_finite_scores_total") == before + 2
    assert [each["unscored"] for each in ranks(spoiled, ["fog"])] == ["no_finite_score"]


def test_search_marks_and_counts_such_a_candidate_too(spoiled: TestClient) -> None:
    before = count(spoiled, "tercet_not_finite_scores_total")
    body = spoiled.post("/v1/search", json={"query": "bees over the harbour", "top_k": 100}).json()
    marked = [each for each in body["results"] if each["unscored"] is not None]
    assert [(each["document_id"], each["unscored"]) for each in marked] == [("fog", "no_finite_score")]
    assert (marked[0]["score_kind"], marked[0]["rank"]) == ("rrf", len(body["results"]))
    assert "rerank:no_finite_score" in body["skipped"]
    assert count(spoiled, "tercet_not_finite_scores_total") == before + 1


def test_objects_are_ranked_by_their_text_or_by_named_fields(client: TestClient) -> None:
    documents = ["bees", {"text": "bees", "id": 7}, {"title": "fog", "text": "bees", "year": [1999]}]
    by_text = rerank(client, documents, return_documents=True)["results"]
    assert len({each["relevance_score"] for each in by_text}) == 1
    assert [each["document"] for each in by_text] == [{"text": "bees"}, documents[1], documents[2]]
    by_fields = {each["index"]: each for each in rerank(client, documents, rank_fields=["title", "text"])["results"]}
    [joined] = rerank(client, ["fog\nbees"])["results"]
    assert by_fields[2]["relevance_score"] == joined["relevance_score"]
    assert by_fields[0]["relevance_score"] == by_fields[1]["relevance_score"] == by_text[0]["relevance_score"]


@pytest.mark.parametrize(
    ("fields", "pointers"),
    [
        ({"query": " "}, {"#/query"}),
        ({"query": "a" * 4001}, {"#/query"}),
        (
            {"documents": ["a", 3, None, ["a"], {}, {"text": 1}, {"title": "a"}]},
            {f"#/documents/{i}" for i in range(1, 7)},
        ),
        ({"documents": ["a", "b" * 100_001, {"text": "b" * 100_001}]}, {"#/documents/1", "#/documents/2"}),
        ({"documents": ["a"] * 1001}, {"#/documents"}),
        ({"documents": "a"}, {"#/documents"}),
        ({"top_n": 0}, {"#/top_n"}),
        ({"top_n": -1}, {"#/top_n"}),
        ({"top_n": "3"}, {"#/top_n"}),
        ({"rank_fields": []}, {"#/rank_fields"}),
        ({"max_tokens_per_doc": 0, "max_chunks_per_doc": 0}, {"#/max_tokens_per_doc", "#/max_chunks_per_doc"}),
        ({"relevant_spans": {"mode": "extract"}}, {"#/relevant_spans"}),
    ],
)
def test_what_does_not_fit_is_named(client: TestClient, fields: dict[str, Any], pointers: set[str]) -> None:
    response = client.post("/v2/rerank", json={"query": QUERY, "documents": ["bees"]} | fields)
    assert set(faults(response)) == pointers


@pytest.mark.parametrize(
    ("fields", "pointers"),
    [
        ({"query": ""}, {"#/query"}),
        ({"texts": ["a", {"text": "b"}, "c" * 100_001]}, {"#/texts/1", "#/texts/2"}),
        ({"texts": ["a"] * 1001}, {"#/texts"}),
        ({"truncation_direction": "Left"}, {"#/truncation_direction"}),
        ({"top_n": 3}, {"#/top_n"}),
    ],
)
def test_what_does_not_fit_a_bare_array_is_named(
    client: TestClient, fields: dict[str, Any], pointers: set[str]
) -> None:
    assert set(faults(client.post("/rerank", json={"query": QUERY, "texts": ["bees"]} | fields))) == pointers


def test_as_many_results_are_given_as_there_are_or_are_asked_for(client: TestClient) -> None:
    whole = rerank(client, TEXTS)["results"]
    for top_n, n in ((1, 1), (3, 3), (6, 6), (1000, 6), (None, 6)):
        assert rerank(client, TEXTS, top_n=top_n)["results"] == whole[:n]


def test_a_thousand_documents_are_ranked(client: TestClient) -> None:
    body = rerank(client, [f"bees {i}" for i in range(1000)], top_n=3)
    assert (len(body["results"]), body["meta"]["billed_units"]["search_units"]) == (3, 10)


def test_a_bare_array_repeats_texts_on_request_and_names_its_scores_in_a_header(client: TestClient) -> None:
    response = client.post("/rerank", json={"query": QUERY, "texts": TEXTS, "return_text": True})
    assert [each["text"] for each in response.json()] == [TEXTS[each["index"]] for each in response.json()]
    assert (response.headers["x-score-kind"], response.headers["x-query-cut-tokens"]) == ("rerank_sigmoid", "0")
    assert {each["text"] for each in ranks(client, TEXTS)} == {None}
    scores = [each["score"] for each in response.json()]
    assert scores == sorted(scores, reverse=True)


def test_a_score_does_not_depend_on_what_else_is_sent(client: TestClient) -> None:
    together = {each["index"]: each["score"] for each in ranks(client, TEXTS)}
    assert [ranks(client, [text])[0]["score"] for text in TEXTS] == [together[i] for i in range(len(TEXTS))]
