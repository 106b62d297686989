"""Read what training and measuring take, and check it: labelled questions, BEIR folders, and triples.

Questions come as our JSON Lines, `{id, title, context, question, answers: [{text, answer_start}]}`, or as one SQuAD 2.0
JSON document (Rajpurkar et al. 2018); triples as JSON Lines in sentence-transformers' shapes. Each file may be gzipped.
"""

import gzip
import json
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models.errors import DataError


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


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line number, line) of a plain or gzip-compressed UTF-8 file, split on newline only, no blank lines.

    Raises:
        DataError: the file is not there, not UTF-8, or not gzip though it is named so; the message gives the line.
    """
    return ((number, line) for number, line in _all_lines(path) if line.strip())


def _all_lines(path: Path) -> Iterator[tuple[int, str]]:
    opener = gzip.open if path.suffix == ".gz" else open
    number = 0
    try:
        with opener(path, "rb") as lines:
            for number, line in enumerate(lines, start=1):
                yield number, line.decode()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise DataError(f"{path}, line {number}: cannot be read: {error}") from error


def read_questions(path: Path) -> list[LabelledQuestion]:
    """Return the questions of one file, in its order; a name that ends in .json or .json.gz means SQuAD 2.0's format.

    Raises:
        DataError: a record lacks a field, or a span does not match its text; the message gives file, line and reason.
    """
    if path.name.removesuffix(".gz").endswith(".json"):
        return _squad_questions(path)
    return [_question(path, number, line) for number, line in read_lines(path)]


def passages_by_title(questions: Sequence[LabelledQuestion]) -> dict[str, list[str]]:
    """Return the distinct passages of each title, in the order of the questions."""
    passages: dict[str, list[str]] = defaultdict(list)
    for passage, title in {question.passage: question.title for question in questions}.items():
        passages[title].append(passage)
    return passages


def _question(path: Path, number: int, line: str) -> LabelledQuestion:
    try:
        record = json.loads(line)
        question = LabelledQuestion(
            str(record["id"]),
            str(record.get("title", "")),
            str(record["context"]),
            str(record["question"]),
            _answers(record["answers"]),
            str(record.get("set", "")),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path}, line {number}: not a question record ({type(error).__name__}: {error})") from error
    _check_spans(question, path, number)
    return question


def _squad_questions(path: Path) -> list[LabelledQuestion]:
    text = "\n".join(line.rstrip("\r\n") for _, line in _all_lines(path))
    try:
        articles = json.loads(text)["data"]
    except json.JSONDecodeError as error:
        raise DataError(f"{path}, line {error.lineno}: not JSON ({error.msg})") from error
    except (KeyError, TypeError) as error:
        raise DataError(f"{path}, line 1: not SQuAD 2.0's format: there is no field data") from error
    questions: list[LabelledQuestion] = []
    found: Mapping[str, object] = {}
    try:
        for article in articles:
            for paragraph in article["paragraphs"]:
                for found in paragraph["qas"]:
                    questions.append(_squad_question(article, paragraph, found))
                    _check_spans(questions[-1], path, _line_of(text, questions[-1].question_id))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        after = found.get("id", "the beginning") if isinstance(found, dict) else "the beginning"
        raise DataError(
            f"{path}, line {_line_of(text, str(after))}, at or after question {after!r}: not SQuAD 2.0's format "
            f"({type(error).__name__}: {error})"
        ) from error
    return questions


def _squad_question(
    article: Mapping[str, object], paragraph: Mapping[str, object], found: Mapping[str, object]
) -> LabelledQuestion:
    answers = () if found.get("is_impossible") else _answers(found["answers"])
    title = str(article.get("title", "")).replace("_", " ")
    return LabelledQuestion(str(found["id"]), title, str(paragraph["context"]), str(found["question"]), answers)


def _answers(records: Any) -> tuple[tuple[int, str], ...]:
    return tuple((int(answer["answer_start"]), str(answer["text"])) for answer in records)


def _check_spans(question: LabelledQuestion, path: Path, number: int) -> None:
    for start, text in question.answers:
        if not text or start < 0 or question.passage[start : start + len(text)] != text:
            raise DataError(
                f"{path}, line {number}: the answer at {start} of question {question.question_id!r} "
                "is not in the context at that place"
            )


def _line_of(text: str, found: str) -> int:
    """Return the line of a JSON text where a string value first stands, 1 if it is written otherwise."""
    at = text.find(json.dumps(found, ensure_ascii=False))
    return text.count("\n", 0, max(at, 0)) + 1


@dataclass(frozen=True, slots=True)
class Triple:
    """A query, a passage that is relevant to it, and passages that are not, at least one."""

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
    try:
        record = json.loads(line)
        texts = record if isinstance(record, list) else _columns(record)
        if len(texts) < 2 or not all(isinstance(text, str) and text.strip() for text in texts):
            raise ValueError("it has no anchor and positive, or an empty one")
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}, line {number}: not a triple ({type(error).__name__}: {error})") from error
    return Triple(texts[0], texts[1], tuple(texts[2:]))


def _columns(record: dict[str, Any]) -> list[str]:
    query = record["query"] if "query" in record else record["anchor"]
    numbered = [record[name] for name in sorted(record) if name.startswith("negative_")]
    single = [record["negative"]] if "negative" in record else []
    return [query, record["positive"], *single, *record.get("negatives", []), *numbered]


def holds_triples(path: Path) -> bool:
    """Return whether a file's first line is a triple and not a labelled question.

    Raises:
        DataError: the file cannot be read.
    """
    if path.name.removesuffix(".gz").endswith(".json"):
        return False
    _, line = next(read_lines(path), (0, "{}"))
    try:
        record = json.loads(line)
    except ValueError:
        return False
    return isinstance(record, list) or (isinstance(record, dict) and "positive" in record)


@dataclass(frozen=True, slots=True)
class LabelledCollection:
    """A BEIR folder: document texts (title and text), queries, and judgements by query id; ids in file order."""

    documents: dict[str, str]
    queries: dict[str, str]
    judgements: dict[str, dict[str, int]]


def read_beir(folder: Path, split: str) -> LabelledCollection:
    """Return the collection in folder with the judgements of one split.

    Raises:
        DataError: a file is missing or a line malformed; the message gives file, line and reason.
    """
    documents = {
        str(record["_id"]): f"{record.get('title') or ''}\n{record['text']}".strip()
        for record in _records(_existing(folder, "corpus.jsonl"))
    }
    return LabelledCollection(documents, read_queries(folder), read_judgements(folder, split))


def read_queries(folder: Path) -> dict[str, str]:
    """Return the queries of a BEIR folder by id, in file order; raises as `read_beir`."""
    return {str(record["_id"]): str(record["text"]) for record in _records(_existing(folder, "queries.jsonl"))}


def read_judgements(folder: Path, split: str) -> dict[str, dict[str, int]]:
    """Return the grade of each judged document by query id, in file order; raises as `read_beir`."""
    judgements: dict[str, dict[str, int]] = {}
    path = folder / "qrels" / f"{split}.tsv"
    if not path.is_file():
        raise DataError(f"{path} is missing")
    for number, line in read_lines(path):
        fields = line.rstrip("\r\n").split("\t")
        if number == 1 and fields[-1] == "score":
            continue
        try:
            query_id, document_id, grade = fields
            judgements.setdefault(query_id, {})[document_id] = int(grade)
        except ValueError as error:
            raise DataError(f"{path}, line {number}: not query id, document id and grade") from error
    return judgements


def _existing(folder: Path, name: str) -> Path:
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    raise DataError(f"{folder / name} is missing (also with .gz)")


def _records(path: Path) -> Iterator[dict[str, object]]:
    for number, line in read_lines(path):
        try:
            record = json.loads(line)
            if "_id" not in record or "text" not in record:
                raise ValueError("it lacks _id or text")
        except (ValueError, TypeError) as error:
            raise DataError(f"{path}, line {number}: not a record ({error})") from error
        yield record
