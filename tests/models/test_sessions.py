"""Encoders and reader through real sessions of each engine: parity with torch, order, independence of batch mates."""

import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from models.cross_encoder import CrossEncoder
from models.dual_encoder import DualEncoder
from models.errors import DeviceError, ModelFolderError
from models.folder import BUNDLED_CROSS_ENCODER, Kind, ModelFolder, open_model_folder, write_settings
from models.onnx_session import OnnxSession
from models.reader import Reader
from models.session import Runtime, available_cpus
from models.tokenization import ModelInput
from tests.conftest import TinyModels

PASSAGES = ["lima is the capital of peru", "bees", "the keeper of the lighthouse was ingrid " * 30, "bees", ""]


_HAS_OPENVINO = find_spec("openvino") is not None
needs_openvino = pytest.mark.skipif(not _HAS_OPENVINO, reason="OpenVINO is not installed")


@pytest.fixture(scope="module", params=["onnxruntime", pytest.param("openvino", marks=needs_openvino)])
def runtime(request: pytest.FixtureRequest) -> Runtime:
    return Runtime(2, engine=request.param)


@pytest.fixture(scope="module")
def dual_encoder(tiny_models: TinyModels, runtime: Runtime) -> DualEncoder:
    return DualEncoder(open_model_folder(str(tiny_models.dual_encoder), "dual-encoder"), runtime)


@pytest.fixture(scope="module")
def cross_encoder(tiny_models: TinyModels, runtime: Runtime) -> CrossEncoder:
    return CrossEncoder(open_model_folder(str(tiny_models.cross_encoder), "cross-encoder"), runtime)


def torch_logits(checkpoint: Path, inputs: list[ModelInput]) -> list[float]:
    import torch
    from transformers import BertForSequenceClassification

    model = BertForSequenceClassification.from_pretrained(checkpoint)
    model.train(False)
    with torch.inference_mode():
        return [
            float(model(torch.from_numpy(i.ids[None]), token_type_ids=torch.from_numpy(i.token_types[None])).logits)
            for i in inputs
        ]


def test_logits_equal_torch(cross_encoder: CrossEncoder, tiny_checkpoint: Callable[[Kind], Path]) -> None:
    tokens = [text.ids for text in cross_encoder.tokenizer.encode_batch(PASSAGES)]
    inputs = cross_encoder.inputs("what is the capital of peru", tokens)
    expected = torch_logits(tiny_checkpoint("cross-encoder"), inputs)
    tolerance = 0.02 if "bf16" in cross_encoder.engine else 1e-4
    np.testing.assert_allclose(cross_encoder.logits(inputs), expected, atol=tolerance)


def test_reader_logits_do_not_depend_on_batch_mates(tiny_models: TinyModels, runtime: Runtime) -> None:
    reader = Reader(open_model_folder(str(tiny_models.reader), "reader"), runtime)
    inputs = reader.prepare("who keeps bees", PASSAGES).inputs
    together = reader.run(inputs)
    for item, both in zip(inputs, together, strict=True):
        [alone] = reader.run([item])
        for mine, theirs in ((alone.start, both.start), (alone.end, both.end)):
            assert theirs.shape == item.ids.shape
            np.testing.assert_array_equal(mine, theirs)


def test_token_types_reach_the_model(cross_encoder: CrossEncoder) -> None:
    tokens = cross_encoder.tokenizer.encode("bees").ids
    [pair] = cross_encoder.inputs("who keeps bees", [tokens])
    untyped = ModelInput(pair.ids, np.zeros_like(pair.token_types))
    assert cross_encoder.logits([pair])[0] != cross_encoder.logits([untyped])[0]


def test_a_score_does_not_depend_on_batch_mates_or_order(cross_encoder: CrossEncoder) -> None:
    alone = [float(cross_encoder.score("who keeps bees", [passage])[0]) for passage in PASSAGES]
    assert cross_encoder.score("who keeps bees", PASSAGES).tolist() == alone
    assert cross_encoder.score("who keeps bees", PASSAGES[::-1]).tolist() == alone[::-1]
    assert alone[1] == alone[3]


def test_what_was_cut_is_said(cross_encoder: CrossEncoder) -> None:
    tokens = cross_encoder.tokenizer.encode_batch(PASSAGES)
    inputs = cross_encoder.inputs("bees " * 30, [text.ids for text in tokens])
    assert inputs[0].query_cut == 6
    assert [item.passage_cut > 0 for item in inputs] == [False, False, True, False, False]
    assert all(item.ids.size <= 64 for item in inputs)


def test_vectors_are_unit_and_equal_for_equal_texts(dual_encoder: DualEncoder) -> None:
    embeddings = dual_encoder.encode_passages(PASSAGES)
    assert embeddings.vectors.shape == (5, dual_encoder.dimension)
    np.testing.assert_allclose(np.linalg.norm(embeddings.vectors, axis=1), 1.0, atol=1e-6)
    np.testing.assert_array_equal(embeddings.vectors[1], embeddings.vectors[3])
    np.testing.assert_array_equal(embeddings.vectors[0], dual_encoder.encode_queries(PASSAGES[:1]).vectors[0])
    assert (embeddings.cut_tokens > 0).tolist() == [False, False, True, False, False]


