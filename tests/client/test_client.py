"""Every method of both clients against a real service: what comes back, as what it comes, and what was sent."""

import asyncio
import io
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import tercet_client
from tercet_client import (
    AnswerResponse,
    Client,
    EmbeddingsResponse,
    Filter,
    Health,
    InvalidRequest,
    Job,
    RerankResponse,
    Result,
    SearchResponse,
)
from tests.service.conftest import DOCUMENTS, whole_text

from .conftest import Both, Served

LINE = b'{"id": "fog", "text": "Fog over the harbour."}\n'


def upload(file: object, client: Any, **options: object) -> Any:
    return client.jobs.upload(file, **options)


def wait(job_id: str, client: Any) -> Any:
    return client.jobs.wait(job_id)


def test_a_search_gives_results_that_are_slices_of_their_documents(served: Served, both: Both) -> None:
    found = both(served.url, lambda client: client.search("who keeps bees", top_k=3, explain=True, facets=["year"]))
    assert isinstance(found, SearchResponse)
    assert (found.index, found.query, len(found.results)) == ("default", "who keeps bees", 3)
    assert [result.rank for result in found.results] == [1, 2, 3]
    for result in found.results:
        assert isinstance(result, Result)
        assert whole_text(result.document_id)[result.start : result.end] == result.text
        assert result.score == result.scores.relevance
        assert result.explanation is not None
        assert result.explanation.fused_rank >= 1
    assert [facet.field for facet in found.facets] == ["year"]
    assert found.timings_ms["total"] > 0


def test_options_arrive_and_those_that_are_none_are_left_out(served: Served, both: Both) -> None:
    only: Filter = {"and": [{"field": "year", "gte": 1999}, {"not": {"field": "is_cold", "equal": False}}]}
    found = both(served.url, lambda client: client.search("bees", filter=only, mode="bm25", rerank=False, index=None))
    assert [result.document_id for result in found.results] == ["turku"]
    assert (found.results[0].score_kind, found.rerank_k_used) == ("bm25", 0)
    assert found.filter.n_documents == 1
    own = [{"id": "a", "text": "Ana keeps bees in Porto."}]
    read = both(served.url, lambda client: client.answer("who keeps bees", passages=own, index=None, read_k=None))
    assert read.n_passages_read == 1


def test_a_batch_gives_a_response_for_each_search(served: Served, both: Both) -> None:
    searches = [{"query": "bees", "top_k": 1}, {"query": "harbour", "mode": "dense"}]
    found = both(served.url, lambda client: client.search_batch(searches, index="default"))
    assert [each.query for each in found.responses] == ["bees", "harbour"]
    assert len(found.responses[0].results) == 1
    assert {each.request_id for each in found.responses} == {found.request_id}


def test_an_answer_is_a_slice_of_its_document_and_of_its_context(served: Served, both: Both) -> None:
    found = both(served.url, lambda client: client.answer("where did the probe go", no_answer_threshold=-1e6))
    assert isinstance(found, AnswerResponse)
    assert found.answer == found.answers[0]
    assert found.no_answer.is_no_answer is False
    for answer in found.answers:
        assert whole_text(answer.document_id)[answer.start : answer.end] == answer.text
        before, text, after = answer.split_context()
        assert (before + text + after, text) == (answer.context, answer.text)


def test_no_answer_is_none_with_the_decision(served: Served, both: Both) -> None:
    found = both(served.url, lambda client: client.answer("where", no_answer_threshold=1e6))
    assert found.answer is None
    assert found.no_answer.reason == "below_threshold"
    assert found.no_answer.margin < found.no_answer.threshold == 1e6


def test_documents_of_ones_own_are_ranked(served: Served, both: Both) -> None:
    documents = ["fog over the harbour", {"text": "Ana keeps bees.", "id": 7}, "", "bees " * 100]
    options = {"window": True, "return_documents": True, "raw_scores": True}
    ranked = both(served.url, lambda client: client.rerank("who keeps bees", documents, **options))
    assert isinstance(ranked, RerankResponse)
    assert (ranked.model, ranked.score_kind) == ("tiny-cross-encoder", "rerank_logit")
    assert sorted(each.index for each in ranked.results) == [0, 1, 2, 3]
    by_index = {each.index: each for each in ranked.results}
    assert by_index[1].document == documents[1]
    assert by_index[3].best_window is not None
    assert (ranked.results[-1].index, ranked.results[-1].unscored) == (2, "blank")
    scores = [each.relevance_score for each in ranked.results]
    assert scores == sorted(scores, reverse=True)
    few = both(served.url, lambda client: client.rerank("who keeps bees", documents, top_n=1, min_score=None))
    assert [each.index for each in few.results] == [ranked.results[0].index]
    assert 0 <= few.results[0].relevance_score <= 1
    assert both(served.url, lambda client: client.rerank("who", [])).results == ()


