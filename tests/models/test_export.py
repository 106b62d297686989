"""An export proves its parity or fails."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from models.cross_encoder import CrossEncoder
from models.errors import ExportError
from models.export import export
from models.folder import Kind, open_model_folder
from models.pooling import mean_pool, unit
from models.session import OnnxSession
from models.tokenization import Tokenizer
from tests.conftest import TinyModels


def test_int8_export_opens_and_stays_near_fp32(
    tiny_checkpoint: Callable[[Kind], Path], tiny_models: TinyModels, tmp_path: Path
) -> None:
    fp32 = open_model_folder(str(tiny_models.cross_encoder), "cross-encoder")
    tokenizer = Tokenizer(fp32.path / "tokenizer.json")
    query, passage = tokenizer.encode_batch(["who keeps bees", "ana keeps bees in porto"])
    samples = [tokenizer.pair(query.ids, passage.ids, max_tokens=64, max_query_tokens=24)]
    folder, parity = export(tiny_checkpoint("cross-encoder"), tmp_path / "int8", fp32.settings, samples=samples)
    assert parity.fp32 < 1e-6 < parity.exported < 0.1
    assert (folder.path / "model.onnx").stat().st_size < (fp32.path / "model.onnx").stat().st_size
    logits = CrossEncoder(open_model_folder(str(folder.path), "cross-encoder"), n_threads=1).logits(samples)
    np.testing.assert_allclose(logits, CrossEncoder(fp32, n_threads=1).logits(samples), atol=0.1)


def test_a_graph_that_differs_from_the_checkpoint_is_refused(
    tiny_checkpoint: Callable[[Kind], Path], tiny_models: TinyModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fp32 = open_model_folder(str(tiny_models.cross_encoder), "cross-encoder")
    tokenizer = Tokenizer(fp32.path / "tokenizer.json")
    samples = [tokenizer.single(tokenizer.encode("bees").ids, max_tokens=64)]
    honest = OnnxSession.run
    monkeypatch.setattr(OnnxSession, "run", lambda self, inputs: [(o[0] + 1,) for o in honest(self, inputs)])
    with pytest.raises(ExportError, match="differs from torch by"):
        export(tiny_checkpoint("cross-encoder"), tmp_path / "out", fp32.settings, samples=samples)


def test_a_model_without_token_types_loads_as_well(tiny_models: TinyModels, tmp_path: Path) -> None:
    import onnx

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
