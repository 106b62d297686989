"""The native engine: parity with torch for each kind, the same bits in any company, and what it leaves to others."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from models import native_session
from models.bert import bert_in
from models.checkpoint import open_checkpoint
from models.cross_encoder import CrossEncoder
from models.errors import DeviceError, ModelFolderError
from models.export import export
from models.folder import (
    BUNDLED_CROSS_ENCODER,
    BUNDLED_DUAL_ENCODER,
    BUNDLED_READER,
    OUTPUTS,
    Kind,
    ModelFolder,
    ModelSettings,
    open_model_folder,
)
from models.native_session import NativeSession
from models.onnx_file import OnnxFileError, read_graph
from models.onnx_session import OnnxSession
from models.session import Runtime
from models.tokenization import ModelInput
from tests.conftest import TinyModels

needs_native = pytest.mark.skipif(
    not native_session.is_supported(), reason="the native engine was not built, or this CPU has no AMX"
)
KINDS: tuple[Kind, ...] = ("dual-encoder", "cross-encoder", "reader")
BUNDLED: dict[Kind, str] = dict(zip(KINDS, [BUNDLED_DUAL_ENCODER, BUNDLED_CROSS_ENCODER, BUNDLED_READER], strict=True))
LENGTHS = [1, 2, 3, 15, 16, 17, 31, 32, 33, 48, 63, 64]


def inputs_of(lengths: list[int], vocabulary: int) -> list[ModelInput]:
    generator = np.random.default_rng(5)
    return [ModelInput(generator.integers(0, vocabulary, n), (np.arange(n) > n // 3).astype(np.int64)) for n in lengths]


@pytest.fixture(scope="module")
def make(
    tmp_path_factory: pytest.TempPathFactory, tiny_checkpoint: Callable[[Kind], Path]
) -> Callable[..., ModelFolder]:
    """Return a function that exports a random BERT of a kind and of sizes."""
    from transformers import BertConfig, BertForQuestionAnswering, BertForSequenceClassification, BertModel

    def folder(kind: Kind, *, quantizes: bool = False, **sizes: Any) -> ModelFolder:
        root = tmp_path_factory.mktemp("native")
        usual = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 160}
        torch.manual_seed(7)
        config = BertConfig(
            **{"vocab_size": 300, "max_position_embeddings": 64, "num_labels": 2 if kind == "reader" else 1}
            | usual
            | sizes
        )
        classes: dict[Kind, Any] = {"cross-encoder": BertForSequenceClassification, "reader": BertForQuestionAnswering}
        model = classes[kind](config) if kind in classes else BertModel(config, add_pooling_layer=False)
        for parameter in model.parameters():  # zeroes and ones would hide a bias or a norm that is left out
            parameter.data += 0.2 * torch.randn_like(parameter)
        model.save_pretrained(root / "checkpoint")
        shutil.copy(tiny_checkpoint(kind) / "tokenizer.json", root / "checkpoint")
        settings = ModelSettings(
            name="native",
            kind=kind,
            architecture="BERT",
            max_tokens=64,
            max_query_tokens=24,
            overlap_tokens=8,
            pooling="mean" if kind == "dual-encoder" else None,
            outputs=OUTPUTS[kind],
            origin="a test",
            licence="none",
        )
        return export(open_checkpoint(root / "checkpoint", kind), root / "model", settings, quantizes=quantizes)

    return folder


def flat(outputs: list[tuple[Any, ...]]) -> np.ndarray[Any, Any]:
    return np.concatenate([values.ravel() for item in outputs for values in item])


@needs_native
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sizes", [{}, {"hidden_size": 128, "hidden_act": "gelu", "layer_norm_eps": 1e-3}])
def test_it_gives_what_the_graph_gives(make: Callable[..., ModelFolder], kind: Kind, sizes: dict[str, Any]) -> None:
    folder = make(kind, **sizes)  # heads of 32 numbers, and of 64
    items = inputs_of(LENGTHS, 300)
    exact = flat(OnnxSession(folder.path / "model.onnx", n_threads=1).run(items))
    found = flat(NativeSession(folder, n_threads=2).run(items))
    error = np.sqrt(np.mean((found - exact) ** 2) / np.mean((exact - exact.mean()) ** 2))
    assert error < 0.06  # of bfloat16, three layers deep; a bias or a norm left out makes more than .3


@needs_native
@pytest.mark.parametrize("kind", KINDS)
def test_the_bundled_models_run_in_it_and_an_input_gets_the_same_bits_in_any_company(kind: Kind) -> None:
    folder = open_model_folder(BUNDLED[kind], kind)
    session = NativeSession(folder, n_threads=2)
    items = inputs_of([7, 200, 33, 512, 64, 1, 200, 17], 30522)
    together = session.run(items)
    for item, outputs in zip(items, together, strict=True):
        for alone, mate in zip(session.run([item])[0], outputs, strict=True):
            np.testing.assert_array_equal(alone, mate)
    again = session.run(items[::-1])[::-1]
    np.testing.assert_array_equal(flat(again), flat(together))
    exact = flat(OnnxSession(folder.path / "model.onnx", n_threads=1).run(items))  # int8: not exact, but near
    assert np.corrcoef(flat(together), exact)[0, 1] > 0.99


@needs_native
def test_quantised_weights_are_the_numbers_they_stand_for(make: Callable[..., ModelFolder]) -> None:
    folder = make("dual-encoder", quantizes=True)
    bert = bert_in(read_graph(folder.path / "model.onnx"), "dual-encoder")
    assert bert is not None
    assert bert.words is None
    assert bert.quantised_words is not None
    assert bert.quantised_words.shape == (300, 64)
    items = inputs_of(LENGTHS, 300)
    found = flat(NativeSession(folder, n_threads=1).run(items))
    exact = flat(OnnxSession(folder.path / "model.onnx", n_threads=1).run(items))
    assert np.corrcoef(found, exact)[0, 1] > 0.999


@needs_native
def test_what_would_read_beside_a_table_is_refused(make: Callable[..., ModelFolder]) -> None:
    session = NativeSession(make("reader"), n_threads=1)
    fine, types = np.array([1, 2]), np.zeros(2, np.int64)
    for item, reason in [
        (ModelInput(np.array([1, 300]), types), "token id is 300"),
        (ModelInput(np.array([-1, 2]), types), "token id is 2 or -1"),
        (ModelInput(fine, types + 2), "token type is 2"),
        (ModelInput(np.ones(65, np.int64), np.zeros(65, np.int64)), "65 tokens; the model takes 64"),
    ]:
        with pytest.raises(IndexError, match=reason):
            session.run([item])


@pytest.mark.parametrize(
    "sizes",
    [
        {"hidden_act": "relu"},
        {"hidden_act": "gelu_new"},
        {"num_attention_heads": 4},  # of 16 numbers
        {"hidden_size": 48, "num_attention_heads": 1},
        {"intermediate_size": 40},
    ],
)
def test_other_berts_are_left_to_other_engines(make: Callable[..., ModelFolder], sizes: dict[str, Any]) -> None:
    folder = make("cross-encoder", **sizes)
    if native_session.is_supported():
        with pytest.raises(ModelFolderError, match="no BERT of a size that the native engine takes"):
            NativeSession(folder, n_threads=1)
    assert not CrossEncoder(folder, Runtime(1)).engine.startswith("native")


def edited(folder: ModelFolder, target: Path, edit: Callable[[Any], object]) -> Path:
    model = onnx.load(str(folder.path / "model.onnx"))
    edit(model.graph)
    onnx.save(model, str(target))
    return target


def test_a_graph_that_does_something_else_is_not_taken_for_bert(
    make: Callable[..., ModelFolder], tmp_path: Path
) -> None:
    folder = make("cross-encoder")

    def add_operation(graph: Any) -> None:
        graph.node.insert(5, onnx.helper.make_node("CumSum", ["input_ids", "val_10"], ["positions"]))

    def scale(graph: Any) -> None:
        [at] = {node.input[1] for node in graph.node if node.op_type == "Mul"}
        for each in graph.initializer:
            if each.name == at:
                each.CopyFrom(onnx.numpy_helper.from_array(np.array(0.5, np.float32), at))

    def rename(graph: Any) -> None:
        for each in (*graph.initializer, *graph.node):
            if each.name == "model.classifier.bias":
                each.name = "model.other.bias"
        for node in graph.node:
            node.input[:] = [name.replace("model.classifier.bias", "model.other.bias") for name in node.input]

    def approximate(graph: Any) -> None:
        next(node for node in graph.node if node.op_type == "Gelu").attribute[0].s = b"tanh"

    assert bert_in(read_graph(folder.path / "model.onnx"), "cross-encoder") is not None
    assert bert_in(read_graph(folder.path / "model.onnx"), "reader") is None
    for edit in (add_operation, scale, rename, approximate):
        assert bert_in(read_graph(edited(folder, tmp_path / "model.onnx", edit)), "cross-encoder") is None, edit


def test_a_file_reads_as_the_library_reads_it(tiny_models: TinyModels) -> None:
    for path in (tiny_models.reader, *(open_model_folder(name, None).path for name in BUNDLED.values())):
        graph, expected = read_graph(path / "model.onnx"), onnx.load(str(path / "model.onnx")).graph
        assert [(node.operation, *node.inputs, *node.outputs) for node in graph.nodes] == [
            (node.op_type, *node.input, *node.output) for node in expected.node
        ]
        assert graph.inputs == tuple(each.name for each in expected.input)
        assert graph.outputs == tuple(each.name for each in expected.output)
        for each in expected.initializer:
            values = onnx.numpy_helper.to_array(each)
            assert graph.constants[each.name].dtype == values.dtype
            np.testing.assert_array_equal(graph.constants[each.name], values)


def test_a_file_that_is_cut_or_altered_is_refused_or_read_and_never_more(
    make: Callable[..., ModelFolder], tmp_path: Path
) -> None:
    content = (make("reader").path / "model.onnx").read_bytes()
    generator = np.random.default_rng(3)
    for _ in range(60):
        broken = bytearray(content[: int(generator.integers(0, len(content)))])
        for at in generator.integers(0, max(1, len(broken)), 3):
            broken[at : at + 1] = bytes([int(generator.integers(0, 256))])
        (tmp_path / "model.onnx").write_bytes(broken)
        try:
            bert_in(read_graph(tmp_path / "model.onnx"), "reader")
        except (OnnxFileError, LookupError):
            continue


def test_an_engine_that_is_not_there_is_refused(tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = open_model_folder(str(tiny_models.cross_encoder), "cross-encoder")
    with pytest.raises(DeviceError, match="engine 'native' runs on the CPU only, not on device 'cuda'"):
        CrossEncoder(folder, Runtime(device="cuda", engine="native"))
    monkeypatch.setattr("models.native_session.is_built", lambda: True)
    monkeypatch.setattr("models.native_session.is_supported", lambda: False)
    with pytest.raises(DeviceError, match="engine 'native' was asked for, but the CPU, or its system, lends no AMX"):
        CrossEncoder(folder, Runtime(engine="native"))
    monkeypatch.setattr("models.native_session.is_built", lambda: False)
    with pytest.raises(DeviceError, match="engine 'native' was asked for, but the native kernels were not built"):
        CrossEncoder(folder, Runtime(engine="native"))
