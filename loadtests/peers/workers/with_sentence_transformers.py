"""sentence-transformers: a CrossEncoder or a SentenceTransformer as its documentation has them, 32 texts a batch."""

from collections.abc import Mapping
from typing import Any

import sentence_transformers
import torch

from peers.workers.protocol import Score, Task, run

MAX_PAIR_TOKENS = 512
VARIANTS: Mapping[str, dict[str, Any]] = {
    "torch": {},
    "torch bf16": {"model_kwargs": {"dtype": torch.bfloat16}},
    "onnx": {"backend": "onnx", "model_kwargs": {"file_name": "onnx/model.onnx"}},
    "onnx qint8": {"backend": "onnx", "model_kwargs": {"file_name": "onnx/model_qint8_avx512_vnni.onnx"}},
    "openvino": {"backend": "openvino"},
    "openvino f32": {"backend": "openvino", "model_kwargs": {"ov_config": {"INFERENCE_PRECISION_HINT": "f32"}}},
    "openvino qint8": {
        "backend": "openvino",
        "model_kwargs": {"file_name": "openvino/openvino_model_qint8_quantized.xml"},
    },
}


def load(task: Task) -> Score:
    """Return logits, without the sigmoid that it applies by default, or vectors."""
    options = {"device": "cpu", "local_files_only": True, **VARIANTS[task.variant]}
    if task.kind == "embed":
        encoder = sentence_transformers.SentenceTransformer(str(task.model), **options)
        return lambda query, passages: encoder.encode(passages, show_progress_bar=False).tolist()
    model = sentence_transformers.CrossEncoder(str(task.model), max_length=MAX_PAIR_TOKENS, **options)

    def logits(query: str, passages: list[str]) -> list[Any]:
        found: torch.Tensor = model.predict(
            [(query, passage) for passage in passages],
            activation_fn=torch.nn.Identity(),
            show_progress_bar=False,
            convert_to_tensor=True,
        )
        return found.float().tolist()

    return logits


if __name__ == "__main__":
    run(load)
