"""What an answer returns, through the ASGI app, with tiny random models: offsets, decision, honesty."""

from typing import Any

import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.answers import context_around, utf16_length

from .conftest import whole_text

ALWAYS = -1e6  # a threshold that every span passes
NEVER = 1e6


def answer(client: TestClient, query: str = "who keeps bees", **fields: Any) -> dict[str, Any]:
    response = client.post("/v1/answer", json={"query": query, **fields})
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    return body


def own(*texts: str) -> list[dict[str, str]]:
    return [{"id": str(i), "text": text} for i, text in enumerate(texts)]


def assert_is_slice(found: dict[str, Any], text: str) -> None:
    utf16 = text.encode("utf-16-le", "surrogatepass")
    assert found["text"] == text[found["start"] : found["end"]]
    assert found["text"] == utf16[2 * found["start_utf16"] : 2 * found["end_utf16"]].decode("utf-16-le")
    assert found["context"] == text[found["context_start"] : found["context_start"] + len(found["context"])]
    assert found["context_start"] <= found["start"]
    assert found["end"] <= found["context_start"] + len(found["context"])


def test_an_answer_from_the_index_is_a_slice_of_the_whole_document(client: TestClient) -> None:
    passages = client.post("/v1/search", json={"query": "who keeps bees", "top_k": 100}).json()["results"]
    places = {passage["passage_id"]: (passage["start"], passage["end"]) for passage in passages}
    body = answer(client, top_k=20, read_k=50, no_answer_threshold=ALWAYS)
    assert len(body["answers"]) == 20
    for found in body["answers"]:
        start, end = places[found["passage_id"]]
        assert start <= found["start"] < found["end"] <= end
        assert_is_slice(found, whole_text(found["document_id"]))


def test_offsets_count_code_points_and_utf16_units(client: TestClient) -> None:
    """Case 7: emoji take one code point and two units."""
    text = "🚀🚀 The probe left from Kourou 👩‍🚀 on Tuesday."
    for found in answer(client, passages=own(text), top_k=20, no_answer_threshold=ALWAYS)["answers"]:
        assert_is_slice(found, text)
    assert (text.index("Kourou"), utf16_length(text[: text.index("Kourou")])) == (23, 25)
    assert (text.index("Tuesday"), utf16_length(text[: text.index("Tuesday")])) == (37, 41)


def test_carriage_returns_shift_nothing(client: TestClient) -> None:
    """Case 8: offsets refer to the text as it was sent."""
    text = "Line one.\r\nLine two.\r\n\r\nThe vault code is 4471.\r\n"
    for found in answer(client, passages=own(text), top_k=20, no_answer_threshold=ALWAYS)["answers"]:
        assert_is_slice(found, text)


@given(text=st.text(max_size=300))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_span_is_a_slice_for_every_text(client: TestClient, text: str) -> None:
    body = answer(client, passages=own(text, "🐝 " + text), top_k=20, no_answer_threshold=ALWAYS)
    for found in body["answers"]:
        assert found["text"].strip()
        assert_is_slice(found, ("" if found["document_id"] == "0" else "🐝 ") + text)


def test_no_padding_or_special_token_is_ever_an_answer(client: TestClient) -> None:
    """Case 9: fewer answers than asked for is fine."""
    texts = ["Ana keeps bees in Porto.", "Ben keeps bees in Turku"]
    found = answer(client, "who keeps bees in Porto", passages=own(*texts), top_k=10)["answers"]
    assert found
    assert all(each["text"] in texts[int(each["passage_id"])] for each in found)


@pytest.mark.parametrize("passages", [own(""), own("   "), own("", "\n", "\u200b"), []])
def test_nothing_to_read_is_no_answer(client: TestClient, passages: list[dict[str, str]]) -> None:
    """Case 10: status 200, no text, the threshold is shown."""
    body = answer(client, "what is the capital of Belarus", passages=passages)
    assert (body["answer"], body["answers"]) == (None, [])
    assert body["no_answer"]["is_no_answer"] is True
    assert body["no_answer"]["best_span_score"] is None
    assert isinstance(body["no_answer"]["threshold"], float)
    assert body["no_answer"]["reason"] == ("below_threshold" if passages else "nothing_retrieved")


def test_blank_passages_keep_the_others_in_their_places(client: TestClient) -> None:
    """Case 2: a span belongs to the passage that holds it, blanks or not."""
    texts = ["Lima is the capital of Peru.", "", "   ", "Potatoes come from the Andes."]
    body = answer(client, "capital of peru", passages=own(*texts), top_k=20, no_answer_threshold=ALWAYS)
    assert body["n_passages_read"] == 4
    assert {found["passage_id"] for found in body["answers"]} == {"0", "3"}
    for found in body["answers"]:
        assert_is_slice(found, texts[int(found["passage_id"])])