def test_no_texts_give_an_empty_matrix(dual_encoder: DualEncoder, cross_encoder: CrossEncoder) -> None:
    assert dual_encoder.encode_passages([]).vectors.shape == (0, dual_encoder.dimension)
    assert cross_encoder.score("bees", []).shape == (0,)


def test_a_device_that_is_not_there_is_refused_at_start(tiny_models: TinyModels) -> None:
    with pytest.raises(DeviceError, match="'tpu' is unknown"):
        OnnxSession(tiny_models.reader / "model.onnx", n_threads=1, device="tpu")
    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        return
    with pytest.raises(DeviceError, match="'cuda' was asked for"):
        OnnxSession(tiny_models.reader / "model.onnx", n_threads=1, device="cuda")


def test_an_engine_that_is_not_there_is_refused_at_start(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = open_model_folder(str(tiny_models.reader), "reader")
    with pytest.raises(DeviceError, match="engine 'openvino' runs on the CPU only, not on device 'cuda'"):
        Reader(folder, Runtime(device="cuda", engine="openvino"))
    monkeypatch.setattr("models.engines._has_openvino", lambda: False)
    with pytest.raises(DeviceError, match="engine 'openvino' was asked for, but OpenVINO is not installed"):
        Reader(folder, Runtime(engine="openvino"))
    assert Reader(folder, Runtime()).engine == "onnxruntime on cpu"


@needs_openvino
def test_the_engine_goes_by_what_the_cpu_multiplies(tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = open_model_folder(str(tiny_models.reader), "reader")
    for has_bfloat16, engine in ((True, "openvino"), (False, "onnxruntime")):
        monkeypatch.setattr("models.openvino_session.has_bfloat16", lambda answer=has_bfloat16: answer)
        assert Reader(folder, Runtime()).engine.startswith(engine)
    assert Reader(folder, Runtime(engine="openvino")).engine == "openvino in f32"


@needs_openvino
def test_openvino_multiplies_floats_where_the_graph_multiplies_int8() -> None:
    folder = open_model_folder(BUNDLED_CROSS_ENCODER, "cross-encoder")
    floats, int8 = (CrossEncoder(folder, Runtime(engine=each)) for each in ("openvino", "onnxruntime"))
    query = "who keeps bees"
    np.testing.assert_allclose(floats.score(query, PASSAGES), int8.score(query, PASSAGES), atol=0.25)
    assert int8_layers(folder) == 36
    assert int8_layers(folder, in_floats=True) == 0


@needs_openvino
def test_weights_in_bfloat16_are_kept_as_such_and_give_the_bits_that_floats_give(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from openvino import opset13

    from models.openvino_session import has_bfloat16

    if not has_bfloat16():
        pytest.skip("this CPU does not multiply bfloat16")
    folder = open_model_folder(BUNDLED_CROSS_ENCODER, "cross-encoder")
    kept = CrossEncoder(folder, Runtime(engine="openvino"))
    monkeypatch.setattr("models.openvino_session._in_bfloat16", opset13.constant)
    floats = CrossEncoder(folder, Runtime(engine="openvino"))
    np.testing.assert_array_equal(kept.score("who keeps bees", PASSAGES), floats.score("who keeps bees", PASSAGES))
    assert float_matrices(kept) == 0
    assert float_matrices(floats) == 36


def float_matrices(model: CrossEncoder) -> int:
    """Return how many large constants of a compiled model OpenVINO keeps in fp32, but for the pooler's."""
    constants = [
        node.output(0)
        for node in model._session._model.get_runtime_model().get_ordered_ops()  # type: ignore[attr-defined]  # OpenVINO's
        if node.get_rt_info()["layerType"].astype(str) == "Const"
    ]
    large = [each for each in constants if each.partial_shape.is_static and np.prod(list(each.shape)) >= 384 * 384]
    return len([each for each in large if each.element_type.to_string() == "f32"]) - 1


def int8_layers(folder: ModelFolder, *, in_floats: bool = False) -> int:
    import openvino

    from models.openvino_session import _multiply_floats

    model = openvino.Core().read_model(folder.path / "model.onnx")
    if in_floats:
        _multiply_floats(model, "bf16")
    return sum(
        node.get_type_name() == "MatMul" and node.get_friendly_name().endswith("_unscaled_node")
        for node in model.get_ordered_ops()
    )


def test_a_file_that_is_no_model_is_refused(tmp_path: Path, runtime: Runtime, tiny_models: TinyModels) -> None:
    target = Path(shutil.copytree(tiny_models.reader, tmp_path / "reader"))
    settings = open_model_folder(str(target), "reader").settings
    (target / "model.onnx").write_bytes(b"not a graph")
    with pytest.raises(ModelFolderError, match="cannot be loaded"):
        Reader(write_settings(target, settings), runtime)


def altered(folder: Path, target: Path, **fields: object) -> ModelFolder:
    """Return a copy of a model folder with other settings, whose hashes are right."""
    if not target.exists():
        shutil.copytree(folder, target)
    settings = open_model_folder(str(folder), None).settings
    return write_settings(target, settings.model_copy(update=fields))


def test_a_graph_of_another_kind_is_refused(tiny_models: TinyModels, tmp_path: Path) -> None:
    opened: dict[Path, Callable[..., object]] = {
        tiny_models.reader: Reader,
        tiny_models.cross_encoder: CrossEncoder,
        tiny_models.dual_encoder: DualEncoder,
    }
    for mine, open_model in opened.items():
        for other in opened:
            target = tmp_path / f"{mine.name}-{other.name}"
            shutil.copytree(mine, target)
            shutil.copy(other / "model.onnx", target)
            folder = altered(mine, target)
            if mine == other:
                assert open_model(folder, Runtime(1))
                continue
            with pytest.raises(ModelFolderError, match=rf"model\.onnx is no {folder.settings.kind}: it gives "):
                open_model(folder, Runtime(1))


@pytest.mark.parametrize(
    ("mask", "shape", "reason"),
    [
        ("attention_mask", (1, 3), "its outputs have the shapes"),
        ("attention_mask", (1,), "its outputs have the shapes"),
        ("mask", (1, 1), "it takes input_ids, mask"),
    ],
)
def test_a_graph_with_other_inputs_or_shapes_is_refused(
    tiny_models: TinyModels, tmp_path: Path, mask: str, shape: tuple[int, ...], reason: str
) -> None:
    target = Path(shutil.copytree(tiny_models.cross_encoder, tmp_path / "other"))
    helper, int64 = onnx.helper, onnx.TensorProto.INT64
    value = onnx.numpy_helper.from_array(np.zeros(shape, np.float32))
    graph = helper.make_graph(
        [helper.make_node("Constant", [], ["logits"], value=value)],
        "graph",
        [helper.make_tensor_value_info(name, int64, ["n", "m"]) for name in ("input_ids", mask)],
        [helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, shape)],
    )
    onnx.save(
        helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 18)]), target / "model.onnx"
    )
    with pytest.raises(ModelFolderError, match=f"no cross-encoder: {reason}"):
        CrossEncoder(altered(tiny_models.cross_encoder, target), Runtime(1))


