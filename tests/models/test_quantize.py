"""int8 rows, the rewritten graph, and that a score depends on its own input alone."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.checkpoint import open_checkpoint
from models.cross_encoder import CrossEncoder
from models.export import export
from models.folder import Kind, open_model_folder
from models.quantize import rows_to_int8
from models.session import Runtime
from models.tokenization import ModelInput
from tests.conftest import TinyModels

MATES = ["the keeper of the lighthouse was ingrid " * 30, "fog over the harbour", "which river is on the map " * 9]


@pytest.fixture(scope="module")
def int8(
    tiny_models: TinyModels,
    tiny_checkpoint: Callable[[Kind], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> CrossEncoder:
    settings = open_model_folder(str(tiny_models.cross_encoder), "cross-encoder").settings
    checkpoint = open_checkpoint(tiny_checkpoint("cross-encoder"), "cross-encoder")
    return CrossEncoder(export(checkpoint, tmp_path_factory.mktemp("int8") / "model", settings), Runtime(2))


def inputs(model: CrossEncoder, *passages: str) -> list[ModelInput]:
    return model.inputs("who keeps bees", [text.ids for text in model.tokenizer.encode_batch(passages)])


def padded_logits(path: Path, items: list[ModelInput]) -> list[float]:
    width = max(item.ids.size for item in items)
    rows = [[np.pad(row, (0, width - row.size)) for row in (i.ids, np.ones_like(i.ids), i.token_types)] for i in items]
    names = ("input_ids", "attention_mask", "token_type_ids")
    feeds = {name: np.stack([row[n] for row in rows]) for n, name in enumerate(names)}
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return [float(logit) for logit in session.run(None, feeds)[0][:, 0]]


def test_int8_rows_worked_example() -> None:
    """The largest of [1.27, -.5] sets the scale .01; a row of zeros stays zero."""
    values, scales = rows_to_int8(np.array([[1.27, -0.5], [0, 0], [-12.7, 0.05]], np.float32))
    assert values.tolist() == [[127, -50], [0, 0], [-127, 0]]
    assert scales[:, 0].tolist() == pytest.approx([0.01, 0, 0.1], abs=1e-6)
    assert (scales > 0).all()


@given(st.lists(st.lists(st.floats(-1e4, 1e4, width=32), min_size=3, max_size=3), min_size=1, max_size=5))
def test_int8_rows_are_within_half_a_scale(table: list[list[float]]) -> None:
    exact = np.array(table, np.float32)
    values, scales = rows_to_int8(exact)
    assert np.abs(values.astype(np.int32)).max() <= 127
    assert (np.abs(values * scales - exact) <= 0.501 * scales + 1e-6 * np.abs(exact)).all()


def test_every_large_weight_is_int8_and_nothing_unused_is_left(int8: CrossEncoder) -> None:
    graph = onnx.load(str(int8.folder.path / "model.onnx")).graph
    read = {name for node in graph.node for name in node.input}
    assert [each.name for each in graph.initializer if each.name not in read] == []
    large = [each for each in graph.initializer if len(each.dims) == 2 and min(each.dims) >= 32]
    kinds = {each.data_type for each in large if "pooler" not in each.name and "classifier" not in each.name}
    assert kinds == {onnx.TensorProto.INT8}
    assert not [node for node in graph.node if node.op_type == "DynamicQuantizeLinear"]


def test_a_logit_is_equal_alone_and_among_32_mates(int8: CrossEncoder) -> None:
    alone = int8.logits(inputs(int8, "ana keeps bees in porto"))[0]
    among = int8.logits(inputs(int8, *MATES * 11, "ana keeps bees in porto"))[-1]
    assert alone == among


def test_a_logit_hardly_moves_in_a_padded_batch_of_long_mates(int8: CrossEncoder) -> None:
    path = int8.folder.path / "model.onnx"
    items = inputs(int8, "ana keeps bees in porto", *MATES * 11)
    alone = padded_logits(path, items[:1])[0]
    for n_mates in (2, 7, 31):
        assert padded_logits(path, items[: n_mates + 1])[0] == pytest.approx(alone, abs=1e-5)


def test_an_input_of_zeros_gives_numbers(int8: CrossEncoder) -> None:
    empty = int8.logits(inputs(int8, ""))
    assert np.isfinite(empty).all()
