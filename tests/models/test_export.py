"""An export proves its parity or fails, and what fails leaves nothing and says why in one sentence."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest

from models.checkpoint import Checkpoint, load_module, open_checkpoint
from models.cross_encoder import CrossEncoder
from models.errors import ExportError
from models.export import export, order_agreement, sample_inputs
from models.folder import OUTPUTS, Kind, ModelSettings, open_model_folder
from models.onnx_session import OnnxSession
from models.pooling import mean_pool, unit
from models.session import Outputs, Runtime
from models.tokenization import ModelInput, Tokenizer
from tests.conftest import TinyModels

if TYPE_CHECKING:
    from transformers import PretrainedConfig

Checkpoints = Callable[[Kind], Path]


def settings_for(checkpoint: Checkpoint, **changes: Any) -> ModelSettings:
    lengths = {"max_tokens": 64, "max_query_tokens": 24} | changes
    return ModelSettings(
        name="tiny",
        kind=checkpoint.kind,
        architecture=checkpoint.architecture,
        pooling="mean" if checkpoint.kind == "dual-encoder" else None,
        outputs=OUTPUTS[checkpoint.kind],
        origin="random",
        licence="Apache-2.0",
        **lengths,
    )


def changed(checkpoint: Path, target: Path, **fields: object) -> Path:
    """Return a copy of a checkpoint with other fields in its config."""
    shutil.copytree(checkpoint, target)
    config = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps(config | fields))
    return target


def test_fp32_equals_torch_and_int8_stays_near_it(tiny_checkpoint: Checkpoints, tmp_path: Path) -> None:
    checkpoint = open_checkpoint(tiny_checkpoint("cross-encoder"), None)
    fp32 = export(checkpoint, tmp_path / "fp32", settings_for(checkpoint), quantizes=False)
    int8 = export(checkpoint, tmp_path / "int8", settings_for(checkpoint))
    assert fp32.settings.parity is not None
    assert fp32.settings.parity.fp32_max_difference < 1e-6
    assert fp32.settings.parity.int8_max_difference is None
    parity = int8.settings.parity
    assert parity is not None
    assert parity.longest_tokens == 64
    assert parity.int8_mean_difference is not None
    assert parity.int8_max_difference is not None
    assert 0 < parity.int8_mean_difference <= parity.int8_max_difference < 0.1
    assert parity.rank_agreement is not None
    assert parity.rank_agreement > 0.8
    assert (int8.path / "model.onnx").stat().st_size < (fp32.path / "model.onnx").stat().st_size
    samples = sample_inputs(fp32.path / "tokenizer.json", fp32.settings)
    runtime = Runtime(engine="onnxruntime")
    logits = [CrossEncoder(open_model_folder(str(each.path), "cross-encoder"), runtime) for each in (fp32, int8)]
    one, other = (model.logits(samples) for model in logits)
    assert np.abs(one - other).max() == pytest.approx(parity.int8_max_difference)


def test_samples_are_of_many_lengths_odd_ones_and_the_longest_among_them(tiny_checkpoint: Checkpoints) -> None:
    for kind in ("reader", "dual-encoder"):
        checkpoint = open_checkpoint(tiny_checkpoint(kind), None)
        samples = sample_inputs(checkpoint.path / "tokenizer.json", settings_for(checkpoint))
        lengths = {item.ids.size for item in samples}
        assert {63, 64} <= lengths
        assert min(lengths) < 16
        assert len(lengths) >= 5


def test_a_graph_that_differs_from_the_checkpoint_is_refused_and_leaves_nothing(
    tiny_checkpoint: Checkpoints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = open_checkpoint(tiny_checkpoint("cross-encoder"), None)
    honest = OnnxSession.run
    monkeypatch.setattr(OnnxSession, "run", lambda self, inputs: [(o[0] + 1,) for o in honest(self, inputs)])
    with pytest.raises(ExportError, match="differs from torch by"):
        export(checkpoint, tmp_path / "out", settings_for(checkpoint))
    assert list(tmp_path.iterdir()) == []


def with_weights(checkpoint: Path, target: Path, name: str, place: Any, value: float) -> Path:
    """Return a copy of a checkpoint with another value at places of a weight."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(checkpoint, target)
    weights = load_file(target / "model.safetensors")
    weights[name][place] = value
    save_file(weights, target / "model.safetensors", {"format": "pt"})
    return target


