"""Turn labelled questions into a BEIR folder, to tune a reranker on: passages are documents, a question judges its own.

Only self-contained questions ask; passages of a second file may be added, so that there is something to confuse.
"""

import argparse
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from models.training.data import LabelledQuestion, read_questions
from models.training.groups import self_contained


def write_collection(
    questions: Sequence[LabelledQuestion], distractors: Iterable[str], out: Path, *, split: str = "dev"
) -> int:
    """Write corpus.jsonl, queries.jsonl and qrels/<split>.tsv to out and return the number of judged questions.

    Documents and queries get numbers as ids: those of questions may repeat, or hold what a table cannot.
    """
    asked = self_contained(questions)
    titles = {question.passage: question.title for question in questions}
    passages = list(dict.fromkeys([*titles, *distractors]))
    numbers = {passage: f"p{number}" for number, passage in enumerate(passages)}
    (out / "qrels").mkdir(parents=True, exist_ok=True)
    _write_lines(
        out / "corpus.jsonl",
        ({"_id": numbers[text], "title": titles.get(text, ""), "text": text} for text in passages),
    )
    _write_lines(out / "queries.jsonl", ({"_id": f"q{n}", "text": question.query} for n, question in enumerate(asked)))
    rows = "".join(f"q{n}\t{numbers[question.passage]}\t1\n" for n, question in enumerate(asked))
    (out / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + rows, encoding="utf-8")
    return len(asked)


def _write_lines(path: Path, records: Iterable[dict[str, str]]) -> None:
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), encoding="utf-8")


def main() -> None:
    """Write a collection, see --help."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=Path, required=True, help="labelled questions, JSON Lines")
    parser.add_argument("--distractors", type=Path, help="a second file, whose passages are added")
    parser.add_argument("--n-distractors", type=int, default=2_000)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    others = read_questions(arguments.distractors) if arguments.distractors else []
    distractors = list(dict.fromkeys(question.passage for question in others))[: arguments.n_distractors]
    n_asked = write_collection(read_questions(arguments.questions), distractors, arguments.out)
    print(f"{arguments.out}: {n_asked} judged questions")  # noqa: T201


if __name__ == "__main__":
    main()
