"""Read what training and measuring take, and check it: labelled questions and triples.

Questions come as our JSON Lines, `{id, title, context, question, answers: [{text, answer_start}]}`, or as one SQuAD 2.0
JSON document (Rajpurkar et al. 2018); triples as JSON Lines in sentence-transformers' shapes. Each file may be gzipped.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from models.errors import DataError
from models.training.records import (
    as_object,
    as_text,
    field,
    id_field,
    list_field,
    of_line,
    optional_text,
    parse,
    read_lines,
    read_text,
    text_field,
    whole_number,
)


@dataclass(frozen=True, slots=True)
class LabelledQuestion:
    """A question on one passage; answers are (start, text) with start in code points, empty when it has none."""

    question_id: str
    title: str
    passage: str
    query: str
    answers: tuple[tuple[int, str], ...]
    set_name: str = ""

    def has_answer_in(self, text: str) -> bool:
        """Return whether a text holds any of the answers, in any case."""
        folded = text.casefold()
        return any(answer.casefold() in folded for _, answer in self.answers)


def read_questions(path: Path) -> list[LabelledQuestion]:
    """Return the questions of one file, in its order; a name that ends in .json or .json.gz means SQuAD 2.0's format.

    Raises:
        DataError: a record lacks a field, or a span does not match its text; the message gives file, line and reason.
    """
    if _is_squad(path):
        return _squad_questions(path)
    return [_question(path, number, line) for number, line in read_lines(path)]


def passages_by_title(questions: Sequence[LabelledQuestion]) -> dict[str, list[str]]:
    """Return the distinct passages of each title, in the order of the questions."""
    passages: dict[str, list[str]] = defaultdict(list)
    for passage, title in {question.passage: question.title for question in questions}.items():
        passages[title].append(passage)
    return passages


def _is_squad(path: Path) -> bool:
    return path.name.removesuffix(".gz").endswith(".json")


def _question(path: Path, number: int, line: str) -> LabelledQuestion:
    with of_line(path, number, "a question record"):
        record = as_object(parse(line))
        question = LabelledQuestion(
            id_field(record, "id"),
            optional_text(record, "title"),
            text_field(record, "context"),
            text_field(record, "question", may_be_blank=False),
            _answers(record),
            optional_text(record, "set"),
        )
    fault = _misplaced_answer(question)
    if fault is not None:
        raise DataError(f"{path}, line {number}: {fault}")
    return question


def _squad_questions(path: Path) -> list[LabelledQuestion]:
    text = read_text(path)
    try:
        document = parse(text)
    except json.JSONDecodeError as error:
        raise DataError(f"{path}, line {error.lineno}: not JSON ({error.msg})") from error
    except ValueError as error:
        raise DataError(f"{path}: not JSON: {error}") from error
    questions: list[LabelledQuestion] = []
    found: Mapping[str, object] = {}
    try:
        for article in _objects(as_object(document), "data"):
            for paragraph in _objects(article, "paragraphs"):
                for found in _objects(paragraph, "qas"):
                    questions.append(_squad_question(article, paragraph, found))
    except ValueError as error:
        after = found.get("id", "the beginning")
        raise DataError(
            f"{path}, line {_line_of(text, after)}, at or after question {after!r}: not SQuAD 2.0's format: {error}"
        ) from error
    for question in questions:
        fault = _misplaced_answer(question)
        if fault is not None:
            raise DataError(f"{path}, line {_line_of(text, question.question_id)}: {fault}")
    return questions


def _squad_question(
    article: Mapping[str, object], paragraph: Mapping[str, object], found: Mapping[str, object]
) -> LabelledQuestion:
    is_impossible = found.get("is_impossible", False)
    if not isinstance(is_impossible, bool):
        raise ValueError("its 'is_impossible' is neither true nor false")
    return LabelledQuestion(
        id_field(found, "id"),
        optional_text(article, "title").replace("_", " "),
        text_field(paragraph, "context"),
        text_field(found, "question", may_be_blank=False),
        () if is_impossible else _answers(found),
    )


def _objects(record: Mapping[str, object], name: str) -> list[Mapping[str, object]]:
    return [as_object(each) for each in list_field(record, name)]


def _answers(record: Mapping[str, object]) -> tuple[tuple[int, str], ...]:
    return tuple((whole_number(each, "answer_start"), text_field(each, "text")) for each in _objects(record, "answers"))


def _misplaced_answer(question: LabelledQuestion) -> str | None:
    """Return what is wrong with the first answer that is not in the context at its place, None where all are."""
    for start, text in question.answers:
        if not text or start < 0 or question.passage[start : start + len(text)] != text:
            return f"the answer at {start} of question {question.question_id!r} is not in the context at that place"
    return None


def _line_of(text: str, found: object) -> int:
    """Return the line of a JSON text where a value first stands, 1 if it is written otherwise."""
    at = text.find(json.dumps(found, ensure_ascii=False))
    return text.count("\n", 0, max(at, 0)) + 1


@dataclass(frozen=True, slots=True)
class Triple:
    """A query, a passage that is relevant to it, and passages that are not; none of them equals the relevant one."""

    query: str
    positive: str
    negatives: tuple[str, ...]


def read_triples(path: Path) -> list[Triple]:
    """Return the triples of a JSON Lines file in sentence-transformers' shapes.

    A line is a list `[anchor, positive, negative…]` or an object with `anchor` or `query`, `positive`, and `negative`,
    `negatives` or `negative_1`, `negative_2`… Lines without any negative, pairs, are kept: their negatives are empty.

    Raises:
        DataError: a line has another shape; the message gives file, line and reason.
    """
    return [_triple(path, number, line) for number, line in read_lines(path)]


def _triple(path: Path, number: int, line: str) -> Triple:
    with of_line(path, number, "a triple"):
        record = parse(line)
        named = _listed(record) if isinstance(record, list) else _columns(as_object(record))
        query, positive, *negatives = (as_text(value, name, may_be_blank=False) for name, value in named)
        if positive in negatives:
            raise ValueError(f"its {named[2 + negatives.index(positive)][0]!r} equals the positive")
    return Triple(query, positive, tuple(negatives))


def _listed(texts: Sequence[object]) -> list[tuple[str, object]]:
    if len(texts) < 2:
        raise ValueError("it has no anchor and positive")
    names = ["anchor", "positive", *(f"negative {n}" for n in range(1, len(texts) - 1))]
    return list(zip(names, texts, strict=True))


def _columns(record: Mapping[str, object]) -> list[tuple[str, object]]:
    """Return the texts of a record by their names: the query, the positive, then every negative, numbered ones last."""
    query = "query" if "query" in record else "anchor"
    listed = list_field(record, "negatives") if "negatives" in record else []
    numbered = sorted((_number(name), name) for name in record if name.startswith("negative_"))
    return [
        *((name, field(record, name)) for name in (query, "positive")),
        *((name, record[name]) for name in ("negative",) if name in record),
        *((f"negatives {n}", text) for n, text in enumerate(listed, start=1)),
        *((name, record[name]) for _, name in numbered),
    ]


def _number(name: str) -> int:
    digits = name.removeprefix("negative_")
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError(f"its {name!r} is none of negative, negatives, negative_1, negative_2…")
    return int(digits)


def holds_triples(path: Path) -> bool:
    """Return whether a file's first line is a triple and not a labelled question.

    Raises:
        DataError: the file cannot be read.
    """
    if _is_squad(path):
        return False
    _, line = next(read_lines(path), (0, "{}"))
    try:
        record = parse(line)
    except ValueError:
        return False
    return isinstance(record, list) or (isinstance(record, dict) and "positive" in record)
