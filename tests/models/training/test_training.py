"""Training on a few examples really learns them, and refuses data that does not match its text."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.errors import DataError
from models.folder import Kind
from models.tokenization import Tokenizer
from models.training.data import LabelledQuestion, read_beir, read_questions
from models.training.groups import N_NEGATIVES, Group, groups_from_beir, groups_from_questions
from models.training.loop import Recipe, pad, token_budget_batches
from models.training.reader import span_examples, train_reader, with_made_negatives
from models.training.reranker import train_reranker


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Two threads that wait for each other over tiny matrices crawl on a busy machine."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


TOWNS = ["lima", "porto", "tower", "harbour", "library", "river"]


def write_questions(path: Path) -> Path:
    records = [
        {
            "id": f"q{i}",
            "title": f"t{i % 2}",
            "context": f"{town} is the town of the {animal} and the sea",
            "question": f"where is the {animal}",
            "answers": [{"text": town, "answer_start": 0}],
            "set": "qed_train",
        }
        for i, (town, animal) in enumerate(zip(TOWNS, ["bees", "ship", "keeper", "storm", "lamp", "dict"], strict=True))
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def losses(out: Path) -> list[float]:
    return [line["loss"] for line in map(json.loads, (out / "log.jsonl").read_text().splitlines()) if "loss" in line]


def test_the_reader_overfits_a_few_examples(tmp_path: Path, tiny_checkpoint: Callable[[Kind], Path]) -> None:
    data = write_questions(tmp_path / "train.jsonl")
    recipe = Recipe(seed=1, epochs=250, batch_tokens=2000, learning_rate=5e-3, head_learning_rate=5e-3)
    train_reader([data], tiny_checkpoint("dual-encoder"), tmp_path / "out", recipe, n_negatives=3)
    made = losses(tmp_path / "out")
    assert made[-1] < 0.3 < made[0]
    assert (tmp_path / "out" / "model.safetensors").is_file()


def test_the_reranker_overfits_a_few_groups(tmp_path: Path, tiny_checkpoint: Callable[[Kind], Path]) -> None:
    others = tuple(f"the {word} was missing" for word in ("lamp", "map", "file"))
    assert len(others) == N_NEGATIVES
    groups = [Group(f"where is {town}", f"the {town} of the sea", others) for town in TOWNS]
    recipe = Recipe(seed=1, epochs=100, batch_tokens=2000, learning_rate=5e-3, head_learning_rate=5e-3)
    train_reranker(groups, tiny_checkpoint("dual-encoder"), tmp_path / "out", recipe)
    made = losses(tmp_path / "out")
    assert made[-1] < 0.3 < made[0]


def test_equal_seeds_train_equal_models(tmp_path: Path, tiny_checkpoint: Callable[[Kind], Path]) -> None:
    data = write_questions(tmp_path / "train.jsonl")
    recipe = Recipe(seed=5, epochs=2, batch_tokens=300, learning_rate=1e-3, head_learning_rate=1e-3)
    for name in ("one", "two"):
        train_reader([data], tiny_checkpoint("dual-encoder"), tmp_path / name, recipe, n_negatives=3)
    assert losses(tmp_path / "one") == losses(tmp_path / "two")


@given(st.lists(st.integers(1, 400), max_size=60), st.integers(50, 800), st.integers(0, 5))
def test_every_example_is_in_one_batch_within_the_budget(lengths: list[int], budget: int, seed: int) -> None:
    sizes = np.array(lengths, np.int64)
    batches = token_budget_batches(sizes, batch_tokens=budget, seed=seed)
    assert sorted(int(i) for batch in batches for i in batch) == list(range(len(lengths)))
    assert all(batch.size == 1 or sizes[batch].max() * batch.size <= budget for batch in batches)


def test_pad_fills_with_zeros_at_the_end() -> None:
    assert pad([np.array([1, 2, 3]), np.array([4])]).tolist() == [[1, 2, 3], [4, 0, 0]]


def test_targets_are_the_answers_own_tokens(tmp_path: Path, tiny_checkpoint: Callable[[Kind], Path]) -> None:
    tokenizer = Tokenizer(tiny_checkpoint("reader") / "tokenizer.json")
    question = LabelledQuestion("q", "t", "the keeper was in the tower", "who was it", ((22, "tower"),))
    [example] = span_examples([question], tokenizer, null_windows=1, seed=1)
    assert tokenizer.decode(example.input.ids[example.start : example.end + 1].tolist()) == "tower"


def test_made_negatives_never_hold_the_answer(tmp_path: Path) -> None:
    questions = read_questions(write_questions(tmp_path / "train.jsonl"))
    made = with_made_negatives(questions, n_negatives=4, seed=1)[len(questions) :]
    answers = {question.query: question.answers[0][1] for question in questions}
    assert len(made) == 4
    assert all(not question.answers and answers[question.query] not in question.passage for question in made)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"id": "x"}', "line 2: not a question record"),
        ("{", "line 2: not a question record"),
        (
            '{"id": "x", "context": "abc", "question": "q", "answers": [{"text": "b", "answer_start": 0}]}',
            "at 0 is not in",
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


def test_group_negatives_hold_no_answer(tmp_path: Path) -> None:
    groups = groups_from_questions(read_questions(write_questions(tmp_path / "train.jsonl")), n_groups=6, seed=1)
    assert len(groups) == 6
    for group in groups:
        town = group.positive.split()[0]
        assert len(set(group.negatives)) == N_NEGATIVES
        assert all(town not in negative for negative in group.negatives)


def test_beir_groups_follow_the_judgements_and_bad_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"corpus\.jsonl is missing"):
        read_beir(tmp_path, "train")
    (tmp_path / "corpus.jsonl").write_text(
        "".join(json.dumps({"_id": f"d{i}", "title": "", "text": f"text {i}"}) + "\n" for i in range(5))
    )
    (tmp_path / "queries.jsonl").write_text(json.dumps({"_id": "q", "text": "query"}) + "\n")
    (tmp_path / "qrels").mkdir()
    rows = "".join(f"q\td{i}\t{int(i == 2)}\n" for i in range(5))
    (tmp_path / "qrels" / "train.tsv").write_text("query-id\tcorpus-id\tscore\n" + rows)
    [group] = groups_from_beir(tmp_path, "train", n_groups=5, seed=1)
    assert (group.query, group.positive) == ("query", "text 2")
    assert set(group.negatives) < {"text 0", "text 1", "text 3", "text 4"}
