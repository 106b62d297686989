"""The report's arithmetic and its file: worked examples, brute force, properties."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.reader import Answer, Decision, Reading
from models.training.data import LabelledQuestion
from service.commands.faults import CommandError
from service.evaluate_reader import QuestionRead, ReadQuestion, judge, quality
from service.report.curves import RIGHT_F1, threshold_curve
from service.report.destination import check_destination, write_atomically
from service.report.plots import coverage_plot, reliability_plot, threshold_plot
from service.report.rankings import clipped
from service.report.reading import answer_length, confident_errors, question_word
from service.report.reliability import error_above_first_bin, expected_calibration_error, reliability_bins

figures = st.builds(
    lambda is_answerable, margin, f1: ReadQuestion(
        is_answerable, margin >= 0, margin, float(is_answerable and f1 == 1), f1 * is_answerable
    ),
    st.booleans(),
    st.sampled_from([-np.inf, -2.0, -1.0, 0.0, 1.0, 3.0]),
    st.sampled_from([0.0, 0.4, 0.5, 1.0]),
)


def test_bins_and_error_of_the_worked_example() -> None:
    bins = reliability_bins(np.array([0.05, 0.09, 1.0]), np.array([False, True, True]))
    assert [(each.low, each.high, each.n) for each in bins] == [(0, 0.1, 2), (0.9, 1.0, 1)]
    assert [each.mean_score for each in bins] == pytest.approx([0.07, 1.0])
    assert [each.share_right for each in bins] == [0.5, 1.0]
    assert expected_calibration_error(bins) == pytest.approx(0.86 / 3)
    assert error_above_first_bin(bins) == 0
    assert error_above_first_bin(bins[:1]) is None


@settings(max_examples=50)
@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), max_size=30), st.integers(1, 12))
def test_error_equals_brute_force(pairs: list[tuple[float, bool]], n_bins: int) -> None:
    """Each bin's |sum of score - right|, over all; whole numbers of n * score decide the bin."""
    bins = reliability_bins(np.array([s for s, _ in pairs]), np.array([r for _, r in pairs], np.bool_), n_bins=n_bins)
    sums: dict[int, float] = {}
    for score, is_right in pairs:
        place = min(int(score * n_bins), n_bins - 1)
        sums[place] = sums.get(place, 0.0) + score - is_right
    expected = sum(abs(value) for value in sums.values()) / max(1, len(pairs))
    assert expected_calibration_error(bins) == pytest.approx(expected)
    assert sum(each.n for each in bins) == len(pairs)
    assert all(each.low <= each.mean_score <= each.high for each in bins)


def test_scores_that_are_the_true_probability_have_no_error() -> None:
    scores = np.repeat([0.25, 0.75], 4)
    assert expected_calibration_error(reliability_bins(scores, np.array([1, 0, 0, 0, 1, 1, 1, 0], np.bool_))) == 0
    assert expected_calibration_error(reliability_bins(np.ones(5), np.zeros(5, np.bool_))) == 1


def test_curve_of_the_worked_example() -> None:
    curve = threshold_curve(
        [
            ReadQuestion(True, True, 3.0, 1.0, 1.0),
            ReadQuestion(True, True, 1.0, 0.0, 0.4),
            ReadQuestion(False, True, 2.0, 0.0, 0.0),
        ]
    )
    assert curve.thresholds.tolist() == [1, 2, 3, 4]
    assert curve.f1 == pytest.approx([1.4 / 3, 1 / 3, 2 / 3, 1 / 3])
    assert curve.has_answer_f1 == pytest.approx([0.7, 0.5, 0.5, 0])
    assert curve.no_answer_accuracy == pytest.approx([0, 0, 1, 1])
    assert curve.coverage == pytest.approx([1, 2 / 3, 1 / 3, 0])
    assert curve.precision[:3] == pytest.approx([1 / 3, 1 / 2, 1])
    assert np.isnan(curve.precision[3])


