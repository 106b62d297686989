"""`tercet index --update`, `tercet delete` and `--gate` as an operator runs them."""

import json
from pathlib import Path

import pytest

from tests.service.commands import Tercet, tercet_with
from tests.service.conftest import TinyModels


@pytest.fixture(scope="module")
def tercet(tiny_models: TinyModels, tmp_path_factory: pytest.TempPathFactory) -> Tercet:
    return tercet_with(tiny_models, tmp_path_factory.mktemp("changes") / "data")


def write(path: Path, *records: object) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_documents_are_added_replaced_and_deleted(tercet: Tercet, tmp_path: Path) -> None:
    fog, ferry = {"id": "fog", "text": "fog over the harbour"}, {"id": "ferry", "text": "the ferry is late"}
    assert tercet("index", write(tmp_path / "one.jsonl", fog, ferry)).code == 0
    drum, later = {"id": "drum", "text": "a drum and a lamp"}, {"id": "ferry", "text": "the ferry is here"}
    updated = tercet("index", write(tmp_path / "two.jsonl", drum, later), "--update", "--json").result
    assert (updated["n_documents"], updated["n_unchanged_documents"], updated["n_embedded_passages"]) == (3, 1, 2)
    (tmp_path / "ids.txt").write_text("fog\nnothing\n")
    deleted = tercet("delete", "drum", "--from", tmp_path / "ids.txt", "--json")
    assert (deleted.result["n_documents"], deleted.result["n_deleted_documents"]) == (1, 2)
    assert "The index did not hold 1 document of these ids." in deleted.stderr
    [passage] = tercet("inspect", "--document", "ferry", "--json").result["passages"]
    assert passage["text"] == "the ferry is here"


def test_a_snapshot_that_loses_what_the_gate_asks_for_is_not_published(tercet: Tercet, tmp_path: Path) -> None:
    documents = [{"id": f"d{i}", "text": f"{word} stands by the sea"} for i, word in enumerate(["lamp", "map"])]
    gate = write(tmp_path / "gate.jsonl", {"id": "q1", "query": "lamp", "relevant": ["d0"]})
    options: list[str | Path] = ["--index", "gated", "--gate", gate, "--max-answer-drop", "1"]
    first = tercet("index", write(tmp_path / "all.jsonl", *documents), *options, "--json")
    assert first.code == 0, first.stderr
    assert "Gate: nDCG@10 " in first.stderr
    refused = tercet("index", write(tmp_path / "less.jsonl", documents[1]), *options)
    assert refused.code == 1
    assert "The new snapshot is not published: nDCG@10 fell from " in refused.sentence
    assert "  query q1: nDCG@10 " in refused.stderr
    listed = tercet("snapshots", "ls", "--index", "gated", "--json").result["snapshots"]
    assert [each["n_documents"] for each in listed] == [2]
    assert tercet("inspect", "--index", "gated", "--json").result["evaluation"]["n_queries"] == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["delete", "fog", "--index", "none"], "There is no index 'none' in "),
        (["index", "pydoc", "--gate", "none.jsonl"], "none.jsonl cannot be read: No such file or directory."),
    ],
)
def test_what_cannot_be_done_is_one_sentence(tercet: Tercet, arguments: list[str], sentence: str) -> None:
    done = tercet(*arguments)
    assert done.code == 1
    assert done.sentence.startswith(sentence)
