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
    assert f"{other} of index 'default' is current now" in tercet("snapshots", "rollback", other).stderr
    assert tercet("search", "fog", "--json").result["results"][0]["document_id"] == "fog"
    removed = tercet("snapshots", "remove", "--keep", "1")
    assert f"Removed 1 snapshot of index 'default': {current}." in removed.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["ls", "--index", "none"], "There is no index 'none' in "),
        (["verify", "none"], "Index 'default' has no snapshot 'none'."),
        (["rollback", "none"], "Index 'default' has no snapshot 'none'."),
        (["import", "none.tar"], "Archive none.tar cannot be read: No such file or directory."),
        (["export", "/none/snapshot.tar"], "Archive /none/snapshot.tar cannot be written: No such file or directory."),
    ],
)
def test_what_cannot_be_done_is_one_sentence(tercet: Tercet, arguments: list[str], sentence: str) -> None:
    done = tercet("snapshots", *arguments)
    assert done.code == 1
    assert done.sentence.startswith(sentence)
