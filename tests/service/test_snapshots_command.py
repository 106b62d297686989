"""`tercet snapshots` as an operator runs it."""

import json
from pathlib import Path

import pytest

from tests.service.commands import Tercet, tercet_with
from tests.service.conftest import TinyModels


@pytest.fixture(scope="module")
def tercet(tiny_models: TinyModels, tmp_path_factory: pytest.TempPathFactory) -> Tercet:
    """The command, with an index `default` of two snapshots: of fog, then of a ferry."""
    folder = tmp_path_factory.mktemp("snapshots")
    tercet = tercet_with(tiny_models, folder / "data")
    for text in ("fog", "ferry"):
        (folder / "documents.jsonl").write_text(json.dumps({"id": text, "text": text}))
        done = tercet("index", folder / "documents.jsonl")
        assert done.code == 0, done.stderr
    return tercet


def test_the_indexes_of_a_folder_are_listed(tercet: Tercet, tmp_path: Path) -> None:
    data = tmp_path / "many"
    documents = tmp_path / "documents.jsonl"
    nothing = tercet("indexes", "--data", data)
    assert (nothing.code, nothing.stdout) == (0, "")
    assert f"There is no index in {data}; `tercet index SOURCE` builds one." in nothing.stderr
    assert tercet("indexes", "--data", data, "--json").result == {"path": str(data), "indexes": []}
    documents.write_text(json.dumps({"id": "fog", "text": "fog"}))
    for name in ("b", "a"):
        assert tercet("index", documents, "--index", name, "--data", data).code == 0
    (data / "c" / "snapshots").mkdir(parents=True)
    (data / ".jobs").mkdir()
    first, second, third = tercet("indexes", "--data", data, "--json").result["indexes"]
    assert [each["index"] for each in (first, second, third)] == ["a", "b", "c"]
    assert (first["n_documents"], first["n_passages"], first["n_snapshots"]) == (1, 1, 1)
    assert (first["encoder"], first["fault"]) == ("tiny-dual-encoder", None)
    assert (third["snapshot"], third["fault"]) == (None, "index 'c' has no current snapshot")
    heads, *rows = tercet("indexes", "--data", data).stdout.splitlines()
    assert heads.split() == ["index", "snapshot", "built", "documents", "passages", "size", "encoder"]
    assert rows[0].split()[:2] == ["a", first["snapshot"]]
    assert rows[2].split()[0] == "c"
    assert "no current snapshot" in rows[2]


def test_snapshots_are_listed_verified_rolled_back_moved_and_removed(tercet: Tercet, tmp_path: Path) -> None:
    listed = tercet("snapshots", "ls", "--json").result["snapshots"]
    current = next(each["snapshot_id"] for each in listed if each["is_current"])
    other = next(each["snapshot_id"] for each in listed if not each["is_current"])
    shown = tercet("snapshots", "ls").stdout.splitlines()
    assert shown[0].split() == ["snapshot", "built", "documents", "passages", "size"]
    assert next(line for line in shown if current in line).startswith("current")
    assert f"Snapshot {current} of index 'default' is intact: " in tercet("snapshots", "verify").stderr
    archive = tmp_path / "snapshot.tar.gz"
    assert tercet("snapshots", "export", archive).code == 0
    done = tercet("snapshots", "import", archive, "--index", "copy", "--json")
    assert (done.result["index"], done.result["snapshot"]) == ("copy", current)
    assert tercet("search", "ferry", "--index", "copy", "--json").result["results"][0]["document_id"] == "ferry"
    assert [line.split()[:2] for line in shown[1:]] == [["current", current], ["before", other]]
    rolled_back = tercet("snapshots", "rollback").stderr
    assert f"Snapshot {other} of index 'default' is current now; {current} was before." in rolled_back
    assert tercet("search", "fog", "--json").result["results"][0]["document_id"] == "fog"
    removed = tercet("snapshots", "remove", "--keep", "1")
    assert f"Removed 1 snapshot of index 'default': {current}." in removed.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["ls", "--index", "none"], "There is no index 'none' in "),
        (["verify", "none"], "Index 'default' has no snapshot 'none'."),
        (["rollback", "none"], "Index 'default' has no snapshot 'none'."),
        (
            ["rollback"],
            "Index 'default' has no snapshot to go back to: of those that are there none was current before ",
        ),
        (["import", "none.tar"], "Archive none.tar cannot be read: No such file or directory."),
        (["export", "/none/snapshot.tar"], "Archive /none/snapshot.tar cannot be written: No such file or directory."),
    ],
)
def test_what_cannot_be_done_is_one_sentence(tercet: Tercet, arguments: list[str], sentence: str) -> None:
    done = tercet("snapshots", *arguments)
    assert done.code == 1
    assert done.sentence.startswith(sentence)


def test_a_snapshot_of_another_encoder_is_neither_imported_nor_rolled_back_to(
    tercet: Tercet, other_encoder: str, tmp_path: Path
) -> None:
    for text in ("fog", "ferry"):
        (tmp_path / "documents.jsonl").write_text(json.dumps({"id": text, "text": text}))
        assert tercet("index", tmp_path / "documents.jsonl", "--index", "old", DUAL_ENCODER=other_encoder).code == 0
    archive = tmp_path / "old.tar"
    assert tercet("snapshots", "export", archive, "--index", "old").code == 0
    assert tercet("snapshots", "verify", "--index", "old").code == 0
    for arguments in (["rollback", "--index", "old"], ["import", archive, "--index", "new"]):
        done = tercet("snapshots", *arguments)
        assert done.code == 1
        assert "was built with the encoder 'other'" in done.sentence
        assert "configure the first or index again" in done.sentence
    assert tercet("snapshots", "import", archive, "--index", "new", DUAL_ENCODER=other_encoder).code == 0
