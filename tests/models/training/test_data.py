"""Data files are read as they are meant, or refused with file, line and reason."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from models.errors import DataError
from models.training.beir import read_beir, read_queries
from models.training.data import holds_triples, read_questions, read_triples

GOOD: dict[str, Any] = {
    "id": "x",
    "title": "t",
    "context": "abc",
    "question": "q",
    "answers": [{"text": "b", "answer_start": 1}],
}
DEEP = "[" * 100_000


def write_lines(path: Path, *records: object) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_squad_json_is_read_and_its_faults_are_named(tmp_path: Path) -> None:
    answer = {"text": "sea", "answer_start": 4}
    asked = [
        {"id": "a", "question": "what is it", "answers": [answer], "is_impossible": False},
        {"id": "b", "question": "why", "answers": [], "plausible_answers": [answer], "is_impossible": True},
    ]
    data = {"data": [{"title": "The_Sea", "paragraphs": [{"context": "the sea", "qas": asked}]}]}
    path = tmp_path / "dev.json"
    path.write_text(json.dumps(data, indent=1))
    first, second = read_questions(path)
    assert (first.title, first.query, first.answers) == ("The Sea", "what is it", ((4, "sea"),))
    assert second.answers == ()

    asked[0]["answers"] = [{"text": "sea", "answer_start": 3}]
    path.write_text(json.dumps(data, indent=1))
    line = path.read_text().split('"a"')[0].count("\n") + 1
    with pytest.raises(DataError, match=rf"line {line}: the answer at 3 of question 'a' is not in the context"):
        read_questions(path)
    path.write_text('{"data": [{"title": "x"}]}')
    with pytest.raises(DataError, match=r"not SQuAD 2\.0's format"):
        read_questions(path)
    path.write_text('{"data":\n nonsense}')
    with pytest.raises(DataError, match="line 2: not JSON"):
        read_questions(path)


def test_triples_come_in_every_shape_of_sentence_transformers(tmp_path: Path) -> None:
    path = tmp_path / "triples.jsonl"
    shapes = [
        ["q", "p", "n"],
        {"anchor": "q", "positive": "p", "negative": "n"},
        {"query": "q", "positive": "p", "negatives": ["n", "m"]},
        {"anchor": "q", "positive": "p", "negative_1": "n", "negative_2": "m"},
        {"anchor": "q", "positive": "p"},
    ]
    path.write_text("".join(json.dumps(shape) + "\n" for shape in shapes))
    assert holds_triples(path)
    assert [triple.negatives for triple in read_triples(path)] == [("n",), ("n",), ("n", "m"), ("n", "m"), ()]
    path.write_text(json.dumps(["q", "p"]) + "\n" + json.dumps(["q"]) + "\n")
    with pytest.raises(DataError, match=r"triples\.jsonl, line 2: not a triple"):
        read_triples(path)
    assert not holds_triples(write_lines(tmp_path / "questions.jsonl", GOOD))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"id": "x"}', "line 2: not a question record"),
        ("{", "line 2: not a question record"),
        (
            '{"id": "x", "context": "abc", "question": "q", "answers": [{"text": "b", "answer_start": 0}]}',
            "line 2: the answer at 0 of question 'x' is not in the context",
        ),
    ],
)
def test_bad_records_are_refused_with_file_line_and_reason(tmp_path: Path, line: str, reason: str) -> None:
    path = tmp_path / "bad.jsonl"
    good = '{"id": "x", "context": "a\u2028b", "question": "q", "answers": []}\n'
    path.write_text(good + line + "\n", encoding="utf-8")
    with pytest.raises(DataError, match=reason) as caught:
        read_questions(path)
    assert "bad.jsonl" in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"answers": {}}, "its 'answers' is an object, not a list"),
        ({"answers": ""}, "its 'answers' is text, not a list"),
        ({"answers": [["b", 1]]}, "it is a list, not an object"),
        ({"answers": [{"text": "b", "answer_start": float("inf")}]}, "its 'answer_start' is inf, not a whole number"),
        ({"answers": [{"text": "b", "answer_start": "1"}]}, "its 'answer_start' is text, not a whole number"),
        ({"answers": [{"text": "b", "answer_start": True}]}, "its 'answer_start' is a truth value, not a whole number"),
        ({"answers": [{"text": None, "answer_start": 1}]}, "its 'text' is null, not text"),
        ({"context": None}, "its 'context' is null, not text"),
        ({"context": 5}, "its 'context' is a number, not text"),
        ({"context": "a\ud800c"}, "its 'context' holds a lone surrogate, which UTF-8 cannot carry"),
        ({"question": None}, "its 'question' is null, not text"),
        ({"question": " "}, "its 'question' is blank"),
        ({"question": "a \udfff"}, "its 'question' holds a lone surrogate"),
        ({"id": None}, "its 'id' is null, not text"),
        ({"title": ["t"]}, "its 'title' is a list, not text"),
    ],
)
def test_a_record_that_is_no_question_is_refused_in_both_formats(
    tmp_path: Path, changes: dict[str, object], reason: str
) -> None:
    record = GOOD | changes
    lines = write_lines(tmp_path / "bad.jsonl", GOOD, record)
    with pytest.raises(DataError) as caught:
        read_questions(lines)
    assert f"bad.jsonl, line 2: not a question record: {reason}" in str(caught.value)
    question = {name: record[name] for name in ("id", "question", "answers")}
    article = {"title": record["title"], "paragraphs": [{"context": record["context"], "qas": [question]}]}
    document = write_lines(tmp_path / "bad.json", {"data": [article]})
    with pytest.raises(DataError) as caught:
        read_questions(document)
    assert f"not SQuAD 2.0's format: {reason}" in str(caught.value)


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({"data": {}}, "its 'data' is an object, not a list"),
        ([], "it is a list, not an object"),
        ({}, "it has no 'data'"),
        ({"data": [{"title": "x"}]}, "it has no 'paragraphs'"),
        ({"data": [{"paragraphs": [{"context": "c", "qas": None}]}]}, "its 'qas' is null, not a list"),
        ({"data": [{"paragraphs": [{"context": "c", "qas": [GOOD | {"is_impossible": "no"}]}]}]}, "neither true nor"),
    ],
)
def test_a_document_that_is_not_squads_is_refused(tmp_path: Path, document: object, reason: str) -> None:
    with pytest.raises(DataError, match=rf"bad\.json, line 1, .*not SQuAD 2\.0's format: .*{reason}"):
        read_questions(write_lines(tmp_path / "bad.json", document))


def test_a_record_without_title_or_answers_is_a_question(tmp_path: Path) -> None:
    record = {"id": 7, "context": "", "question": "q", "answers": [], "title": None}
    [question] = read_questions(write_lines(tmp_path / "good.jsonl", record))
    assert (question.question_id, question.title, question.passage, question.answers) == ("7", "", "", ())


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ("text", "it is text, not an object"),
        (["q"], "it has no anchor and positive"),
        (["q", "p", 3], "its 'negative 1' is a number, not text"),
        (["q", "p", "n", "p"], "its 'negative 2' equals the positive"),
        ({"query": "q", "positive": None}, "its 'positive' is null, not text"),
        ({"query": " ", "positive": "p"}, "its 'query' is blank"),
        ({"positive": "p"}, "it has no 'anchor'"),
        ({"query": "q", "positive": "p", "negatives": "abcdef"}, "its 'negatives' is text, not a list"),
        ({"query": "q", "positive": "p", "negatives": {"a": 1}}, "its 'negatives' is an object, not a list"),
        ({"query": "q", "positive": "p", "negatives": None}, "its 'negatives' is null, not a list"),
        ({"query": "q", "positive": "p", "negative": "p"}, "its 'negative' equals the positive"),
        ({"query": "q", "positive": "p", "negative_a": "n"}, "its 'negative_a' is none of negative, negatives"),
        ({"query": "q \ud800", "positive": "p"}, "its 'query' holds a lone surrogate"),
    ],
)
def test_a_record_that_is_no_triple_is_refused(tmp_path: Path, record: object, reason: str) -> None:
    with pytest.raises(DataError) as caught:
        read_triples(write_lines(tmp_path / "bad.jsonl", ["q", "p", "n"], record))
    assert f"bad.jsonl, line 2: not a triple: {reason}" in str(caught.value)


def test_numbered_negatives_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    numbered = {f"negative_{n}": f"n{n}" for n in (10, 2, 1)}
    [triple] = read_triples(write_lines(tmp_path / "t.jsonl", {"query": "q", "positive": "p"} | numbered))
    assert triple.negatives == ("n1", "n2", "n10")


@pytest.mark.parametrize("read", [read_questions, read_triples])
def test_what_is_nested_too_deeply_is_refused_with_its_line(tmp_path: Path, read: Callable[[Path], object]) -> None:
    path = tmp_path / "deep.jsonl"
    path.write_text(f"\n{DEEP}\n")
    assert not holds_triples(path)
    with pytest.raises(DataError, match=r"deep\.jsonl, line 2: not a .*: it is nested too deeply"):
        read(path)


def test_a_document_that_is_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    (tmp_path / "deep.json").write_text(DEEP)
    with pytest.raises(DataError, match=r"deep\.json: not JSON: it is nested too deeply"):
        read_questions(tmp_path / "deep.json")


def test_a_file_that_cannot_be_opened_has_no_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"gone\.jsonl cannot be read: No such file or directory$"):
        read_questions(tmp_path / "gone.jsonl")
    with pytest.raises(DataError, match=r"cannot be read: Is a directory$"):
        read_questions(tmp_path)
    (tmp_path / "plain.jsonl.gz").write_bytes(b"{}")
    with pytest.raises(DataError, match=r"plain\.jsonl\.gz cannot be read: Not a gzipped file"):
        read_questions(tmp_path / "plain.jsonl.gz")
    whole = gzip.compress(json.dumps(GOOD).encode())
    (tmp_path / "cut.jsonl.gz").write_bytes(whole[:-9])
    with pytest.raises(DataError, match=r"cut\.jsonl\.gz.* cannot be read: "):
        read_questions(tmp_path / "cut.jsonl.gz")
    (tmp_path / "bytes.jsonl").write_bytes(b"\n\xff\n")
    with pytest.raises(DataError, match=r"bytes\.jsonl, line 2: cannot be read: "):
        read_questions(tmp_path / "bytes.jsonl")


def write_beir(folder: Path, judgements: str = "q1\td1\t1\n") -> Path:
    (folder / "qrels").mkdir(parents=True)
    write_lines(folder / "corpus.jsonl", *({"_id": f"d{n}", "title": "t", "text": "x"} for n in (1, 2)))
    write_lines(folder / "queries.jsonl", {"_id": "q1", "text": "q"})
    (folder / "qrels" / "dev.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judgements}")
    return folder


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"_id": "q1", "text": "again"}, "line 2: repeats the id of line 1"),
        ({"_id": "q2"}, "line 2: not a record: it has no 'text'"),
        ({"_id": None, "text": "q"}, "line 2: not a record: its '_id' is null"),
        ({"_id": "q2", "text": None}, "line 2: not a record: its 'text' is null, not text"),
        ({"_id": "q2", "text": "\ud800"}, "line 2: not a record: its 'text' holds a lone surrogate"),
        ([], "line 2: not a record: it is a list, not an object"),
    ],
)
def test_a_bad_record_of_a_beir_folder_is_refused(tmp_path: Path, record: object, reason: str) -> None:
    folder = write_beir(tmp_path / "beir")
    assert read_beir(folder, "dev").documents == {"d1": "t\nx", "d2": "t\nx"}
    write_lines(folder / "queries.jsonl", {"_id": "q1", "text": "q"}, record)
    with pytest.raises(DataError) as caught:
        read_queries(folder)
    assert f"queries.jsonl, {reason}" in str(caught.value)
    (folder / "queries.jsonl").write_text(f"{DEEP}\n")
    with pytest.raises(DataError, match="line 1: not a record: it is nested too deeply"):
        read_queries(folder)


def test_judgements_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    again = write_beir(tmp_path / "again", "q1\td1\t1\nq1\td1\t1\n")
    assert read_beir(again, "dev").judgements == {"q1": {"d1": 1}}
    other = write_beir(tmp_path / "other", "q1\td1\t1\nq1\td2\t0\nq1\td1\t0\n")
    with pytest.raises(DataError, match=r"dev\.tsv, line 4: judges 'd1' for 'q1' with 0, an earlier line with 1"):
        read_beir(other, "dev")
