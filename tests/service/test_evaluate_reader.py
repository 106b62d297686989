"""The reader's figures: by hand, and from the real command over a small file."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from models.bootstrap import Interval
from models.reader import Answer, Decision, Reading
from models.training.data import LabelledQuestion
from service.evaluate_reader import ReadQuestion, intervals, judge, quality
from tests.service.commands import tercet_with
from tests.service.conftest import TinyModels

PASSAGE = "The lighthouse keeper reads the tide in the harbour."


def labelled(*answers: str) -> LabelledQuestion:
    return LabelledQuestion("q", "", PASSAGE, "who reads", tuple((PASSAGE.index(text), text) for text in answers))


def reading(text: str, margin: float, *, is_no_answer: bool) -> Reading:
    start = PASSAGE.index(text)
    answer = Answer(0, start, start + len(text), text, margin, margin, 0.5)
    return Reading([answer], Decision(is_no_answer, 0.0, margin, margin, 0.0, "none"), 0)


def test_a_reading_is_judged_by_its_best_span_and_by_its_decision() -> None:
    """`lighthouse keeper` against `keeper`: precision 1/2, recall 1, F1 2/3."""
    question = labelled("keeper", "tide")
    given = judge(question, reading("lighthouse keeper", 1.5, is_no_answer=False))
    assert (given.exact_match, given.f1, given.margin) == pytest.approx((0.0, 2 / 3, 1.5))
    kept = judge(question, reading("keeper", -1.0, is_no_answer=True))
    assert (kept.exact_match, kept.f1, kept.answered_exact_match) == (0.0, 0.0, 1.0)
    unanswerable = labelled()
    assert judge(unanswerable, reading("keeper", -1.0, is_no_answer=True)).f1 == 1.0
    assert judge(unanswerable, reading("keeper", 1.0, is_no_answer=False)).f1 == 0.0


def test_a_passage_without_a_span_is_no_answer() -> None:
    nothing = Reading([], Decision(True, None, None, None, 0.0, "none"), 0)
    assert judge(labelled(), nothing).f1 == 1.0
    found = judge(labelled("keeper"), nothing)
    assert (found.f1, found.answered_f1, found.margin) == (0.0, 0.0, -np.inf)


def test_the_figures_equal_those_worked_by_hand() -> None:
    """Margins 3, 1, -1 (answerable, F1 1, .5, 1), 2, -2 (not); decided at 0: F1 = (1 + .5 + 0 + 0 + 1) / 5 = .5.

    Best threshold: above 2 gives (1 + 0 + 0 + 1 + 1) / 5 = .6; above -2 gives (1 + .5 + 1 + 0 + 1) / 5 = .7, the best.
    """
    found = quality(
        [
            ReadQuestion(True, True, 3.0, 1.0, 1.0),
            ReadQuestion(True, True, 1.0, 0.0, 0.5),
            ReadQuestion(True, False, -1.0, 1.0, 1.0),
            ReadQuestion(False, True, 2.0, 0.0, 0.0),
            ReadQuestion(False, False, -2.0, 0.0, 0.0),
        ],
        threshold=0.0,
        origin="by hand",
    )
    assert (found.n_questions, found.n_answerable) == (5, 3)
    assert (found.exact_match, found.f1) == pytest.approx((0.4, 0.5))
    assert found.best_threshold_f1 == pytest.approx(0.7)
    assert -2 < found.best_threshold <= -1
    assert found.has_answer_exact_match == pytest.approx(1 / 3)
    assert found.has_answer_f1 == pytest.approx(0.5)
    assert found.has_answer_exact_match_without_null == pytest.approx(2 / 3)
    assert found.has_answer_f1_without_null == pytest.approx(2.5 / 3)
    assert found.no_answer_accuracy == pytest.approx(0.5)


def test_figures_over_no_question_are_none() -> None:
    only_answerable = quality([ReadQuestion(True, True, 1.0, 1.0, 1.0)], threshold=0.0, origin="none")
    assert only_answerable.no_answer_accuracy is None
    assert only_answerable.has_answer_f1 == 1.0
    only_unanswerable = quality([ReadQuestion(False, False, 1.0, 0.0, 0.0)], threshold=0.0, origin="none")
    assert (only_unanswerable.has_answer_f1, only_unanswerable.no_answer_accuracy) == (None, 1.0)


def test_intervals_are_of_the_means_that_they_are_named_after() -> None:
    """Of 40 answerable questions half are right and answered, the rest withheld: F1 .5 ± .155; the others are sure."""
    half = [ReadQuestion(True, True, 1.0, 1.0, 1.0), ReadQuestion(True, False, -1.0, 1.0, 1.0)] * 20
    found = intervals(half)
    sure, no_answer = found["has_answer_f1_without_null"], found["no_answer_accuracy"]
    assert (sure, no_answer) == (Interval(1.0, 1.0), None)
    for name in ("exact_match", "f1", "has_answer_exact_match", "has_answer_f1"):
        interval = found[name]
        assert interval is not None
        assert interval.low < 0.5 < interval.high
        assert interval.half_width == pytest.approx(0.155, abs=0.02)


def test_the_command_reads_a_compressed_file(tiny_models: TinyModels, tmp_path: Path) -> None:
    tercet = tercet_with(tiny_models, tmp_path / "data")
    path = tmp_path / "questions.jsonl.gz"
    records = [
        {
            "id": str(number),
            "title": "",
            "context": PASSAGE,
            "question": "who reads the tide",
            "answers": [{"text": "keeper", "answer_start": PASSAGE.index("keeper")}] if number % 2 else [],
        }
        for number in range(70)
    ]
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)
    found = tercet("evaluate", "--questions", path, "--json").result
    assert (found["n_questions"], found["n_answerable"]) == (70, 35)
    assert 0 <= found["f1"] <= found["best_threshold_f1"] <= 1
    assert found["has_answer_f1"] <= found["has_answer_f1_without_null"]
    low, high = found["intervals_95"]["f1"]
    assert low <= found["f1"] <= high
    shown = tercet("evaluate", tiny_models.reader, "--dataset", path, "--queries", "3")
    assert (shown.code, "3 questions, 1 of them answerable" in shown.stdout) == (0, True)
    assert "F1 at the best threshold for this file" in shown.stdout


def test_a_malformed_file_is_one_sentence_with_its_line(tiny_models: TinyModels, tmp_path: Path) -> None:
    tercet = tercet_with(tiny_models, tmp_path / "data")
    path = tmp_path / "questions.jsonl"
    path.write_text('{"id": "1", "context": "a", "question": "b", "answers": []}\n{"id": "2"}\n')
    done = tercet("evaluate", "--questions", path)
    assert done.code == 1
    assert f"{path}, line 2: " in done.sentence
    path.write_text("")
    assert "holds no question" in tercet("evaluate", "--questions", path).sentence
    contents = {"cut.jsonl.gz": gzip.compress(b"{}")[:-9], "plain.jsonl.gz": b"{}", "bytes.jsonl": b"\xff"}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
        done = tercet("evaluate", "--questions", tmp_path / name)
        assert done.code == 1, name
        assert done.sentence