@pytest.mark.parametrize("axis", [0, 1])
def test_a_graph_of_fixed_shape_runs_where_it_can_and_is_refused_where_not(
    tiny_models: TinyModels, tmp_path: Path, axis: int
) -> None:
    target = Path(shutil.copytree(tiny_models.cross_encoder, tmp_path / "fixed"))
    model = onnx.load(str(target / "model.onnx"))
    for value in model.graph.input:
        value.type.tensor_type.shape.dim[axis].dim_value = (1, 64)[axis]
    onnx.save(model, str(target / "model.onnx"))
    folder = write_settings(target, open_model_folder(str(tiny_models.cross_encoder), None).settings)
    if axis == 1:
        with pytest.raises(ModelFolderError, match=r"no cross-encoder: it takes inputs of 64 tokens only"):
            CrossEncoder(folder, Runtime())
        return
    fixed, free = CrossEncoder(folder, Runtime()), open_model_folder(str(tiny_models.cross_encoder), None)
    assert fixed.engine == "onnxruntime on cpu"
    expected = CrossEncoder(free, Runtime(engine="onnxruntime")).score("who keeps bees", PASSAGES)
    np.testing.assert_allclose(fixed.score("who keeps bees", PASSAGES), expected, atol=1e-6)


def test_a_graph_that_nobody_tried_is_tried_with_its_longest_input(tiny_models: TinyModels, tmp_path: Path) -> None:
    untried = altered(tiny_models.reader, tmp_path / "reader", parity=None, max_tokens=128)
    assert Reader(untried, Runtime(1)).read("bees", ["the lighthouse " * 99]).answers
    longer = altered(tiny_models.reader, tmp_path / "reader", parity=None, max_tokens=129)
    with pytest.raises(ModelFolderError, match=r"model\.onnx does not take 129 tokens, the max_tokens of its settings"):
        Reader(longer, Runtime(1))


def test_a_tokenizer_that_is_none_is_refused(tiny_models: TinyModels, tmp_path: Path) -> None:
    target = Path(shutil.copytree(tiny_models.reader, tmp_path / "reader"))
    content = (target / "tokenizer.json").read_text()
    for text, reason in (("{}", "Model missing"), ("", "EOF"), (content.replace("[SEP]", "[NIL]"), r"\[SEP\], </s>")):
        (target / "tokenizer.json").write_text(text)
        with pytest.raises(ModelFolderError, match=rf"tokenizer\.json is no tokenizer that can be used: .*{reason}"):
            Reader(altered(tiny_models.reader, target), Runtime(1))


def test_at_least_one_cpu_is_available() -> None:
    assert available_cpus() >= 1
