"""The decision rule on chosen logits, and windows through a real tiny model."""

import numpy as np
import pytest

from models.folder import open_model_folder
from models.reader import Reader, ReaderTask, SpanLogits, without_edge_symbols
from models.session import Runtime
from tests.conftest import TinyModels


@pytest.fixture(scope="module")
def reader(tiny_models: TinyModels) -> Reader:
    return Reader(open_model_folder(str(tiny_models.reader), "reader"), Runtime(2))


def logits_for(task: ReaderTask, null: list[float], best: list[tuple[int, float]]) -> list[SpanLogits]:
    """Return logits of 0 but for [CLS], null[i] in all, and one passage token of each window, best[i] in all."""
    made = []
    for window, null_logit, (token, logit) in zip(task.windows, null, best, strict=True):
        start = np.zeros(window.input.ids.size, np.float32)
        start[0], start[window.input_start + token] = null_logit / 2, logit / 2
        made.append(SpanLogits(start, start.copy()))
    return made


def test_the_greatest_margin_answers_not_the_greatest_logit(reader: Reader) -> None:
    task = reader.prepare("who keeps bees", ["lima peru porto", "sea ship storm"])
    reading = reader.decide(task, logits_for(task, [8.0, 1.0], [(0, 10.0), (2, 6.0)]), n_best=2)
    assert [(answer.text, answer.null_margin) for answer in reading.answers] == [("storm", 5.0), ("lima", 2.0)]
    assert (reading.decision.null_score, reading.decision.best_span_score, reading.decision.margin) == (1.0, 6.0, 5.0)
    assert not reading.decision.is_no_answer


def test_a_tie_goes_to_the_better_ranked_passage(reader: Reader) -> None:
    task = reader.prepare("who keeps bees", ["lima peru", "sea ship"])
    reading = reader.decide(task, logits_for(task, [1.0, 1.0], [(1, 6.0), (0, 6.0)]), n_best=1)
    assert (reading.answers[0].passage_index, reading.answers[0].text) == (0, "peru")


def test_null_score_is_the_least_over_the_windows_of_a_passage(reader: Reader) -> None:
    task = reader.prepare("who keeps bees", ["sea " * 100])
    assert len(task.windows) == 2
    reading = reader.decide(task, logits_for(task, [3.0, -2.0], [(0, 4.0)] * 2), n_best=1)
    assert reading.decision.null_score == -2.0
    assert reading.answers[0].null_margin == 6.0


def test_the_decision_is_by_threshold_and_never_by_how_many_are_listed(reader: Reader) -> None:
    task = reader.prepare("who keeps bees", ["lima peru", "sea ship"])
    logits = logits_for(task, [1.0, 1.0], [(1, 4.0), (0, 3.0)])
    decisions = {reader.decide(task, logits, n_best=n, threshold=3.5).decision for n in (1, 2, 10)}
    assert len(decisions) == 1
    decision = decisions.pop()
    assert (decision.is_no_answer, decision.margin, decision.threshold_origin) == (True, 3.0, "request")
    assert not reader.decide(task, logits, n_best=1, threshold=3.0).decision.is_no_answer


@pytest.mark.parametrize("passages", [[], [""], ["", "   "]])
def test_nothing_to_read_is_no_answer(reader: Reader, passages: list[str]) -> None:
    reading = reader.read("what is the capital of peru", passages)
    assert reading.answers == []
    assert reading.decision.is_no_answer
    assert reading.decision.best_span_score is None


def test_every_answer_is_a_slice_of_its_passage(reader: Reader) -> None:
    passages = ["Lima 🚀 is\r\nthe capital of Peru.", "Ben keeps bees in Turku"]
    reading = reader.read("who keeps bees", passages, n_best=10, threshold=-100.0)
    assert len(reading.answers) > 1
    for answer in reading.answers:
        assert passages[answer.passage_index][answer.start : answer.end] == answer.text != ""
        assert 0.0 <= answer.score <= 1.0


def test_windows_together_hold_the_whole_passage_and_a_long_query_is_flagged(reader: Reader) -> None:
    passage = " ".join(f"sea {number}" for number in range(90))
    task = reader.prepare("ship " * 40, [passage])
    covered = {token for window in task.windows for token in range(window.passage_start, window.passage_end)}
    assert covered == set(range(task.tokens[0].ids.size))
    assert reader.decide(task, reader.run(task.inputs), n_best=1).query_cut == 16


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Kourou 👩‍🚀", "Kourou"),
        ("🚀🚀 Kourou", "Kourou"),
        ("45°", "45°"),
        ("🚀", "🚀"),
        ("C++", "C++"),
        ("日本 ☀️", "日本"),
    ],
)
def test_pictographs_at_the_edges_are_not_part_of_an_answer(text: str, kept: str) -> None:
    start, end = without_edge_symbols(text, 0, len(text))
    assert text[start:end] == kept
