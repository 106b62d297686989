"""What training starts from: any encoder of BERT's type, or a sentence that says why not."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from models.errors import ModelError, TrainingError
from models.folder import Kind, open_model_folder, write_settings
from models.tokenization import Lengths, Tokenizer
from models.training.average import average, encoder_cosine
from models.training.checkpoints import load_start, save_checkpoint
from models.training.data import LabelledQuestion
from models.training.loop import train
from models.training.reader import LENGTHS, reader_task
from models.training.recipe import Lesson, NullSide, Recipe
from tests.conftest import TinyModels
from tests.models.training.test_runs import files_of_at_most

Checkpoints = Callable[[Kind], Path]

RECIPE = Recipe(seed=1, epochs=1, batch_tokens=600, learning_rate=1e-3, head_learning_rate=1e-3)
SIZES: dict[str, Any] = {
    "vocab_size": 300,
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 100,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "bert": SIZES,
    "roberta": SIZES | {"type_vocab_size": 1, "pad_token_id": 1},
    "mpnet": SIZES,
    "albert": SIZES | {"embedding_size": 16},
    "electra": SIZES | {"embedding_size": 16},
    "distilbert": {"vocab_size": 300, "dim": 32, "n_layers": 1, "n_heads": 2, "hidden_dim": 64}
    | {"max_position_embeddings": 100},
}


def write_encoder(path: Path, family: str, tokenizer: Path, **sizes: Any) -> Path:
    from transformers import AutoConfig, AutoModel

    torch.manual_seed(3)
    make: Any = AutoModel.from_config
    make(AutoConfig.for_model(family, **sizes)).save_pretrained(path)
    shutil.copy(tokenizer / "tokenizer.json", path)
    return path


def changed(checkpoint: Path, target: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> Path:
    """Return a copy of a checkpoint with other weights."""
    shutil.copytree(checkpoint, target)
    weights = load_file(target / "model.safetensors")
    change(weights)
    save_file(weights, target / "model.safetensors", {"format": "pt"})
    return target


@pytest.mark.parametrize("family", FAMILIES)
def test_any_encoder_learns_with_inputs_as_long_as_it_takes(
    family: str, tmp_path: Path, tiny_checkpoint: Checkpoints
) -> None:
    init = write_encoder(tmp_path / family, family, tiny_checkpoint("reader"), **FAMILIES[family])
    passage = "lima is the town of the sea and the river " * 30
    questions = [LabelledQuestion(f"q{n}", "t", passage, "where is it", ((0, "lima"),)) for n in range(3)]
    task = reader_task(questions, questions, str(init), RECIPE, Lesson(NullSide(0, 0)))
    assert task.lengths.max() == 96  # the positions in whole steps of padding
    assert "of at most 96 tokens, all that the model takes" in task.summary
    train(task, RECIPE, tmp_path / "run")
    again = load_start("reader", str(tmp_path / "run"), RECIPE, LENGTHS)  # a run stands for its best checkpoint
    for mine, theirs in zip(again.model.state_dict().values(), task.model.state_dict().values(), strict=True):
        assert mine.equal(theirs)


def test_lengths_that_fit_stay_as_they_are(tiny_checkpoint: Checkpoints) -> None:
    start = load_start("cross-encoder", str(tiny_checkpoint("cross-encoder")), RECIPE, Lengths(128, 96))
    assert (start.lengths, start.note) == (Lengths(128, 96), "")
    cut = load_start("cross-encoder", str(tiny_checkpoint("cross-encoder")), RECIPE, Lengths(256, 96))
    assert cut.lengths == Lengths(128, 42)


def test_cut_lengths_leave_room_for_a_passage() -> None:
    """Of 64 tokens a query has 21; the 39 beside it and 4 special ones can overlap by 19."""
    assert Lengths(384, 64, 128).cut_to(64) == Lengths(64, 21, 19)
    for n in range(16, 513):
        cut = Lengths(384, 64, 128).cut_to(n)
        assert cut.max_tokens - cut.max_query_tokens - 4 > cut.overlap_tokens


def test_what_cannot_be_started_from_is_one_sentence(tmp_path: Path, tiny_checkpoint: Checkpoints) -> None:
    reader, encoder = tiny_checkpoint("reader"), tiny_checkpoint("dual-encoder")
    gpt2 = {"vocab_size": 300, "n_embd": 32, "n_layer": 1, "n_head": 2}
    write_encoder(tmp_path / "gpt2", "gpt2", reader, **gpt2)
    write_encoder(tmp_path / "few", "bert", reader, **SIZES | {"vocab_size": 50})
    write_encoder(tmp_path / "short", "bert", reader, **SIZES | {"max_position_embeddings": 15})
    changed(encoder, tmp_path / "lacking", lambda weights: weights.pop("encoder.layer.1.output.dense.weight"))
    changed(encoder, tmp_path / "nan", lambda weights: weights["embeddings.LayerNorm.bias"].fill_(float("nan")))
    changed(reader, tmp_path / "three", lambda w: w.update({"qa_outputs.weight": torch.zeros(3, 32)}))
    for name in ("cut", "empty_bin", "no_tokenizer", "bad_tokenizer", "bytes_tokenizer", "specials", "no_json"):
        shutil.copytree(encoder, tmp_path / name)
    weights = (encoder / "model.safetensors").read_bytes()
    (tmp_path / "cut" / "model.safetensors").write_bytes(weights[:3000])
    (tmp_path / "empty_bin" / "model.safetensors").unlink()
    (tmp_path / "empty_bin" / "pytorch_model.bin").write_bytes(b"")
    (tmp_path / "no_tokenizer" / "tokenizer.json").unlink()
    (tmp_path / "bad_tokenizer" / "tokenizer.json").write_text("{}")
    (tmp_path / "bytes_tokenizer" / "tokenizer.json").write_bytes(b"\xff\xfe")
    tokenizer = (encoder / "tokenizer.json").read_text()
    (tmp_path / "specials" / "tokenizer.json").write_text(tokenizer.replace("[CLS]", "[NIL]"))
    (tmp_path / "no_json" / "config.json").write_text("{")
    for name, reason in {
        "gpt2": "holds a gpt2, which is no encoder of BERT's type",
        "few": "has token ids up to .* but the model has 50 embeddings",
        "short": "takes 15 tokens; training needs 16",
        "lacking": r"has no weight bert\.encoder\.layer\.1\.output\.dense\.weight",
        "nan": r"has numbers in .*embeddings\.LayerNorm\.bias that are not finite",
        "three": r"qa_outputs\.weight is \(3, 32\), expected \(2, 32\)",
        "cut": "cannot be loaded by transformers",
        "empty_bin": "cannot be loaded by transformers",
        "no_tokenizer": r"has no tokenizer\.json",
        "bad_tokenizer": "is no tokenizer",
        "bytes_tokenizer": "is no tokenizer",
        "specials": r"has none of the special tokens \[CLS\]",
        "no_json": "is not JSON",
    }.items():
        with pytest.raises(ModelError, match=reason) as caught:
            reader_task([], [], str(tmp_path / name), RECIPE, Lesson(NullSide(0, 0)))
        assert "\n" not in str(caught.value), name


def test_a_head_for_another_number_of_labels_is_refused(tmp_path: Path, tiny_checkpoint: Checkpoints) -> None:
    shape = {"classifier.weight": torch.zeros(3, 32), "classifier.bias": torch.zeros(3)}
    three = changed(tiny_checkpoint("cross-encoder"), tmp_path / "three", lambda weights: weights.update(shape))
    config = json.loads((three / "config.json").read_text())
    labels = {"id2label": {str(n): f"l{n}" for n in range(3)}, "label2id": {f"l{n}": n for n in range(3)}}
    (three / "config.json").write_text(json.dumps(config | labels))
    with pytest.raises(TrainingError, match=r"three: classifier\.bias is \(3,\), expected \(1,\)"):
        load_start("cross-encoder", str(three), RECIPE, LENGTHS)
    start = load_start("reader", str(three), RECIPE, LENGTHS)  # a reader gets a head of its own
    assert start.model.state_dict()["qa_outputs.weight"].shape == (2, 32)


def test_a_model_folder_whose_graph_is_no_export_is_refused(tmp_path: Path, tiny_models: TinyModels) -> None:
    folder = Path(shutil.copytree(tiny_models.reader, tmp_path / "folder"))
    for content in (b"junk", b""):
        (folder / "model.onnx").write_bytes(content)
        write_settings(folder, open_model_folder(str(tiny_models.reader), "reader").settings)
        with pytest.raises(TrainingError, match=r"model\.onnx is no graph|has no weight"):
            load_start("reader", str(folder), RECIPE, LENGTHS)


def test_a_checkpoint_that_cannot_be_written_is_one_sentence(tmp_path: Path, tiny_checkpoint: Checkpoints) -> None:
    start = load_start("reader", str(tiny_checkpoint("reader")), RECIPE, LENGTHS)
    (tmp_path / "file").write_text("")
    for place, reason in ((tmp_path / "file" / "out", "Not a directory"), (Path("/proc/out"), "No such file")):
        with pytest.raises(TrainingError, match=f"{place} cannot be written: {reason}"):
            save_checkpoint(start.model, b"{}", place)


def test_a_mean_that_cannot_be_written_leaves_nothing(tmp_path: Path, tiny_checkpoint: Checkpoints) -> None:
    reader = tiny_checkpoint("reader")
    with files_of_at_most(50_000), pytest.raises(TrainingError, match=r"mean cannot be written: .*too large"):
        average([reader, reader], tmp_path / "mean")
    assert not (tmp_path / "mean").exists()


def test_writing_and_loading_leave_stderr_alone(
    tmp_path: Path, tiny_checkpoint: Checkpoints, capfd: pytest.CaptureFixture[str]
) -> None:
    start = load_start("cross-encoder", str(tiny_checkpoint("reader")), RECIPE, LENGTHS)
    start.save(tmp_path / "out")
    assert Tokenizer(tmp_path / "out" / "tokenizer.json").vocabulary_size
    assert capfd.readouterr().err == ""


def test_the_cosine_of_encoders_worked_example() -> None:
    """[[1, 0]] and [[1, 1]] have 1 / sqrt(2); biases, heads and positions do not count."""
    left = {"bert.w": torch.tensor([[1.0, 0.0]]), "bert.b": torch.ones(2), "head.w": torch.ones(1, 2)}
    right = {"bert.w": torch.tensor([[1.0, 1.0]]), "bert.b": -torch.ones(2), "head.w": -torch.ones(1, 2)}
    ids = {"bert.ids": torch.arange(4).reshape(1, 4)}
    assert encoder_cosine(left | ids, right | ids, prefix="bert") == pytest.approx(1 / np.sqrt(2))
    assert encoder_cosine({"w": left["bert.w"]}, {"w": right["bert.w"]}, prefix="bert") == pytest.approx(
        0.7071, abs=1e-4
    )