@settings(max_examples=50)
@given(st.lists(figures, min_size=1, max_size=12))
def test_curve_equals_the_measures_at_each_threshold(read: list[ReadQuestion]) -> None:
    curve = threshold_curve(read)
    for i, threshold in enumerate(curve.thresholds.tolist()):
        decided = [
            ReadQuestion(
                each.is_answerable, each.margin >= threshold, each.margin, each.answered_exact_match, each.answered_f1
            )
            for each in read
        ]
        found = quality(decided, threshold=threshold, origin="brute force")
        assert curve.f1[i] == pytest.approx(found.f1)
        assert curve.exact_match[i] == pytest.approx(found.exact_match)
        for value, expected in (
            (curve.has_answer_f1[i], found.has_answer_f1),
            (curve.no_answer_accuracy[i], found.no_answer_accuracy),
        ):
            assert value == pytest.approx(np.nan if expected is None else expected, nan_ok=True)
        answered = [each for each in decided if each.is_answered]
        right = [each for each in answered if each.answered_f1 >= RIGHT_F1]
        assert curve.coverage[i] == pytest.approx(len(answered) / len(read))
        assert curve.precision[i] == pytest.approx(len(right) / len(answered) if answered else np.nan, nan_ok=True)


def test_a_curve_of_many_margins_keeps_its_ends() -> None:
    read = [ReadQuestion(True, True, float(margin), 1.0, 1.0) for margin in range(1000)]
    curve = threshold_curve(read, max_points=11)
    assert curve.thresholds.size == 12
    assert (curve.thresholds[0], curve.thresholds[-2], curve.thresholds[-1]) == (0, 999, 1000)


def test_plots_of_the_poorest_data_are_drawn() -> None:
    """One question without a span: no answerable one, no finite margin, no precision."""
    curve = threshold_curve([ReadQuestion(False, False, -np.inf, 0.0, 0.0)])
    one = reliability_bins(np.array([0.5]), np.array([True]))
    for svg in (
        threshold_plot(curve, threshold=0.0),
        coverage_plot(curve, threshold=0.0),
        reliability_plot(one, name="one", score="score", right="share right"),
    ):
        assert svg.startswith("<svg viewBox=")
        assert svg.rstrip().endswith("</svg>")
        assert "$" not in svg  # what matplotlib writes where it cannot typeset


def question_read(identity: str, margin: float, text: str, *answers: str) -> QuestionRead:
    passage = "the keeper reads the tide"
    start = passage.index(text)
    labels = tuple((passage.index(each), each) for each in answers)
    question = LabelledQuestion(identity, "", passage, "who reads", labels)
    best = Answer(0, start, start + len(text), text, margin, margin, 0.5)
    reading = Reading([best], Decision(margin < 0, 0.0, margin, margin, 0.0, "none"), 0)
    return QuestionRead(question, reading, 1, judge(question, reading))


def test_errors_are_answers_given_wrongly_and_right_ones_withheld() -> None:
    read = [
        question_read("right", 9.0, "keeper", "keeper"),
        question_read("wrong", 1.0, "tide", "keeper"),
        question_read("none there", 2.0, "tide"),
        question_read("withheld", -1.0, "keeper", "keeper"),
        question_read("withheld further", -3.0, "keeper", "keeper"),
        question_read("rightly silent", -3.0, "tide"),
    ]
    wrong, withheld = confident_errors(read)
    assert [each.question.question_id for each in wrong] == ["none there", "wrong"]
    assert [each.question.question_id for each in withheld] == ["withheld further", "withheld"]


def test_questions_are_grouped_by_their_first_question_word_and_answer() -> None:
    assert question_word("In WHICH year, and who?") == "which"
    assert question_word("Name the harbour") == "other"
    assert answer_length(question_read("q", 0.0, "tide", "the keeper reads", "keeper")) == "1 word"
    assert answer_length(question_read("q", 0.0, "tide", "the keeper reads the")) == "4–6 words"
    assert answer_length(question_read("q", 0.0, "tide")) == "no answer"


def test_what_is_cut_from_a_shown_text_is_marked() -> None:
    assert clipped("a  b\nc", 10) == "a b c"
    assert clipped("abcdef", 5) == "abcde …"
    assert clipped(f"a{' ' * 50}b", 5) == "a …"
    assert clipped("", 5) == ""


def test_a_report_replaces_a_file_whole(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    check_destination(path)
    assert list(tmp_path.iterdir()) == []
    write_atomically(path, "first")
    write_atomically(path, "säcond \ud800")
    assert path.read_text(encoding="utf-8") == "säcond ?"
    link = tmp_path / "link.html"
    link.symlink_to(path)
    check_destination(link)
    write_atomically(link, "third")
    assert (link.is_symlink(), path.read_text()) == (True, "third")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["link.html", "report.html"]


def test_missing_libraries_are_named(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"no_such_one and nor_this: run pip install --editable '\.\[train\]'"):
        check_destination(tmp_path / "report.html", libraries=["json", "no_such_one", "nor_this"])
