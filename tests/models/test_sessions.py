"""Encoders and reader through real ONNX sessions: parity with torch, order, independence of batch mates."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from models.cross_encoder import CrossEncoder
from models.dual_encoder import DualEncoder
from models.errors import DeviceError, ModelFolderError
from models.folder import Kind, open_model_folder
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


def test_at_least_one_cpu_is_available() -> None:
    assert available_cpus() >= 1
