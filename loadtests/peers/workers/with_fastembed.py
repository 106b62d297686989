"""fastembed over other weights, which it takes as a custom model from a folder."""

from typing import Any

from fastembed import TextEmbedding
from fastembed.common.model_description import ModelSource, PoolingType
from fastembed.rerank.cross_encoder import TextCrossEncoder

from peers.workers.protocol import Score, Task, run

DIMENSION = 384
NAME = "local/model"
FILE = "onnx/model.onnx"


def load(task: Task) -> Score:
    """Return logits, or vectors."""
    source: dict[str, Any] = {"sources": ModelSource(hf=NAME), "model_file": FILE}
    if task.kind == "embed":
        TextEmbedding.add_custom_model(NAME, pooling=PoolingType.MEAN, normalization=True, dim=DIMENSION, **source)
        encoder = TextEmbedding(NAME, specific_model_path=str(task.model))
        return lambda query, passages: [vector.tolist() for vector in encoder.embed(passages)]
    TextCrossEncoder.add_custom_model(NAME, **source)
    model = TextCrossEncoder(NAME, specific_model_path=str(task.model))
    return lambda query, passages: list(model.rerank(query, passages))


if __name__ == "__main__":
    run(load)
