"""`tercet index --update`, `tercet delete` and `--gate` as an operator runs them."""

import json
import os
from pathlib import Path

import pytest

from tests.service.commands import Finished, Tercet, tercet_with
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


def test_documents_that_an_index_holds_no_more_are_told(tercet: Tercet, tmp_path: Path) -> None:
    def index(*names: str, options: tuple[str, ...] = ()) -> Finished:
        documents = write(tmp_path / "all.jsonl", *({"id": name, "text": "fog"} for name in names))
        return tercet("index", documents, "--index", "replaced", *options)

    many = [f"{i:02}" for i in range(23)]
    first = index(*many, "kept", options=("--json",)).result
    assert (first["n_gone_documents"], first["gone_ids"]) == (0, [])
    listed = ", ".join(repr(name) for name in many[:20])
    told = f"It holds 23 documents of before no more, for want of --update: {listed} and 3 more."
    assert told in index("kept", "a\x1b[2J").stderr
    updated = index("more", options=("--update", "--json")).result
    assert (updated["n_documents"], updated["n_gone_documents"]) == (3, 0)
    last = index("kept", "more", options=("--json",)).result
    assert (last["n_gone_documents"], last["gone_ids"]) == (1, ["a\x1b[2J"])
    again = index("kept", "more")
    assert "as it was" in again.stderr
    assert "of before" not in again.stderr


def test_an_index_keeps_its_language_until_it_is_told_another(tercet: Tercet, tmp_path: Path) -> None:
    def index(name: str, *options: str, tercet: Tercet = tercet) -> Finished:
        documents = write(tmp_path / f"{name}.jsonl", {"id": name, "text": f"{name} over the harbour"})
        return tercet("index", documents, "--index", "german", "--json", *options)

    def language() -> str:
        return str(tercet("inspect", "--index", "german", "--json").result["bm25"]["analyzer"])

    assert (
        index("fog", "--language", "german", "--dense-index", "hnsw", "--recall", "0.8").result["language"] == "german"
    )
    few = "A dense index of the kind hnsw needs 5,000 passages; there are 2, so a flat one was built, which is exact."
    updated = index("ferry", "--update")
    assert updated.result["notices"] == [few]
    assert few in updated.stderr
    deleted = tercet("delete", "fog", "--index", "german", "--json").result
    assert (deleted["language"], deleted["n_documents"]) == ("german", 1)
    assert "+german/" in language()
    wish = tercet("inspect", "--index", "german", "--json").result["dense_wish"]
    assert wish == {"kind": "hnsw", "recall": 0.8, "memory_bytes": None}
    told = index("map", "--update", tercet=Tercet({**tercet.environment, "TERCET_LANGUAGE": "french"}))
    assert "The language is french now, german before: all passages are analyzed anew." in told.stderr.splitlines()
    assert (told.result["language"], told.result["n_unchanged_documents"]) == ("french", 0)
    anew = index("lamp")
    assert anew.result["notices"][0] == "The language is english now, french before: all passages are analyzed anew."


def test_what_changes_nothing_publishes_nothing_and_says_so(tercet: Tercet, tmp_path: Path) -> None:
    fog, gate = {"id": "fog", "text": "fog over the sea"}, write(tmp_path / "gate.jsonl", {"query": "fog"})
    one, two = write(tmp_path / "one.jsonl", fog), write(tmp_path / "two.jsonl", fog, {"id": "map", "text": "a map"})
    assert [tercet("index", each, "--index", "same").code for each in (one, two)] == [0, 0]
    before = tercet("snapshots", "ls", "--index", "same", "--json").result
    again = tercet("index", two, "--index", "same", "--gate", gate)
    assert again.code == 0
    current = before["snapshots"][0]["snapshot_id"]
    assert again.stderr.splitlines()[-1] == (
        f"Index 'same' is as it was: snapshot {current}, 2 documents in 2 passages; nothing was published."
    )
    for _ in range(2):
        deleted = tercet("delete", "nosuch", "--index", "same", "--json").result
        assert (deleted["is_unchanged"], deleted["snapshot"], deleted["n_unknown_ids"]) == (True, current, 1)
    assert tercet("snapshots", "ls", "--index", "same", "--json").result == before


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


def test_a_gate_without_a_current_snapshot_to_try_says_so_before_it_builds(tercet: Tercet, tmp_path: Path) -> None:
    documents, gate = write(tmp_path / "one.jsonl", {"id": "a", "text": "fog"}), tmp_path / "gate.jsonl"
    write(gate, {"query": "fog"})
    built = tercet("index", documents, "--index", "damaged", "--json").result
    tokens = Path(built["path"]) / "current" / "tokens.bin"
    tokens.write_bytes(tokens.read_bytes()[:-1] + b"x")
    refused = tercet("index", documents, "--index", "damaged", "--gate", gate)
    assert refused.code == 1
    assert refused.sentence.startswith("The gate cannot compare with the current snapshot: ")
    assert "tokens.bin was altered" in refused.sentence
    assert "Index without --gate to replace it, or go back first with `tercet snapshots rollback`." in refused.sentence
    assert "Embedding" not in refused.stderr
    assert tercet("index", documents, "--index", "damaged").code == 0
    assert tercet("index", documents, "--index", "damaged", "--gate", gate).code == 0


def test_what_was_published_ends_with_0_though_it_cannot_be_told(tercet: Tercet, tmp_path: Path) -> None:
    def fill(*descriptors: int) -> None:
        for descriptor in descriptors:
            os.dup2(os.open("/dev/full", os.O_WRONLY), descriptor)

    documents = write(tmp_path / "one.jsonl", {"id": "a", "text": "fog"})
    tercet = tercet.buffered()
    done = tercet("index", documents, "--index", "untold", "--json", before=lambda: fill(1))
    warning = "Warning: this was done, but what was done cannot be printed: No space left on device."
    assert (done.code, done.stdout, done.stderr.splitlines()[-1]) == (0, "", warning)
    write(documents, {"id": "b", "text": "ferry"})
    assert tercet("index", documents, "--index", "untold", before=lambda: fill(1, 2)).code == 0
    back = tercet("snapshots", "rollback", "--index", "untold", "--json", before=lambda: fill(1))
    assert (back.code, back.stderr) == (0, f"{warning}\n")
    assert tercet("inspect", "--document", "a", "--index", "untold").code == 0


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
