"""Encoders and reader through real ONNX sessions: parity with torch, order, independence of batch mates."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from models.cross_encoder import CrossEncoder
from models.dual_encoder import DualEncoder
from models.errors import DeviceError, ModelFolderError
from models.folder import Kind, ModelFolder, open_model_folder, write_settings
from models.reader import Reader
from models.session import OnnxSession, available_cpus
from models.tokenization import ModelInput
from tests.conftest import TinyModels

PASSAGES = ["lima is the capital of peru", "bees", "the keeper of the lighthouse was ingrid " * 30, "bees", ""]


@pytest.fixture(scope="module")
def dual_encoder(tiny_models: TinyModels) -> DualEncoder:
    return DualEncoder(open_model_folder(str(tiny_models.dual_encoder), "dual-encoder"), n_threads=2)


@pytest.fixture(scope="module")
def cross_encoder(tiny_models: TinyModels) -> CrossEncoder:
    return CrossEncoder(open_model_folder(str(tiny_models.cross_encoder), "cross-encoder"), n_threads=2)


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
    np.testing.assert_allclose(cross_encoder.logits(inputs), expected, atol=1e-4)


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


def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"not a graph")
    with pytest.raises(ModelFolderError, match="cannot be loaded"):
        OnnxSession(tmp_path / "model.onnx", n_threads=1)


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
                assert open_model(folder, n_threads=1)
                continue
            with pytest.raises(ModelFolderError, match=rf"model\.onnx is no {folder.settings.kind}: it gives "):
                open_model(folder, n_threads=1)


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
        CrossEncoder(altered(tiny_models.cross_encoder, target), n_threads=1)


def test_a_graph_that_nobody_tried_is_tried_with_its_longest_input(tiny_models: TinyModels, tmp_path: Path) -> None:
    untried = altered(tiny_models.reader, tmp_path / "reader", parity=None, max_tokens=128)
    assert Reader(untried, n_threads=1).read("bees", ["the lighthouse " * 99]).answers
    longer = altered(tiny_models.reader, tmp_path / "reader", parity=None, max_tokens=129)
    with pytest.raises(ModelFolderError, match=r"model\.onnx does not take 129 tokens, the max_tokens of its settings"):
        Reader(longer, n_threads=1)


def test_a_tokenizer_that_is_none_is_refused(tiny_models: TinyModels, tmp_path: Path) -> None:
    target = Path(shutil.copytree(tiny_models.reader, tmp_path / "reader"))
    content = (target / "tokenizer.json").read_text()
    for text, reason in (("{}", "Model missing"), ("", "EOF"), (content.replace("[SEP]", "[NIL]"), r"\[SEP\], </s>")):
        (target / "tokenizer.json").write_text(text)
        with pytest.raises(ModelFolderError, match=rf"tokenizer\.json is no tokenizer that can be used: .*{reason}"):
            Reader(altered(tiny_models.reader, target), n_threads=1)


def test_at_least_one_cpu_is_available() -> None:
    assert available_cpus() >= 1
