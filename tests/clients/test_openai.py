"""OpenAI's own client, and LangChain's embeddings over it."""

import asyncio
from collections.abc import Iterator

import httpx2
import numpy as np
import openai
import pytest
from langchain_openai import OpenAIEmbeddings
from pydantic import SecretStr

from tests.e2e.processes import RunningService

from .conftest import DOCUMENTS

TEXTS = [text for text in DOCUMENTS if text]


@pytest.fixture(scope="module")
def client(service: RunningService) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{service.url}/v1", api_key="no key", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def langchain(service: RunningService) -> Iterator[OpenAIEmbeddings]:
    with httpx2.Client() as http_client:
        yield OpenAIEmbeddings(
            base_url=f"{service.url}/v1",
            api_key=SecretStr("no key"),
            model="any",
            # Otherwise it sends token ids, and looks for OpenAI's tokenizer in the network to make them.
            check_embedding_ctx_length=False,
            http_client=http_client,
        )


def test_numbers_and_bytes_are_the_same_vectors(client: openai.OpenAI) -> None:
    numbers = client.embeddings.create(model="text-embedding-3-small", input=TEXTS, encoding_format="float")
    by_default = client.embeddings.create(model="text-embedding-3-small", input=TEXTS)  # which asks for base64
    assert [each.index for each in numbers.data] == [0, 1, 2]
    found = np.array([each.embedding for each in numbers.data], np.float32)
    assert np.array_equal(found, np.array([each.embedding for each in by_default.data], np.float32))
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)
    assert numbers.usage.total_tokens == numbers.usage.prompt_tokens > 0
    assert numbers.object == "list"


def test_one_text_as_a_query(client: openai.OpenAI) -> None:
    response = client.embeddings.create(model="any", input=TEXTS[0], user="me", extra_body={"input_type": "query"})
    assert len(response.data) == 1


def test_the_asynchronous_client_gets_the_same(service: RunningService, client: openai.OpenAI) -> None:
    async def embed() -> list[float]:
        async with openai.AsyncOpenAI(base_url=f"{service.url}/v1", api_key="no key") as asynchronous:
            response = await asynchronous.embeddings.create(model="any", input=TEXTS[0])
            found: list[float] = response.data[0].embedding
            return found

    assert asyncio.run(embed()) == client.embeddings.create(model="any", input=TEXTS[0]).data[0].embedding


def test_what_was_cut_is_said(client: openai.OpenAI) -> None:
    [short, long] = client.embeddings.create(model="any", input=["word", "word " * 1000]).data
    assert [short.to_dict()["truncated"], long.to_dict()["truncated"]] == [False, True]


def test_faults_reach_the_caller_with_their_reasons(client: openai.OpenAI) -> None:
    with pytest.raises(openai.UnprocessableEntityError, match="cannot be shortened"):
        client.embeddings.create(model="any", input=TEXTS, dimensions=8)
    with pytest.raises(openai.UnprocessableEntityError, match="Token ids are not taken"):
        client.embeddings.create(model="any", input=[[1, 2, 3]])
    with pytest.raises(openai.UnprocessableEntityError, match="white space"):
        client.embeddings.create(model="any", input="")


def test_langchain_embeds_documents_and_queries(langchain: OpenAIEmbeddings, client: openai.OpenAI) -> None:
    expected = [each.embedding for each in client.embeddings.create(model="any", input=TEXTS).data]
    assert langchain.embed_documents(TEXTS) == expected
    assert langchain.embed_query(TEXTS[0]) == expected[0]
