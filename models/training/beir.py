"""Read BEIR folders: `corpus.jsonl`, `queries.jsonl` and `qrels/<split>.tsv`; the first two may be gzipped."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from models.errors import DataError
from models.training.records import as_object, id_field, of_line, optional_text, parse, read_lines, text_field


@dataclass(frozen=True, slots=True)
class LabelledCollection:
    """A BEIR folder: document texts (title and text), queries, and judgements by query id; ids in file order."""

    documents: dict[str, str]
    queries: dict[str, str]
    judgements: dict[str, dict[str, int]]


def read_beir(folder: Path, split: str) -> LabelledCollection:
    """Return the collection in folder with the judgements of one split.

    Raises:
        DataError: a file is missing, a line malformed, or an id repeated; the message gives file, line and reason.
    """
    documents = {
        document_id: f"{title}\n{text}".strip()
        for document_id, title, text in _records(_existing(folder, "corpus.jsonl"))
    }
    return LabelledCollection(documents, read_queries(folder), read_judgements(folder, split))


def read_queries(folder: Path) -> dict[str, str]:
    """Return the queries of a BEIR folder by id, in file order; raises as `read_beir`."""
    return {query_id: text for query_id, _, text in _records(_existing(folder, "queries.jsonl"))}


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
            query_id, document_id, text = fields
            grade = int(text)
        except ValueError as error:
            raise DataError(f"{path}, line {number}: not query id, document id and grade") from error
        before = judgements.setdefault(query_id, {}).setdefault(document_id, grade)
        if before != grade:
            pair = f"{document_id[:100]!r} for {query_id[:100]!r}"
            raise DataError(f"{path}, line {number}: judges {pair} with {grade}, an earlier line with {before}")
    return judgements


def _existing(folder: Path, name: str) -> Path:
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    raise DataError(f"{folder / name} is missing (also with .gz)")


def _records(path: Path) -> Iterator[tuple[str, str, str]]:
    """Yield the id, the title, empty where there is none, and the text of each record."""
    lines: dict[str, int] = {}
    for number, line in read_lines(path):
        with of_line(path, number, "a record"):
            record = as_object(parse(line))
            own, title, text = id_field(record, "_id"), optional_text(record, "title"), text_field(record, "text")
        first = lines.setdefault(own, number)
        if first != number:
            raise DataError(f"{path}, line {number}: repeats the id of line {first}")
        yield own, title, text