@pytest.mark.parametrize(
    ("name", "place", "value", "reason"),
    [
        (
            "bert.embeddings.position_embeddings.weight",
            62,
            float("nan"),
            "numbers in .*position_embeddings.* not finite",
        ),
        ("bert.embeddings.word_embeddings.weight", 5, float("inf"), "numbers in .*word_embeddings.* not finite"),
        ("qa_outputs.bias", 1, float("nan"), r"numbers in qa_outputs\.bias that are not finite"),
        ("qa_outputs.weight", 0, 3e38, "outputs that are not finite"),
    ],
)
@pytest.mark.parametrize("quantizes", [False, True])
def test_a_model_that_gives_no_numbers_is_refused(
    tiny_checkpoint: Checkpoints, tmp_path: Path, name: str, place: int, value: float, reason: str, quantizes: bool
) -> None:
    checkpoint = open_checkpoint(with_weights(tiny_checkpoint("reader"), tmp_path / "in", name, place, value), None)
    with pytest.raises(ExportError, match=reason):
        export(checkpoint, tmp_path / "out", settings_for(checkpoint), quantizes=quantizes)
    assert [each.name for each in tmp_path.iterdir()] == ["in"]


def test_a_graph_that_gives_no_numbers_is_refused(
    tiny_checkpoint: Checkpoints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = open_checkpoint(tiny_checkpoint("cross-encoder"), None)
    honest = OnnxSession.run

    def no_numbers(self: OnnxSession, inputs: Sequence[ModelInput]) -> list[Outputs]:
        return [*honest(self, inputs[:-1]), (np.full(1, np.nan, np.float32),)]

    monkeypatch.setattr(OnnxSession, "run", no_numbers)
    with pytest.raises(ExportError, match="ONNX differs from torch by nan"):
        export(checkpoint, tmp_path / "out", settings_for(checkpoint))
    monkeypatch.setattr("models.export._fp32_parity", lambda module, path, samples: None)
    with pytest.raises(ExportError, match="int8 gives outputs that are not finite; --quantize none keeps fp32"):
        export(checkpoint, tmp_path / "out", settings_for(checkpoint))


def test_outputs_that_are_all_zero_are_numbers(tiny_checkpoint: Checkpoints, tmp_path: Path) -> None:
    silent = with_weights(tiny_checkpoint("reader"), tmp_path / "in", "qa_outputs.weight", slice(None), 0.0)
    with_weights(silent, tmp_path / "silent", "qa_outputs.bias", slice(None), 0.0)
    checkpoint = open_checkpoint(tmp_path / "silent", None)
    folder = export(checkpoint, tmp_path / "out", settings_for(checkpoint))
    assert folder.settings.parity is not None
    assert folder.settings.parity.int8_noise == 0


def test_int8_that_drowns_the_outputs_is_refused(
    tiny_checkpoint: Checkpoints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = open_checkpoint(tiny_checkpoint("reader"), None)
    monkeypatch.setattr("models.export.INT8_TOLERANCE", 1e-6)
    with pytest.raises(ExportError, match=r"of their size.*--quantize none"):
        export(checkpoint, tmp_path / "out", settings_for(checkpoint))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_gives_way_only_when_told_to_and_only_if_it_is_a_model(
    tiny_checkpoint: Checkpoints, tmp_path: Path
) -> None:
    checkpoint = open_checkpoint(tiny_checkpoint("cross-encoder"), None)
    out = tmp_path / "out"
    first = export(checkpoint, out, settings_for(checkpoint), quantizes=False)
    with pytest.raises(ExportError, match="is there already; --force"):
        export(checkpoint, out, settings_for(checkpoint))
    second = export(checkpoint, out, settings_for(checkpoint, max_tokens=48), quantizes=False, replaces=True)
    assert open_model_folder(str(out), "cross-encoder").fingerprint == second.fingerprint != first.fingerprint
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    for place in (tmp_path, tiny_checkpoint("reader")):
        with pytest.raises(ExportError, match="no model folder"):
            export(checkpoint, place, settings_for(checkpoint), replaces=True)


def test_a_failed_replacement_leaves_the_old_folder(
    tiny_checkpoint: Checkpoints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = open_checkpoint(tiny_checkpoint("cross-encoder"), None)
    first = export(checkpoint, tmp_path / "out", settings_for(checkpoint), quantizes=False)
    monkeypatch.setattr("models.export.FP32_TOLERANCE", 0.0)
    with pytest.raises(ExportError):
        export(checkpoint, tmp_path / "out", settings_for(checkpoint), replaces=True)
    assert open_model_folder(str(tmp_path / "out"), None).fingerprint == first.fingerprint
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_the_kind_follows_the_architecture_or_is_asked_for(tiny_checkpoint: Checkpoints, tmp_path: Path) -> None:
    kinds: tuple[Kind, ...] = ("dual-encoder", "cross-encoder", "reader")
    assert [open_checkpoint(tiny_checkpoint(kind), None).kind for kind in kinds] == list(kinds)
    for number, architectures in enumerate((None, [], ["BertForMaskedLM"])):
        other = changed(tiny_checkpoint("reader"), tmp_path / str(number), architectures=architectures)
        with pytest.raises(ExportError, match="give --kind, one of dual-encoder, cross-encoder, reader"):
            open_checkpoint(other, None)
        assert open_checkpoint(other, "reader").kind == "reader"


def test_a_training_run_stands_for_its_best_checkpoint(tiny_checkpoint: Checkpoints, tmp_path: Path) -> None:
    shutil.copytree(tiny_checkpoint("reader"), tmp_path / "run" / "best")
    assert open_checkpoint(tmp_path / "run", None).path == tmp_path / "run" / "best"


def test_what_is_no_checkpoint_is_one_sentence(tiny_checkpoint: Checkpoints, tmp_path: Path) -> None:
    whole = tiny_checkpoint("reader")
    for name in ("no_config", "no_weights", "no_json", "deep"):
        shutil.copytree(whole, tmp_path / name)
    (tmp_path / "no_config" / "config.json").unlink()
    (tmp_path / "no_weights" / "model.safetensors").unlink()
    (tmp_path / "no_json" / "config.json").write_text("{")
    (tmp_path / "deep" / "config.json").write_text("[" * 100_000)
    changed(whole, tmp_path / "unknown", model_type="no-such-model")
    for name, reason in {
        "nowhere": "is not a folder",
        "no_config": r"has no config\.json",
        "no_weights": "has no weights",
        "no_json": "is not JSON",
        "deep": "is not JSON",
        "unknown": "no-such-model",
    }.items():
        with pytest.raises(ExportError, match=reason) as caught:
            open_checkpoint(tmp_path / name, None)
        assert "\n" not in str(caught.value)


def test_a_checkpoint_that_lacks_the_head_is_refused(tiny_checkpoint: Checkpoints, tmp_path: Path) -> None:
    """transformers would draw the missing head at random."""
    checkpoint = open_checkpoint(tiny_checkpoint("dual-encoder"), "reader")
    with pytest.raises(ExportError, match=r"lacks weights of a reader: qa_outputs"):
        export(checkpoint, tmp_path / "out", settings_for(checkpoint))


def test_a_damaged_checkpoint_is_refused(tiny_checkpoint: Checkpoints, tmp_path: Path) -> None:
    damaged = Path(shutil.copytree(tiny_checkpoint("cross-encoder"), tmp_path / "damaged"))
    weights = (damaged / "model.safetensors").read_bytes()
    (damaged / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    classes = changed(tiny_checkpoint("reader"), tmp_path / "classes", architectures=["BertForSequenceClassification"])
    for path, reason in ((damaged, "cannot be loaded"), (classes, "lacks weights of a cross-encoder")):
        checkpoint = open_checkpoint(path, None)
        with pytest.raises(ExportError, match=reason):
            export(checkpoint, tmp_path / "out", settings_for(checkpoint))


def test_lengths_beyond_the_positions_are_refused(tiny_checkpoint: Checkpoints, tmp_path: Path) -> None:
    checkpoint = open_checkpoint(tiny_checkpoint("reader"), None)
    assert checkpoint.max_positions == checkpoint.default_max_tokens == 128
    with pytest.raises(ExportError, match="takes 128 tokens, not 129"):
        export(checkpoint, tmp_path / "out", settings_for(checkpoint, max_tokens=129))


def test_a_vocabulary_larger_than_the_embeddings_is_refused(tiny_checkpoint: Checkpoints, tmp_path: Path) -> None:
    large = Path(shutil.copytree(tiny_checkpoint("reader"), tmp_path / "large"))
    tokenizer = json.loads((large / "tokenizer.json").read_text())
    size = len(tokenizer["model"]["vocab"])
    tokenizer["model"]["vocab"]["lagoon"] = size
    (large / "tokenizer.json").write_text(json.dumps(tokenizer))
    checkpoint = open_checkpoint(large, None)
    with pytest.raises(ExportError, match=f"token ids up to {size}, but the model has {size} embeddings"):
        export(checkpoint, tmp_path / "out", settings_for(checkpoint))


def test_a_vocabulary_file_becomes_a_tokenizer_and_without_one_the_sentence_says_so(
    tiny_checkpoint: Checkpoints, tmp_path: Path
) -> None:
    slow = Path(shutil.copytree(tiny_checkpoint("reader"), tmp_path / "slow"))
    vocabulary = json.loads((slow / "tokenizer.json").read_text())["model"]["vocab"]
    (slow / "tokenizer.json").unlink()
    checkpoint = open_checkpoint(slow, None)
    with pytest.raises(ExportError, match=r"no tokenizer\.json and no vocabulary"):
        export(checkpoint, tmp_path / "out", settings_for(checkpoint))
    *tokens, _ = sorted(vocabulary, key=vocabulary.__getitem__)
    (slow / "vocab.txt").write_text("\n".join([*tokens, "[MASK]"]))  # transformers would add one that is missing
    folder = export(checkpoint, tmp_path / "out", settings_for(checkpoint), quantizes=False)
    made, given = (Tokenizer(path / "tokenizer.json") for path in (folder.path, tiny_checkpoint("reader")))
    text = "Who keeps the lighthouse in Porto?"
    assert made.encode(text).ids.tolist() == given.encode(text).ids.tolist()
    for content in (b"{}", b"\xff\xfe", b"[" * 100_000):
        (slow / "tokenizer.json").write_bytes(content)
        with pytest.raises(ExportError, match="is no tokenizer"):
            export(checkpoint, tmp_path / "other", settings_for(checkpoint))


def test_a_dual_encoder_that_pools_otherwise_is_refused(tiny_checkpoint: Checkpoints, tmp_path: Path) -> None:
    pooled = Path(shutil.copytree(tiny_checkpoint("dual-encoder"), tmp_path / "pooled"))
    (pooled / "1_Pooling").mkdir()
    modes = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False, "word_embedding_dimension": 32}
    (pooled / "1_Pooling" / "config.json").write_text(json.dumps(modes))
    with pytest.raises(ExportError, match="pools by pooling_mode_cls_token"):
        load_module(open_checkpoint(pooled, None))


FAMILIES: dict[str, dict[str, Any]] = {
    "roberta": {"type_vocab_size": 1, "pad_token_id": 1},
    "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64},
    "modernbert": {"local_attention": 16, "pad_token_id": 0},
    "deberta-v2": {
        "relative_attention": True,
        "position_buckets": 16,
        "pos_att_type": ["p2c", "c2p"],
        "position_biased_input": False,
        "type_vocab_size": 0,
    },
}


def tiny_encoder(family: str) -> "PretrainedConfig":
    """Return the configuration of a tiny encoder other than BERT."""
    from transformers import AutoConfig

    sizes: dict[str, Any] = {"vocab_size": 210, "max_position_embeddings": 66}
    if family != "distilbert":
        sizes |= {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    config: PretrainedConfig = AutoConfig.for_model(family, **sizes, **FAMILIES[family])
    return config


@pytest.mark.parametrize("family", FAMILIES)
def test_encoders_without_token_types_export_as_well(family: str, tiny_checkpoint: Checkpoints, tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForQuestionAnswering

    torch.manual_seed(3)
    make: Any = AutoModelForQuestionAnswering.from_config
    make(tiny_encoder(family)).save_pretrained(tmp_path / family)
    shutil.copy(tiny_checkpoint("reader") / "tokenizer.json", tmp_path / family)
    checkpoint = open_checkpoint(tmp_path / family, None)
    assert checkpoint.kind == "reader"
    assert checkpoint.max_positions == (64 if family == "roberta" else 66)
    folder = export(checkpoint, tmp_path / "out", settings_for(checkpoint))
    assert not folder.settings.token_types
    assert folder.settings.parity is not None
    assert folder.settings.parity.int8_noise is not None
    inputs = {node.name for node in onnx.load(str(folder.path / "model.onnx")).graph.input}
    assert inputs == {"input_ids", "attention_mask"}


def test_order_agreement_worked_example_and_ends() -> None:
    """[3, 2, 1] and [3, 1, 2] order two pairs of three alike."""
    scores = np.array([3, 2, 1], np.float32)
    assert order_agreement(scores, np.array([3, 1, 2], np.float32)) == pytest.approx(2 / 3)
    assert order_agreement(scores, scores) == 1
    assert order_agreement(scores, -scores) == 0
    assert order_agreement(scores[:1], scores[:1]) == 1


def test_a_model_without_token_types_loads_as_well(tiny_models: TinyModels, tmp_path: Path) -> None:
    shutil.copy(tiny_models.cross_encoder / "model.onnx", tmp_path / "model.onnx")
    graph = onnx.load(str(tmp_path / "model.onnx"))
    [types] = [node for node in graph.graph.input if node.name == "token_type_ids"]
    graph.graph.input.remove(types)
    shape = onnx.helper.make_node("Shape", ["input_ids"], ["types_shape"])
    zeros = onnx.helper.make_node(
        "ConstantOfShape",
        ["types_shape"],
        ["token_type_ids"],
        value=onnx.numpy_helper.from_array(np.zeros(1, np.int64)),
    )
    graph.graph.node.insert(0, shape)
    graph.graph.node.insert(1, zeros)
    onnx.save(graph, str(tmp_path / "model.onnx"))
    tokenizer = Tokenizer(tiny_models.cross_encoder / "tokenizer.json")
    outputs = OnnxSession(tmp_path / "model.onnx", n_threads=1).run(
        [tokenizer.single(tokenizer.encode("bees").ids, max_tokens=64)]
    )
    assert np.isfinite(outputs[0][0]).all()


def test_pooling_worked_example_and_zero_vector() -> None:
    pooled = mean_pool(np.array([[1.0, 3.0], [5.0, 5.0]], np.float32))
    assert pooled.tolist() == [3.0, 4.0]
    np.testing.assert_allclose(unit(pooled), [0.6, 0.8], atol=1e-7)
    assert unit(np.zeros((1, 2), np.float32)).tolist() == [[0.0, 0.0]]
