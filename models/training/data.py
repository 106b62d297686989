"""Read labelled questions (our JSON Lines, as `{id, title, context, question, answers}`) and check every span."""

import gzip
import json
import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

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
        DataError: the file is not UTF-8, or not gzip though it is named so; the message gives the line.
    """
    opener = gzip.open if path.suffix == ".gz" else open
    number = 0
    with opener(path, "rb") as lines:
        try:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield number, line.decode()
        except (EOFError, gzip.BadGzipFile, zlib.error, UnicodeDecodeError) as error:
            raise DataError(f"{path}, line {number}: cannot be read: {error}") from error


def read_questions(path: Path) -> list[LabelledQuestion]:
    """Return the questions of one file, in its order.

    Raises:
        DataError: a record is not an object with these fields, or a span does not match its text; the message
            gives file, line and reason.
    """
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
            tuple((int(answer["answer_start"]), str(answer["text"])) for answer in record["answers"]),
            str(record.get("set", "")),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path}, line {number}: not a question record ({type(error).__name__}: {error})") from error
    for start, text in question.answers:
        if not text or question.passage[start : start + len(text)] != text:
            raise DataError(f"{path}, line {number}: the answer at {start} is not in the context at that place")
    return question


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
