"""Which snapshot may be published: the figures of a gate, and its queries."""

import json
from pathlib import Path

import pytest

from models.errors import DataError
from service.evaluate import JudgedQuery
from service.gate import Gate, Loss, QueryResult, compare, read_gate_queries


def result(query_id: str, ndcg: float | None, *, answered: bool = True) -> QueryResult:
    return QueryResult(JudgedQuery(query_id, "fog", {}), ndcg, answered)


def test_a_fall_of_the_mean_beyond_what_is_allowed_is_a_reason_and_the_losses_say_where() -> None:
    before = [result("a", 1.0), result("b", 0.5), result("c", None)]
    after = [result("a", 1.0), result("b", 0.4), result("c", None, answered=False)]
    outcome = compare(after, before, Gate([], max_ndcg_drop=0.01, max_answer_drop=0.5))
    assert outcome.before == pytest.approx({"ndcg_at_10": 0.75, "answer_rate": 1.0})
    assert outcome.after == pytest.approx({"ndcg_at_10": 0.7, "answer_rate": 2 / 3})
    assert outcome.losses == [Loss("b", 0.5, 0.4, False), Loss("c", None, None, True)]
    assert outcome.reasons == ["nDCG@10 fell from 0.750 to 0.700, by more than 0.01"]
    strict = compare(after, before, Gate([], max_ndcg_drop=0.05, max_answer_drop=0.1))
    assert strict.reasons == ["the answer rate fell from 1.000 to 0.667, by more than 0.1"]


def test_a_rise_and_a_first_snapshot_pass() -> None:
    assert compare([result("a", 1.0)], [result("a", 0.2)], Gate([])).reasons == []
    first = compare([result("a", 0.1, answered=False)], None, Gate([]))
    assert (first.reasons, first.before, first.after) == ((), None, {"ndcg_at_10": 0.1, "answer_rate": 0.0})


def test_without_judgements_only_answers_count() -> None:
    outcome = compare([result("a", None, answered=False)], [result("a", None)], Gate([]))
    assert outcome.after == {"answer_rate": 0.0}
    assert len(outcome.reasons) == 1


def test_queries_have_judgements_as_a_list_or_with_grades_or_none(tmp_path: Path) -> None:
    lines = [
        {"id": "q1", "query": "fog", "relevant": ["d1", "d2"]},
        {"query": "ferry", "relevant": {"d3": 2}},
        {"query": "drum"},
    ]
    path = tmp_path / "queries.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    assert read_gate_queries(path) == [
        JudgedQuery("q1", "fog", {"d1": 1, "d2": 1}),
        JudgedQuery("2", "ferry", {"d3": 2}),
        JudgedQuery("3", "drum", {}),
    ]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "holds no query"),
        ("{", "line 1: not JSON"),
        ('{"query": " "}', "line 1: `query` must be a text that is not blank"),
        ('{"query": "a"}\n{"query": "b", "relevant": "d1"}', "line 2: `relevant` must be a list of ids, or an object"),
        ('{"query": "b", "relevant": {"d1": "high"}}', "line 1: `relevant` must be"),
    ],
)
def test_a_bad_file_of_queries_is_one_sentence(tmp_path: Path, content: str, reason: str) -> None:
    path = tmp_path / "queries.jsonl"
    path.write_text(content)
    with pytest.raises(DataError, match=reason):
        read_gate_queries(path)
    with pytest.raises(DataError, match=r"none\.jsonl cannot be read: No such file"):
        read_gate_queries(tmp_path / "none.jsonl")