@pytest.mark.parametrize("threshold", [None, ALWAYS, NEVER])
@pytest.mark.parametrize("fields", [{}, {"passages": own("It rained yesterday.", "Bees sleep in winter.")}])
def test_the_decision_does_not_depend_on_top_k(
    client: TestClient, fields: dict[str, Any], threshold: float | None
) -> None:
    bodies = [answer(client, top_k=top_k, no_answer_threshold=threshold, **fields) for top_k in (1, 3, 10, 20)]
    assert len({str(body["no_answer"]) for body in bodies}) == 1
    assert len({str(body["answer"]) for body in bodies}) == 1
    assert all(body["answers"] == bodies[-1]["answers"][: len(body["answers"])] for body in bodies)


def test_the_answer_is_the_first_of_the_answers_and_its_margin_decides(client: TestClient) -> None:
    body = answer(client, no_answer_threshold=ALWAYS)
    assert body["answer"] == body["answers"][0]
    decision = body["no_answer"]
    assert (decision["is_no_answer"], decision["reason"], decision["threshold_origin"]) == (False, None, "request")
    assert decision["margin"] == body["answer"]["null_margin"]
    assert decision["margin"] == pytest.approx(decision["best_span_score"] - decision["null_score"], abs=1e-4)
    margins = [found["null_margin"] for found in body["answers"]]
    assert margins == sorted(margins, reverse=True)


def test_spans_are_listed_also_when_there_is_no_answer(client: TestClient) -> None:
    body = answer(client, no_answer_threshold=NEVER)
    assert body["answer"] is None
    assert body["answers"]
    assert (body["no_answer"]["reason"], body["no_answer"]["threshold"]) == ("below_threshold", NEVER)


def test_a_query_that_was_cut_is_another_reason_than_no_answer(client: TestClient) -> None:
    body = answer(client, "who " * 300, no_answer_threshold=NEVER)
    assert body["truncated"] is True
    assert body["query_cut_tokens"] > 0
    assert body["no_answer"]["reason"] == "truncated"


def test_a_query_without_any_match_retrieves_nothing(client: TestClient) -> None:
    body = answer(client, "xyzzy", mode="bm25")
    assert (body["answer"], body["no_answer"]["reason"]) == (None, "nothing_retrieved")


@pytest.mark.parametrize("place", [0.0, 0.31, 0.5, 0.97, 1.0])
def test_a_long_passage_is_read_to_its_end(client: TestClient, place: float) -> None:
    """Case 11: windows overlap, offsets are those of the passage, and a span is listed once."""
    words = ["tide"] * 1200
    words.insert(round(place * 1200), "The lighthouse keeper was Ingrid Vale.")
    text = " ".join(words)
    found = answer(client, passages=own(text), top_k=20, no_answer_threshold=ALWAYS)["answers"]
    spans = [(each["start"], each["end"]) for each in found]
    assert len(spans) == len(set(spans))
    for each in found:
        assert_is_slice(each, text)


def test_own_passages_need_no_index_and_name_none(client: TestClient) -> None:
    body = answer(client, passages=[{"id": "a/b ü", "text": "Ana keeps bees."}], no_answer_threshold=ALWAYS)
    assert (body["index"], body["snapshot"], body["skipped"]) == (None, None, ["retrieve:own_passages"])
    assert (body["answer"]["document_id"], body["answer"]["passage_id"]) == ("a/b ü", "a/b ü")
    assert set(body["timings_ms"]) == {"read", "respond", "total"}


def test_the_stages_of_an_answer_are_those_of_a_search_and_read(client: TestClient) -> None:
    assert set(answer(client)["timings_ms"]) == {"encode", "retrieve", "fuse", "rerank", "read", "respond", "total"}


def test_a_context_ends_between_words_and_holds_the_span() -> None:
    text = "word " * 200
    left, right = context_around(text, 500, 504)
    assert text[left:right].split() == ["word"] * len(text[left:right].split())
    assert left <= 500 < 504 <= right
    assert (right - left) <= 4 + 2 * 240


@pytest.mark.parametrize(("start", "end"), [(0, 1000), (0, 0), (400, 400), (999, 1000)])
def test_a_context_without_white_space_ends_at_the_limit(start: int, end: int) -> None:
    left, right = context_around("x" * 1000, start, end)
    assert (left, right) == (max(0, start - 240), min(1000, end + 240))
