"""What a search returns, through the ASGI app, with tiny random models: shape, order, pages, honesty."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

from .conftest import DOCUMENTS, whole_text

QUERY = "who keeps bees over the harbour"
MODES = ["hybrid", "dense", "bm25"]


def search(client: TestClient, query: str = QUERY, **fields: Any) -> dict[str, Any]:
    response = client.post("/v1/search", json={"query": query, **fields})
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    return body


def ids(body: dict[str, Any]) -> list[str]:
    return [result["passage_id"] for result in body["results"]]


def test_a_passage_is_a_slice_of_its_document(client: TestClient) -> None:
    results = search(client, top_k=100)["results"]
    assert {result["document_id"] for result in results} == {document.document_id for document in DOCUMENTS}
    for result in results:
        assert result["text"] == whole_text(result["document_id"])[result["start"] : result["end"]]


@pytest.mark.parametrize("rerank", [True, False])
@pytest.mark.parametrize("mode", MODES)
def test_the_union_of_pages_is_one_page(client: TestClient, mode: str, rerank: bool) -> None:
    fields: dict[str, Any] = {"mode": mode, "rerank": rerank, "rerank_k": 3}
    whole = search(client, top_k=100, **fields)
    pages = [search(client, top_k=2, offset=offset, **fields) for offset in range(0, len(whole["results"]), 2)]
    assert [result for page in pages for result in page["results"]] == whole["results"]
    assert {page["n_candidates"] for page in pages} == {whole["n_candidates"]}


def test_ranks_count_from_the_first_result_of_all_pages(client: TestClient) -> None:
    assert [result["rank"] for result in search(client, top_k=2, offset=3)["results"]] == [4, 5]


def test_a_page_beyond_the_end_is_empty(client: TestClient) -> None:
    assert search(client, offset=2000)["results"] == []


@pytest.mark.parametrize(("mode", "kind"), [("hybrid", "rrf"), ("dense", "dense"), ("bm25", "bm25")])
def test_without_reranking_the_score_is_that_of_the_mode(client: TestClient, mode: str, kind: str) -> None:
    body = search(client, mode=mode, rerank=False, top_k=100)
    scores = [result["score"] for result in body["results"]]
    assert scores == sorted(scores, reverse=True)
    assert all(result["score_kind"] == kind and result["score"] == result["scores"][kind] for result in body["results"])
    assert "rerank:not_requested" in body["skipped"]
    assert (body["rerank_k_used"], "rerank" in body["timings_ms"]) == (0, False)


def test_relevance_is_the_sigmoid_of_its_logit_and_orders_the_reranked(client: TestClient) -> None:
    results = search(client, explain=True, top_k=100)["results"]
    logits = [result["explanation"]["relevance_logit"] for result in results]
    assert logits == sorted(logits, reverse=True)
    for result, logit in zip(results, logits, strict=True):
        assert result["score_kind"] == "relevance"
        assert result["score"] == pytest.approx(1 / (1 + 2.718281828459045**-logit), abs=1e-9)
        assert 0 <= result["score"] <= 1


def test_what_lies_beyond_rerank_k_keeps_its_fused_order_below(client: TestClient) -> None:
    fused = search(client, rerank=False, top_k=100)
    body = search(client, rerank_k=3, top_k=100)
    assert body["rerank_k_used"] == 3
    assert set(ids(body)[:3]) == set(ids(fused)[:3])
    assert ids(body)[3:] == ids(fused)[3:]
    assert [result["score_kind"] for result in body["results"]] == ["relevance"] * 3 + ["rrf"] * (len(ids(fused)) - 3)
    assert body["results"][3]["scores"]["rerank_logit"] is None


def test_equal_passages_score_alike_and_stand_in_order_of_id(client: TestClient) -> None:
    """Case 3: duplicates are not merged, and a result points at its own document."""
    results = search(client, "which one is the answer", mode="dense", rerank=False, top_k=100)["results"]
    alphas = [result for result in results if result["text"] == "alpha"]
    assert [result["document_id"] for result in alphas] == ["alpha/1", "alpha/2"]
    assert alphas[0]["score"] == alphas[1]["score"]
    assert alphas[0]["rank"] + 1 == alphas[1]["rank"]


def test_more_than_there_is_gives_each_passage_once(client: TestClient) -> None:
    """Case 15: no row of -1, no duplicate of the last passage, no infinite score."""
    response = client.post("/v1/search", json={"query": QUERY, "top_k": 100, "retrieve_k": 1000, "rerank_k": 1000})
    found = ids(response.json())
    assert len(found) == len(set(found))
    assert not {"NaN", "Infinity", "-Infinity"} & set(response.text.replace(",", " ").replace(":", " ").split())


def test_explain_shows_the_rank_and_share_of_each_leg(client: TestClient) -> None:
    """Case 16: fusion is by rank, so a leg with one hit, equal hits or none needs no scale."""
    body = search(client, "beta", explain=True, top_k=100)
    first = next(result for result in body["results"] if result["document_id"] == "beta")
    assert first["explanation"]["bm25_rank"] == 1
    for result in body["results"]:
        why = result["explanation"]
        shares = [why["bm25_rrf"] or 0, why["dense_rrf"] or 0]
        assert sum(shares) == pytest.approx(result["scores"]["rrf"], abs=1e-12)
        assert shares[1] == pytest.approx(1 / (60 + why["dense_rank"]))
        assert (why["bm25_rank"] is None) == (result["scores"]["bm25"] == 0)


def test_explanations_are_given_on_request_only(client: TestClient) -> None:
    assert {result["explanation"] for result in search(client)["results"]} == {None}


@pytest.mark.parametrize("query", ["!!!", "...", "the of and", "🐝", "\u200b."])
def test_a_query_without_terms_finds_by_meaning_alone_and_says_so(client: TestClient, query: str) -> None:
    """Case 13: always 200; the lexical leg is empty."""
    body = search(client, query)
    assert "bm25:no_terms" in body["skipped"]
    assert body["results"]
    lexical = search(client, query, mode="bm25")
    assert (lexical["results"], lexical["n_candidates"]) == ([], 0)
    assert "rerank:nothing_retrieved" in lexical["skipped"]


def test_a_term_that_no_passage_has_is_no_match(client: TestClient) -> None:
    assert "bm25:no_match" in search(client, "zzyzx")["skipped"]


def test_highlights_are_the_words_that_share_a_term_with_the_query(client: TestClient) -> None:
    results = search(client, "keeping bee CAFE", top_k=100)["results"]
    result = next(each for each in results if each["document_id"] == "café")
    assert [result["text"][each["start"] : each["end"]] for each in result["highlights"]] == ["keeps", "bees", "café"]
    assert all(result["highlights"] == [] for result in search(client, highlight=False)["results"])


def test_a_passage_that_did_not_fit_is_marked_with_its_cut_tokens(client: TestClient) -> None:
    """Case 5: what the cross-encoder could not read is said, per result and for the whole response."""
    long_query = (
        "which harbour sells the honey that bees of the probe left on a tuesday over fog and bread in turku today"
    )
    body = search(client, long_query, top_k=100)
    cut = [result for result in body["results"] if result["truncated"]]
    assert body["truncated"] is True
    assert body["query_cut_tokens"] > 0
    assert body["n_passages_cut"] == len(cut)
    assert all((result["cut_tokens"] > 0) == result["truncated"] for result in body["results"])


def test_a_request_of_600_tokens_is_flagged_and_still_leaves_room_for_passages(client: TestClient) -> None:
    body = search(client, "honey " * 600)
    assert body["query_cut_tokens"] > 500
    assert len({result["scores"]["rerank_logit"] for result in body["results"]}) > 1


def test_the_same_request_gives_the_same_results(client: TestClient) -> None:
    assert search(client)["results"] == search(client)["results"]


def test_a_response_names_its_index_snapshot_and_stages(client: TestClient) -> None:
    body = search(client, index="default")
    [index] = client.get("/v1/indexes").json()["indexes"]
    assert (body["index"], body["snapshot"]) == (index["index"], index["snapshot"])
    assert (body["query"], index["n_documents"]) == (QUERY, len(DOCUMENTS))
    assert set(body["timings_ms"]) == {"encode", "retrieve", "fuse", "rerank", "respond", "total"}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.document_id)
def test_a_document_is_found_by_its_id_even_with_slashes(client: TestClient, document: Any) -> None:
    body = client.get(f"/v1/documents/{document.document_id}").json()
    assert (body["document_id"], body["text"], body["url"]) == (document.document_id, document.text, document.url)
    assert body["metadata"] == dict(document.metadata)


def test_explain_shows_the_weight_of_each_term_and_the_parts_of_the_relevance(client: TestClient) -> None:
    results = search(client, QUERY + " bees", explain=True, top_k=100)["results"]
    best = max(result["scores"]["bm25"] for result in results)
    for result in results:
        why, scores = result["explanation"], result["scores"]
        weights = [each["weight"] for each in why["bm25_terms"]]
        assert weights == sorted(weights, reverse=True)
        assert sum(weights) == pytest.approx(scores["bm25"], rel=1e-6)
        assert {each["term"]: each["n_in_query"] for each in why["bm25_terms"]}.get("bee", 2) == 2
        assert sum(why["relevance_parts"].values()) == pytest.approx(why["relevance_logit"], abs=1e-5)
        assert scores["bm25_share"] == pytest.approx(scores["bm25"] / best, abs=1e-6)
    [plain] = search(client, explain=True, rerank=False, mode="dense", top_k=1)["results"]
    assert plain["explanation"]["bm25_terms"] == []
    assert plain["explanation"]["relevance_parts"] is plain["scores"]["bm25_share"] is None


def test_the_relevance_has_a_share_of_bm25_in_every_mode(client: TestClient) -> None:
    """It's a score of the candidate's, whichever leg found it."""
    asked = {"explain": True, "top_k": 100, "settle_k": 0}
    hybrid, dense = (search(client, QUERY + " bees", mode=mode, **asked)["results"] for mode in ("hybrid", "dense"))
    shares = [{each["passage_id"]: each["scores"]["bm25_share"] for each in found} for found in (hybrid, dense)]
    assert shares[0] == shares[1]
    assert max(shares[0].values()) == 1
    [nothing] = search(client, "zzz", mode="dense", top_k=1)["results"]
    assert nothing["scores"]["bm25_share"] == 0


@pytest.mark.parametrize(("mode", "kind"), [("hybrid", "rrf"), ("dense", "dense"), ("bm25", "bm25")])
def test_min_score_keeps_what_reaches_it_on_the_scale_that_orders(client: TestClient, mode: str, kind: str) -> None:
    for fields in ({"mode": mode}, {"mode": mode, "rerank": False}):
        whole = search(client, top_k=100, **fields)
        limit = whole["results"][len(whole["results"]) // 2]["score"]
        kept = search(client, top_k=100, min_score=limit, **fields)
        assert kept["results"] == [each for each in whole["results"] if each["score"] >= limit]
        assert {each["score_kind"] for each in kept["results"]} == {"relevance" if "rerank" not in fields else kind}
        assert kept["n_below_min_score"] == len(whole["results"]) - len(kept["results"]) > 0
        assert kept["n_candidates"] == whole["n_candidates"]


def test_min_score_leaves_out_what_was_not_reranked(client: TestClient) -> None:
    body = search(client, rerank_k=2, min_score=0, top_k=100)
    assert [each["score_kind"] for each in body["results"]] == ["relevance"] * 2
    assert body["n_below_min_score"] == body["n_candidates"] - 2


@pytest.mark.parametrize("min_score", [-0.1, 1.5, 9])
def test_a_min_score_beyond_the_scale_of_relevance_is_refused(client: TestClient, min_score: float) -> None:
    """Case 1: a threshold for logits does nothing on the scale from 0 to 1, and says so."""
    response = client.post("/v1/search", json={"query": QUERY, "min_score": min_score})
    assert response.status_code == 422
    assert "from 0 to 1" in response.json()["errors"][0]["detail"]
    search(client, min_score=min_score, rerank=False)


def test_grouped_by_document_the_best_passage_stands_for_each(client: TestClient) -> None:
    whole = search(client, top_k=100)["results"]
    grouped = search(client, top_k=100, group_by_document=True)["results"]
    names = [each["document_id"] for each in whole]
    assert len(set(names)) < len(names), "some document has several passages"
    assert [each["document_id"] for each in grouped] == list(dict.fromkeys(names))
    assert [each["rank"] for each in grouped] == list(range(1, len(grouped) + 1))
    for each in grouped:
        best = next(other for other in whole if other["document_id"] == each["document_id"])
        assert (each["passage_id"], each["score"]) == (best["passage_id"], best["score"])
        assert each["n_document_candidates"] == names.count(each["document_id"])
    pages = [search(client, top_k=2, offset=at, group_by_document=True)["results"] for at in range(0, len(grouped), 2)]
    assert [each for page in pages for each in page] == grouped
    assert {each["n_document_candidates"] for each in whole} == {None}


def test_a_batch_answers_each_search_as_if_it_were_alone(client: TestClient) -> None:
    searches: list[dict[str, Any]] = [
        {"query": QUERY, "top_k": 2},
        {"query": "beta", "rerank": False, "explain": True},
        {"query": "!!!", "mode": "bm25"},
    ]
    response = client.post("/v1/search/batch", json={"searches": searches, "index": "default"})
    assert response.status_code == 200, response.text
    batch = response.json()
    alone = [search(client, **each) for each in searches]
    for one, other in zip(batch["responses"], alone, strict=True):
        assert one["request_id"] == batch["request_id"]
        timeless = {"request_id", "timings_ms"}
        assert {k: v for k, v in one.items() if k not in timeless} == {
            k: v for k, v in other.items() if k not in timeless
        }


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"searches": []}, "#/searches"),
        ({"searches": [{"query": "a"}] * 65}, "#/searches"),
        ({"searches": [{"query": "a"}, {"query": " "}]}, "#/searches/1/query"),
        ({"searches": [{"query": "a", "index": "default"}]}, "#/searches/0/index"),
    ],
)
def test_a_bad_search_of_a_batch_is_named(client: TestClient, body: dict[str, Any], pointer: str) -> None:
    response = client.post("/v1/search/batch", json=body)
    assert response.status_code == 422
    assert [fault["pointer"] for fault in response.json()["errors"]] == [pointer]