def test_texts_are_encoded(served: Served, both: Both) -> None:
    texts = ("bees", "bees " * 100)
    encoded = both(served.url, lambda client: client.embeddings(texts, input_type="passage"))
    assert isinstance(encoded, EmbeddingsResponse)
    assert [(each.index, each.truncated, len(each.embedding)) for each in encoded.data] == [
        (0, False, 32),
        (1, True, 32),
    ]
    assert sum(number * number for number in encoded.data[0].embedding) == pytest.approx(1, abs=1e-6)
    [alone] = both(served.url, lambda client: client.embeddings("bees")).data
    assert alone == encoded.data[0]
    with pytest.raises(InvalidRequest, match="#/input/1"):
        both(served.url, lambda client: client.embeddings(texts, truncate=False))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.document_id)
def test_a_document_comes_back_whatever_its_id(served: Served, both: Both, document: object) -> None:
    assert isinstance(document, type(DOCUMENTS[0]))
    found = both(served.url, lambda client: client.document(document.document_id, index="default"))
    assert (found.document_id, found.text, found.url) == (document.document_id, document.text, document.url)
    assert dict(found.metadata) == dict(document.metadata)


def test_indexes_and_probes(served: Served, both: Both) -> None:
    [index] = both(served.url, lambda client: client.indexes())
    assert (index.index, index.n_documents) == ("default", len(DOCUMENTS))
    assert both(served.url, lambda client: client.health()) == Health("alive")
    ready = both(served.url, lambda client: client.ready())
    assert set(ready.engines) == {"dual_encoder", "cross_encoder", "reader"}
    assert both(served.url, lambda client: client.wait_until_ready()) is None


def test_a_job_is_followed_to_its_end(served: Served, both: Both) -> None:
    told: list[Job] = []

    def run(client: Client) -> Job:
        taken = client.jobs.submit("manuals", index="followed", on_error="fail", update=False)
        return client.jobs.wait(taken.job_id, on_change=told.append)

    async def run_async(client: tercet_client.AsyncClient) -> Job:
        taken = await client.jobs.submit("manuals", index="followed", on_error="fail", update=False)
        return await client.jobs.wait(taken.job_id, on_change=told.append)

    job = both(served.url, run_async if both.is_async else run)
    assert (job.state, job.error, job.is_over, job.on_error) == ("succeeded", None, True, "fail")
    assert job.result["n_documents"] == 1
    assert job.created_at <= job.started_at <= job.ended_at
    assert told[-1] == job
    assert len(told) == len(set(map(repr, told))) >= 2
    assert both(served.url, lambda client: client.jobs.get(job.job_id)) == job
    assert job in both(served.url, lambda client: client.jobs.list(limit=5))


def test_a_file_is_sent_by_its_path_or_open_from_where_it_stands(served: Served, both: Both, tmp_path: Path) -> None:
    path = tmp_path / "fog.jsonl"
    path.write_bytes(b"no record\n" + LINE)
    with path.open("rb") as file:
        file.readline()
        for sent, n_skipped in ((path, 1), (file, 0)):
            taken = both(served.url, partial(upload, sent, index="sent"))
            assert (taken.file_name, taken.source) == ("fog.jsonl", None)
            job = both(served.url, partial(wait, taken.job_id))
            assert (job.state, job.result["n_skipped"]) == ("succeeded", n_skipped)


def test_what_goes_with_a_file_arrives(served: Served, both: Both) -> None:
    options = {"file_name": "a b&c.jsonl", "index": "named", "update": True, "on_error": "fail", "timeout": 30}
    job = both(served.url, lambda client: client.jobs.upload(io.BytesIO(LINE), **options))
    assert (job.file_name, job.index, job.update, job.on_error) == ("a b&c.jsonl", "named", True, "fail")


@pytest.mark.parametrize(
    ("file", "fault"), [(io.BytesIO(LINE), "has no name"), (io.StringIO("text"), "opened in binary mode")]
)
def test_a_file_without_a_name_or_of_text_is_refused(served: Served, both: Both, file: object, fault: str) -> None:
    name = "a.txt" if isinstance(file, io.StringIO) else None
    with pytest.raises((ValueError, TypeError), match=fault):
        both(served.url, lambda client: client.jobs.upload(file, file_name=name))


def test_a_type_checker_sees_an_option_that_there_is_not_and_the_service_refuses_it(served: Served) -> None:
    with Client(served.url) as client:
        with pytest.raises(InvalidRequest, match="#/tpo_k"):
            client.search("bees", tpo_k=3)  # type: ignore[call-arg]  # which is the claim
        with pytest.raises(InvalidRequest, match="#/filter"):
            client.search("bees", filter={"feild": "year", "equal": 1999})  # type: ignore[arg-type]  # too


def test_the_async_client_runs_calls_beside_each_other(served: Served) -> None:
    async def main() -> list[SearchResponse]:
        async with tercet_client.AsyncClient(served.url) as client:
            return await asyncio.gather(*(client.search(f"bees {i}") for i in range(8)))

    assert [found.query for found in asyncio.run(main())] == [f"bees {i}" for i in range(8)]
