"""Model folders are verified, or refused with a sentence that names what is wrong."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from models.errors import ModelFolderError
from models.folder import BUNDLED_DUAL_ENCODER, bundled_names, open_model_folder, write_settings
from models.reader import Reader
from models.session import Runtime
from tests.conftest import TinyModels


@pytest.fixture
def folder(tiny_models: TinyModels, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_models.reader, tmp_path / "reader"))


def change(path: Path, **fields: object) -> None:
    """Change settings as a person does who knows what verifies them."""
    settings = json.loads((path / "model.json").read_text())
    del settings["fingerprint"]
    (path / "model.json").write_text(json.dumps(settings | fields))


def test_every_bundled_model_opens_by_name_and_has_a_card() -> None:
    assert BUNDLED_DUAL_ENCODER in bundled_names()
    kinds = {"dual-encoder", "cross-encoder", "reader"}
    for name in bundled_names():
        kind = next(kind for kind in kinds if name.endswith(kind))
        folder = open_model_folder(name, kind)  # type: ignore[arg-type]  # narrowed by the line above
        assert (folder.path / "README.md").stat().st_size > 500


def test_fingerprint_changes_with_any_setting(folder: Path) -> None:
    before = open_model_folder(str(folder), "reader").fingerprint
    change(folder, overlap_tokens=9)
    assert open_model_folder(str(folder), "reader").fingerprint != before


def test_an_altered_file_is_refused(folder: Path) -> None:
    content = bytearray((folder / "model.onnx").read_bytes())
    content[len(content) // 2] ^= 1
    (folder / "model.onnx").write_bytes(content)
    with pytest.raises(ModelFolderError, match=r"model\.onnx was altered"):
        open_model_folder(str(folder), "reader")


def test_no_bit_of_the_settings_changes_unseen(folder: Path) -> None:
    before = open_model_folder(str(folder), "reader")
    content = (folder / "model.json").read_bytes()
    n_refused = 0
    for place in range(len(content)):
        altered = bytearray(content)
        altered[place] ^= 1 << place % 8
        (folder / "model.json").write_bytes(altered)
        try:
            assert open_model_folder(str(folder), "reader").settings == before.settings  # white space, or e for E
        except ModelFolderError:
            n_refused += 1
    assert n_refused > len(content) / 2


def test_altered_settings_are_refused_with_the_way_out(folder: Path) -> None:
    path = folder / "model.json"
    path.write_text(path.read_text().replace('"threshold": ', '"threshold": 1'))
    with pytest.raises(ModelFolderError, match=r"model\.json was altered: .* take 'fingerprint' out of it"):
        open_model_folder(str(folder), "reader")
    change(folder)
    stored = write_settings(folder, open_model_folder(str(folder), "reader").settings)
    assert json.loads(path.read_text())["fingerprint"] == stored.fingerprint


@pytest.mark.parametrize("name", bundled_names())
def test_bundled_settings_authenticate_themselves(name: str) -> None:
    folder = open_model_folder(name, None)
    assert json.loads((folder.path / "model.json").read_text())["fingerprint"] == folder.fingerprint


def test_a_missing_file_is_named(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ModelFolderError, match=r"tokenizer\.json is missing"):
        open_model_folder(str(folder), "reader")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"format_version": 2}, "format version 2; this Tercet reads version 1"),
        ({"relevance": {"rrf_weight": 9.0}}, "calibrated by an older Tercet: take .* run `tercet calibrate reranker`"),
        ({"relevance": 3}, "cannot be read: relevance"),
        ({"max_tokens": 3}, "max_tokens"),
        ({"unknown": 1}, "unknown"),
        ({"files": {}}, r"no sha256 for model\.onnx"),
        ({"overlap_tokens": 5000}, "max_tokens is 64, which leaves no room beside a query of 24 tokens and an overlap"),
        ({"overlap_tokens": 36}, "leaves no room beside a query of 24 tokens and an overlap of 36"),
        ({"max_query_tokens": 60, "overlap_tokens": 0}, "leaves no room beside a query of 60 tokens"),
        ({"max_tokens": 4000}, "max_tokens is 4000, but its graph was tried with 64"),
        ({"outputs": ["a", "b"]}, "a reader gives start_logits, end_logits, not a, b"),
        ({"a\n\x1b[2J": 1}, r"'a\\n\\x1b\[2J': Extra inputs"),
        ({"format_version": "\n" * 9_000}, r"format version '(\\n){100}'; this"),
        (
            {"files": {"model.onnx": "", "tokenizer.json": "", "a" * 300: ""}},
            "lists 'a{100}', which is no file of a model",
        ),
    ],
)
def test_bad_settings_are_refused_by_name(folder: Path, fields: dict[str, object], message: str) -> None:
    change(folder, **fields)
    with pytest.raises(ModelFolderError, match=message):
        open_model_folder(str(folder), "reader")


@pytest.mark.parametrize("content", ["{", "[" * 100_000, "\xff", '{"format_version": 1, "name": "\\ud800"}'])
def test_settings_that_are_not_json_are_refused(folder: Path, content: str) -> None:
    (folder / "model.json").write_text(content, encoding="latin-1")
    with pytest.raises(ModelFolderError, match="cannot be read"):
        open_model_folder(str(folder), "reader")


def test_lengths_that_just_fit_are_taken(folder: Path) -> None:
    change(folder, overlap_tokens=35)
    reader = Reader(open_model_folder(str(folder), "reader"), Runtime(1))
    assert reader.read("what " * 99, ["the lighthouse " * 99]).answers


def test_a_model_of_another_kind_is_refused(folder: Path) -> None:
    with pytest.raises(ModelFolderError, match="holds a reader; a dual-encoder was asked for"):
        open_model_folder(str(folder), "dual-encoder")


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ModelFolderError, match=f"nowhere.*{BUNDLED_DUAL_ENCODER}"):
        open_model_folder("nowhere", "dual-encoder")


def test_a_fingerprint_is_of_what_model_json_says_and_not_of_fields_that_came_later(folder: Path) -> None:
    content = json.loads((folder / "model.json").read_text())
    del (
        content["fingerprint"],
        content["parity"],
        content["answer"]["n_examples"],
        content["answer"]["calibration_error"],
    )
    (folder / "model.json").write_text(json.dumps(content))
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    assert open_model_folder(str(folder), "reader").fingerprint == hashlib.sha256(canonical.encode()).hexdigest()


def test_writing_returns_the_folder_that_opening_gives(folder: Path) -> None:
    written = write_settings(folder, open_model_folder(str(folder), "reader").settings)
    assert open_model_folder(str(folder), "reader").fingerprint == written.fingerprint
    assert sorted(path.name for path in folder.iterdir()) == ["model.json", "model.onnx", "tokenizer.json"]


def test_a_write_that_fails_leaves_the_old_settings_whole(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = open_model_folder(str(folder), "reader").settings
    before = (folder / "model.json").read_bytes()

    def full(*names: object) -> None:
        raise OSError("no space")

    monkeypatch.setattr("models.folder.os.replace", full)
    with pytest.raises(OSError, match="no space"):
        write_settings(folder, settings.model_copy(update={"name": "other"}))
    assert (folder / "model.json").read_bytes() == before
    assert sorted(path.name for path in folder.iterdir()) == ["model.json", "model.onnx", "tokenizer.json"]
