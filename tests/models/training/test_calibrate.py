"""What a reader learns of its own scores, and the collection that a reranker is tuned on."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from models.calibration import sigmoid
from models.errors import DataError
from models.folder import open_model_folder
from models.reader import Reader
from models.session import Runtime
from models.training.beir import read_beir
from models.training.calibrate import ReadQuestions, fit_answer, read_all
from models.training.collection import write_collection
from models.training.data import LabelledQuestion
from tests.conftest import TinyModels

QUESTIONS = [
    LabelledQuestion("q1", "t", "the keeper was in the tower", "who was it", ((22, "tower"),), "qed_train"),
    LabelledQuestion("q2", "t", "lima is the capital of peru", "what is it", ((0, "lima"),), "qamr_dev"),
    LabelledQuestion("q3", "t", "bees in porto", "where is the ship", (), "qed_train"),
]


def read(*questions: tuple[float, float, bool]) -> ReadQuestions:
    """Return questions as (margin, F1 of the best span, answerable), each ten times."""
    margins, f1, answerable = zip(*(question for question in questions for _ in range(10)), strict=True)
    return ReadQuestions(np.array(margins, np.float64), np.array(f1, np.float64), np.array(answerable, np.bool_))


# Right answers at the margins 4 and 2, a wrong one at 3, unanswerable questions at 1 and 0.
WORKED = read((4, 1, True), (3, 0, True), (2, 1, True), (1, 0, False), (0, 0, False))


def made_read(n: int, *, n_answerable: int) -> ReadQuestions:
    """Return questions whose answers are right with the probability sigmoid(margin - 1)."""
    generator = np.random.default_rng(4)
    answerable = np.arange(n) < n_answerable
    margins = generator.normal(size=n) * 2 + np.where(answerable, 2.0, -2.0)
    return ReadQuestions(margins, (answerable & (generator.random(n) < sigmoid(margins - 1))).astype(float), answerable)


def test_a_question_is_read_as_the_reader_reads_it(tiny_models: TinyModels) -> None:
    reader = Reader(open_model_folder(str(tiny_models.reader), "reader"), Runtime(1))
    done: list[int] = []
    found = read_all(reader, QUESTIONS * 30, done.append)
    assert done == [64, 90]
    expected = [reader.read(each.query, [each.passage], n_best=1).answers[0].null_margin for each in QUESTIONS]
    assert found.margins[:3].tolist() == expected
    assert found.is_answerable[:3].tolist() == [True, True, False]
    assert found.f1[2] == 0
    assert ((found.f1 >= 0) & (found.f1 <= 1)).all()


def test_the_threshold_of_best_f1_worked_example() -> None:
    """Answering from 2 on: F1 2/3 of the answerable, 1 of the others; balanced (2/3 + 1) / 2, by numbers 4/5."""
    balanced = fit_answer(WORKED, origin="made")
    assert balanced.calibration.threshold == 1.5
    assert [balanced.f1, balanced.precision] == pytest.approx([5 / 6, 2 / 3])
    assert balanced.coverage == pytest.approx(0.5)
    assert (balanced.n_questions, balanced.n_answerable, balanced.calibration.n_examples) == (50, 30, 50)
    counted = fit_answer(WORKED, origin="made", balances=False)
    assert counted.calibration.threshold == 1.5
    assert [counted.f1, counted.coverage] == pytest.approx([0.8, 0.6])


def test_balance_decides_between_answering_and_silence() -> None:
    """Silence below 2.5 loses 40 of 50 right answers and wins all 10 others: .6 balanced, but 20/60 by number."""
    lopsided = ReadQuestions(
        np.array([5.0] * 10 + [2.0] * 40 + [2.5] * 10),
        np.array([1.0] * 50 + [0.0] * 10),
        np.array([True] * 50 + [False] * 10),
    )
    assert fit_answer(lopsided, origin="made", balances=False).calibration.threshold < 2.5
    assert fit_answer(lopsided, origin="made").calibration.threshold > 2.5


def test_a_wanted_precision_takes_the_lowest_threshold_that_reaches_it() -> None:
    """Answering from 4, 3, 2 on is right in 1, 1/2, 2/3 of the cases."""
    assert fit_answer(WORKED, origin="made", precision=0.6).calibration.threshold == 1.5
    strict = fit_answer(WORKED, origin="made", precision=0.9)
    assert (strict.calibration.threshold, strict.precision) == (3.5, 1.0)
    assert strict.coverage == pytest.approx(1 / 6)


def test_a_precision_out_of_reach_names_the_best_one() -> None:
    wrong = read((4, 0, True), (3, 1, True), (2, 1, True), (1, 0, False), (0, 0, False))
    with pytest.raises(DataError, match=r"precision of 0\.9 on made; the best is 0\.667, at 1\.500, where 50\.0%"):
        fit_answer(wrong, origin="made", precision=0.9)


def test_a_precision_of_a_handful_of_answers_is_no_precision() -> None:
    few = ReadQuestions(np.array([5.0, 1, 0, -1]), np.array([1.0, 0, 0, 0]), np.array([True, True, False, False]))
    with pytest.raises(DataError, match="too few questions"):
        fit_answer(few, origin="made", precision=0.9)


def test_probabilities_are_right_on_average_and_the_error_is_that_of_questions_held_out() -> None:
    made = made_read(4_000, n_answerable=2_000)
    fit = fit_answer(made, origin="made")
    found = fit.calibration
    probabilities = sigmoid(found.margin_weight * made.margins + found.margin_bias)
    assert probabilities.mean() == pytest.approx((made.f1 >= 0.5).mean(), abs=1e-4)
    assert found.calibration_error == pytest.approx(fit.platt.calibration_error, abs=1e-4)
    assert 0 < fit.platt.calibration_error < 0.06
    assert sum(each.weight for each in fit.reliability) == pytest.approx(1)


def test_weights_make_unequal_shares_count_the_same() -> None:
    rare, even = (fit_answer(made_read(6_000, n_answerable=n), origin="made") for n in (1_000, 3_000))
    assert rare.calibration.threshold == pytest.approx(even.calibration.threshold, abs=0.6)
    by_number = fit_answer(made_read(6_000, n_answerable=1_000), origin="made", balances=False)
    assert by_number.calibration.threshold > rare.calibration.threshold + 0.3


@pytest.mark.parametrize(("is_answerable", "lacking"), [(True, "unanswerable"), (False, "answerable")])
def test_questions_of_one_kind_teach_no_threshold(is_answerable: bool, lacking: str) -> None:
    with pytest.raises(DataError, match=f"made holds no {lacking} question"):
        fit_answer(read((1, 1, is_answerable), (0, 0, is_answerable)), origin="made")


def test_a_margin_that_misleads_teaches_nothing() -> None:
    with pytest.raises(DataError, match="greater margin are not right more often"):
        fit_answer(read((0, 1, True), (1, 1, True), (3, 0, False), (4, 0, False)), origin="made")


def test_passages_without_a_span_are_never_answered() -> None:
    silent = read((-np.inf, 0, True), (2, 1, True), (1, 0, False))
    fit = fit_answer(silent, origin="made")
    assert np.isfinite(fit.calibration.threshold)
    assert fit.coverage == pytest.approx(0.25)


@pytest.mark.parametrize("spans", [0, 1])
def test_a_single_span_teaches_no_probability(spans: int) -> None:
    margins = np.array([2.0, -np.inf]) if spans else np.full(2, -np.inf)
    few = ReadQuestions(margins, np.array([1.0, 0.0]), np.array([True, False]))
    with pytest.raises(DataError, match=f"in made, {spans} of 2 passages hold a span; at least 2 are needed"):
        fit_answer(few, origin="made")
    two = ReadQuestions(np.array([2.0, 1.0]), np.array([1.0, 0.0]), np.array([True, False]))
    assert fit_answer(two, origin="made").calibration.margin_weight > 0


def test_ids_of_questions_may_repeat_or_hold_tabs(tmp_path: Path) -> None:
    asked = [replace(QUESTIONS[0], question_id=each) for each in ("same", "same", "a\tb")]
    assert write_collection(asked, [], tmp_path) == 3
    assert read_beir(tmp_path, "dev").judgements == {"q0": {"p0": 1}, "q1": {"p0": 1}, "q2": {"p0": 1}}


def test_questions_become_a_collection_that_reads_back(tmp_path: Path) -> None:
    assert write_collection(QUESTIONS, ["a distractor"], tmp_path) == 1
    collection = read_beir(tmp_path, "dev")
    assert collection.judgements == {"q0": {"p0": 1}}
    assert collection.queries == {"q0": "who was it"}
    assert len((tmp_path / "corpus.jsonl").read_text().splitlines()) == 4
    assert json.loads((tmp_path / "corpus.jsonl").read_text().splitlines()[3])["text"] == "a distractor"
