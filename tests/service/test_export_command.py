"""`tercet export`: a checkpoint becomes a model folder that opens, or a sentence says why not."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from models.folder import Kind, open_model_folder
from service.cli import run
from service.extras import StartupError, check_train_extra

Checkpoints = Callable[[Kind], Path]


def export(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    capsys.readouterr()
    code = run(["export", *map(str, arguments)])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_a_training_run_becomes_a_model_that_says_where_it_comes_from(
    tiny_checkpoint: Checkpoints, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_folder = tmp_path / "my-reader"
    shutil.copytree(tiny_checkpoint("reader"), run_folder / "best")
    (run_folder / "recipe.json").write_text('{"seed": 3}')
    code, out, err = export(
        capsys, run_folder, "--out", tmp_path / "model", "--licence", "MIT", "--max-tokens", "96", "--json"
    )
    assert code == 0, err
    result = json.loads(out)
    folder = open_model_folder(str(tmp_path / "model"), "reader")
    assert result["fingerprint"] == folder.fingerprint
    settings = folder.settings
    assert (settings.name, settings.licence, settings.origin) == ("my-reader", "MIT", "exported from my-reader")
    assert (settings.max_tokens, settings.max_query_tokens, settings.overlap_tokens) == (96, 32, 30)
    assert settings.recipe == {"seed": 3}
    assert settings.architecture.startswith("bert, 2 layers, 32 wide, 2 heads")
    assert settings.parity is not None
    assert result["parity"] == settings.parity.model_dump(exclude_none=True)
    assert result["parity"]["longest_tokens"] == 96
    assert result["parity"]["int8_mean_difference"] > 0


def test_a_run_whose_name_would_steer_a_terminal_is_exported(
    tiny_checkpoint: Checkpoints, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(tiny_checkpoint("reader"), tmp_path / "r\x1bn" / "best")
    out_folder = tmp_path / "m\x1bl"
    code, out, err = export(capsys, tmp_path / "r\x1bn", "--out", out_folder, "--quantize", "none", "--json")
    assert code == 0, err
    assert json.loads(out)["path"] == f"{tmp_path}/m\\x1bl"
    settings = open_model_folder(str(out_folder), "reader").settings
    assert (settings.name, settings.origin) == ("r\\x1bn", "exported from r\\x1bn")


def test_each_kind_gets_what_it_needs_and_a_table_shows_it(
    tiny_checkpoint: Checkpoints, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kinds: tuple[Kind, ...] = ("dual-encoder", "cross-encoder")
    for kind in kinds:
        code, out, err = export(capsys, tiny_checkpoint(kind), "--out", tmp_path / kind, "--quantize", "none")
        assert code == 0, err
        assert "fp32 max difference" in out
        assert "int8" not in out
        settings = open_model_folder(str(tmp_path / kind), kind).settings
        assert settings.max_tokens == 128
        assert settings.pooling == ("mean" if kind == "dual-encoder" else None)
        assert settings.overlap_tokens == 0


def test_what_cannot_be_exported_is_one_sentence_and_leaves_nothing(
    tiny_checkpoint: Checkpoints, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "full").mkdir()
    cases: list[tuple[list[str | Path], str]] = [
        ([tmp_path / "nowhere", "--out", tmp_path / "out"], "is not a folder"),
        ([tmp_path / "full", "--out", tmp_path / "out"], "has no config.json"),
        ([tiny_checkpoint("reader"), "--out", tmp_path / "out", "--max-tokens", "129"], "from 16 to 128 tokens"),
        ([tiny_checkpoint("reader"), "--out", tmp_path / "full"], "no model folder"),
        ([tiny_checkpoint("reader"), "--out", tmp_path / "full", "--force"], "no model folder"),
        ([tiny_checkpoint("reader"), "--out", tmp_path / "file" / "out"], "file"),
        ([tiny_checkpoint("dual-encoder"), "--out", tmp_path / "out", "--kind", "reader"], "lacks weights"),
        ([tiny_checkpoint("reader"), "--out", tmp_path / "out", "--name", " "], "--name is blank"),
        (
            [tiny_checkpoint("reader"), "--out", tmp_path / "out", "--origin", "\udcff"],
            "--origin '\\\\xff' is not UTF-8",
        ),
    ]
    for arguments, reason in cases:
        code, out, err = export(capsys, *arguments)
        assert (code, out) == (1, ""), arguments
        last = err.strip().splitlines()[-1]
        assert last.startswith("tercet: ")
        assert reason in last
        assert "Traceback" not in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "full"]


def test_wrong_use_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert export(capsys)[0] == 2
    assert export(capsys, tmp_path)[0] == 2
    assert export(capsys, tmp_path, "--out", "x", "--quantize", "int4")[0] == 2


def test_without_the_train_extra_the_sentence_says_what_to_install() -> None:
    check_train_extra()
    with pytest.raises(StartupError, match=r"no-such-library is missing: run pip install --editable '\.\[train\]'"):
        check_train_extra(["no-such-library"])
