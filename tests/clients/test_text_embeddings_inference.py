"""Clients of text-embeddings-inference and of Jina: Haystack's rankers and embedders, Hugging Face's own client."""

import httpx
import numpy as np
import pytest
from haystack import Document
from haystack.utils import Secret
from haystack_integrations.components.embedders.huggingface_api import HuggingFaceAPITextEmbedder
from haystack_integrations.components.embedders.jina import JinaDocumentEmbedder, JinaTextEmbedder
from haystack_integrations.components.rankers.huggingface_api import HuggingFaceTEIRanker, TruncationDirection
from haystack_integrations.components.rankers.jina import JinaRanker
from huggingface_hub import InferenceClient, close_session
from huggingface_hub.errors import HfHubHTTPError

from tests.e2e.processes import RunningService

from .conftest import DOCUMENTS, QUERY

KEY = Secret.from_token("no key")
LONG = "word " * 2000


def haystack_documents(*more: str) -> list[Document]:
    return [Document(content=text) for text in (*DOCUMENTS, *more)]


def ranking(service: RunningService) -> list[tuple[str, float]]:
    ranks = service.post("/rerank", query=QUERY, texts=DOCUMENTS).json()
    return [(DOCUMENTS[each["index"]], each["score"]) for each in ranks]


def vectors(service: RunningService, *texts: str) -> list[list[float]]:
    data = service.post("/v1/embeddings", input=texts).json()["data"]
    return [each["embedding"] for each in data]


def test_haystack_s_tei_ranker(service: RunningService) -> None:
    ranker = HuggingFaceTEIRanker(url=service.url, token=None, top_k=10)
    ranked = ranker.run(query=QUERY, documents=haystack_documents())["documents"]
    assert [(each.content, each.score) for each in ranked] == ranking(service)
    raw = HuggingFaceTEIRanker(url=service.url, token=None, raw_scores=True)
    logits = raw.run(query=QUERY, documents=haystack_documents(), top_k=3)["documents"]
    assert [each.content for each in logits] == [text for text, _ in ranking(service)[:3]]
    with_long = haystack_documents(LONG)
    cut = ranker.run(query=QUERY, documents=with_long, truncation_direction=TruncationDirection.RIGHT)["documents"]
    assert len(cut) == 5
    with pytest.raises(RuntimeError, match="A text is cut at its end only"):
        ranker.run(query=QUERY, documents=with_long, truncation_direction=TruncationDirection.LEFT)


def test_haystack_s_jina_ranker(service: RunningService) -> None:
    ranker = JinaRanker(api_key=KEY, base_url=f"{service.url}/v1/rerank")
    found = ranker.run(query=QUERY, documents=haystack_documents())
    assert [(each.content, each.score) for each in found["documents"]] == ranking(service)
    assert found["meta"]["usage"]["total_tokens"] > 0
    with pytest.raises(RuntimeError, match="values do not fit"):
        ranker.run(query=" ", documents=haystack_documents())


def test_haystack_s_jina_embedders(service: RunningService) -> None:
    url = f"{service.url}/v1/embeddings"
    query = JinaTextEmbedder(api_key=KEY, base_url=url, task="retrieval.query").run(text=QUERY)
    assert query["embedding"] == vectors(service, QUERY)[0]
    documents = [Document(content=text) for text in DOCUMENTS if text]
    embedder = JinaDocumentEmbedder(api_key=KEY, base_url=url, task="retrieval.passage", progress_bar=False)
    embedded = embedder.run(documents=documents)["documents"]
    assert [each.embedding for each in embedded] == vectors(service, *(str(each.content) for each in documents))


def test_haystack_s_tei_embedder(service: RunningService) -> None:
    embedder = HuggingFaceAPITextEmbedder(
        api_type="text_embeddings_inference", api_params={"url": f"{service.url}/embed"}, token=None
    )
    np.testing.assert_allclose(embedder.run(text=QUERY)["embedding"], vectors(service, QUERY)[0], atol=1e-7)


def test_hugging_face_s_client(service: RunningService) -> None:
    with InferenceClient(model=f"{service.url}/embed") as client:
        found = client.feature_extraction(DOCUMENTS[:2], normalize=True, truncate=True, truncation_direction="right")
        np.testing.assert_array_equal(found, np.array(vectors(service, *DOCUMENTS[:2]), np.float32))
        with pytest.raises(HfHubHTTPError, match="413") as raised:
            client.feature_extraction(LONG, truncate=False)
        assert raised.value.response.json()["type"] == "/problems/input-too-long"
    close_session()


def test_what_the_shape_does_not_know_is_there_as_well(service: RunningService) -> None:
    response = httpx.post(f"{service.url}/rerank", json={"query": QUERY, "texts": ["", LONG], "return_text": True})
    assert response.headers["x-score-kind"] in ("relevance", "rerank_sigmoid")
    assert [(each["unscored"], each["truncated"]) for each in response.json()] == [(None, True), ("blank", False)]
