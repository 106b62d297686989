"""Cohere's own client, of both versions of its API."""

import asyncio
import math
from collections.abc import Iterator

import cohere
import pytest

from tests.e2e.processes import RunningService

from .conftest import DOCUMENTS, QUERY


@pytest.fixture(scope="module")
def v1(service: RunningService) -> Iterator[cohere.Client]:
    with cohere.Client("no key", base_url=service.url) as client:
        yield client


@pytest.fixture(scope="module")
def v2(service: RunningService) -> Iterator[cohere.ClientV2]:
    with cohere.ClientV2("no key", base_url=service.url) as client:
        yield client


def test_v2_ranks_texts(v2: cohere.ClientV2) -> None:
    response = v2.rerank(model="rerank-v3.5", query=QUERY, documents=DOCUMENTS, top_n=None, max_tokens_per_doc=None)
    assert sorted(result.index for result in response.results) == [0, 1, 2, 3]
    scores = [result.relevance_score for result in response.results]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)
    assert (response.results[-1].index, response.results[-1].relevance_score) == (2, 0.0)
    assert response.id
    assert response.meta is not None
    assert response.meta.api_version is not None
    assert response.meta.billed_units is not None
    assert response.meta.tokens is not None
    assert (response.meta.api_version.version, response.meta.billed_units.search_units) == ("2", 1)
    assert response.meta.tokens.input_tokens > 0


@pytest.mark.usefixtures("bundled_models")
def test_the_relevant_text_is_first_in_both_versions(v1: cohere.Client, v2: cohere.ClientV2) -> None:
    new = v2.rerank(model="rerank-v3.5", query=QUERY, documents=DOCUMENTS, top_n=2)
    old = v1.rerank(query=QUERY, documents=DOCUMENTS, top_n=2)
    assert [result.index for result in new.results] == [result.index for result in old.results] == [1, 0]
    assert [result.relevance_score for result in new.results] == [result.relevance_score for result in old.results]


def test_v1_gives_documents_back_as_they_were_sent(v1: cohere.Client) -> None:
    documents = [{"text": DOCUMENTS[0], "page": "7"}, {"text": DOCUMENTS[1], "page": "8"}]
    response = v1.rerank(query=QUERY, documents=documents, return_documents=True, max_chunks_per_doc=10)
    for result in response.results:
        assert result.document is not None
        assert result.document.dict() == documents[result.index]
    by_page = v1.rerank(query=QUERY, documents=documents, rank_fields=["page"])
    assert {result.document for result in by_page.results} == {None}


def test_what_the_shape_does_not_know_is_there_as_well(v2: cohere.ClientV2) -> None:
    response = v2.rerank(
        model="any",
        query=QUERY,
        documents=[*DOCUMENTS, "word " * 2000],
        request_options={"additional_body_parameters": {"raw_scores": True}},
    )
    told = response.dict()
    assert (told["truncated"], told["n_documents_cut"]) == (True, 1)
    assert told["score_kind"] in ("relevance_logit", "rerank_logit")
    by_index = {result["index"]: result for result in told["results"]}
    assert (by_index[2]["unscored"], by_index[4]["truncated"]) == ("blank", True)
    plain = {r.index: r.relevance_score for r in v2.rerank(model="any", query=QUERY, documents=DOCUMENTS).results}
    assert 1 / (1 + math.exp(-by_index[1]["relevance_score"])) == pytest.approx(plain[1], abs=1e-9)


def test_the_asynchronous_client_gets_the_same(service: RunningService, v2: cohere.ClientV2) -> None:
    async def rerank() -> list[int]:
        async with cohere.AsyncClientV2("no key", base_url=service.url) as client:
            response = await client.rerank(model="any", query=QUERY, documents=DOCUMENTS)
            return [result.index for result in response.results]

    response = v2.rerank(model="any", query=QUERY, documents=DOCUMENTS)
    assert asyncio.run(rerank()) == [result.index for result in response.results]


def test_a_fault_reaches_the_caller_with_its_reason(v2: cohere.ClientV2) -> None:
    with pytest.raises(cohere.errors.UnprocessableEntityError) as raised:
        v2.rerank(model="any", query=QUERY, documents=DOCUMENTS, top_n=0)
    assert raised.value.body["errors"] == [{"pointer": "#/top_n", "detail": "It must be at least 1."}]
