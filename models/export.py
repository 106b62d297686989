"""Export a transformers checkpoint to a model folder: ONNX, int8 weights, and a proof of parity.

Needs the `train` extra. int8 is ONNX Runtime's dynamic quantisation: weights per output channel, activations per run,
so that a score depends on its own input alone (each input runs alone, see `models.session`). Word embeddings are
quantised too; they are half of the file.
"""

import contextlib
import io
import logging
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnxruntime.quantization import QuantType, quantize_dynamic
from torch import Tensor, nn
from transformers import AutoModel, AutoModelForQuestionAnswering, AutoModelForSequenceClassification

from models.errors import ExportError
from models.folder import TOKENIZER_FILE, WEIGHTS_FILE, Kind, ModelFolder, ModelSettings, write_settings
from models.session import OnnxSession
from models.tokenization import ModelInput

OUTPUTS: Mapping[Kind, tuple[str, ...]] = {
    "dual-encoder": ("last_hidden_state",),
    "cross-encoder": ("logits",),
    "reader": ("start_logits", "end_logits"),
}
_ARCHITECTURES: Mapping[Kind, type] = {
    "dual-encoder": AutoModel,
    "cross-encoder": AutoModelForSequenceClassification,
    "reader": AutoModelForQuestionAnswering,
}
_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
FP32_TOLERANCE = 1e-4


@dataclass(frozen=True, slots=True)
class Parity:
    """The greatest difference of any output from the torch checkpoint's, in fp32 and as exported."""

    fp32: float
    exported: float


class _Exportable(nn.Module):
    """A checkpoint whose forward takes the three input tensors and gives the outputs as a tuple."""

    def __init__(self, model: nn.Module, outputs: Sequence[str]) -> None:
        super().__init__()
        self.model = model
        self.outputs = tuple(outputs)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> tuple[Tensor, ...]:
        result = self.model(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids)
        return tuple(getattr(result, name) for name in self.outputs)


def export(
    checkpoint: Path, out: Path, settings: ModelSettings, *, samples: Sequence[ModelInput], quantize: bool = True
) -> tuple[ModelFolder, Parity]:
    """Write a model folder to out and return it with its parity on the samples.

    Args:
        checkpoint: a transformers folder with a `tokenizer.json`.
        settings: what model.json will say; its hashes are filled in here.
        samples: inputs of several lengths to compare on; at least one.

    Raises:
        ExportError: the fp32 graph differs from the checkpoint by more than FP32_TOLERANCE.
    """
    module = _load(checkpoint, settings)
    out.mkdir(parents=True, exist_ok=True)
    (out / TOKENIZER_FILE).write_bytes((checkpoint / TOKENIZER_FILE).read_bytes())
    with tempfile.TemporaryDirectory() as scratch:
        fp32 = Path(scratch) / WEIGHTS_FILE
        _to_onnx(module, fp32, settings.outputs)
        difference = _difference(module, fp32, samples)
        if not difference <= FP32_TOLERANCE:
            raise ExportError(f"{checkpoint}: ONNX differs from torch by {difference:.2e}, over {FP32_TOLERANCE:.0e}")
        if quantize:
            _quantize(fp32, out / WEIGHTS_FILE)
        else:
            (out / WEIGHTS_FILE).write_bytes(fp32.read_bytes())
    parity = Parity(difference, _difference(module, out / WEIGHTS_FILE, samples))
    return write_settings(out, settings), parity


def _load(checkpoint: Path, settings: ModelSettings) -> _Exportable:
    loader: Callable[..., nn.Module] = _ARCHITECTURES[settings.kind].from_pretrained  # type: ignore[attr-defined]  # transformers' Auto classes share no typed base
    options = {"add_pooling_layer": False} if settings.kind == "dual-encoder" else {}
    return _Exportable(loader(checkpoint, attn_implementation="eager", **options).eval(), settings.outputs).eval()


def _to_onnx(module: nn.Module, path: Path, outputs: Sequence[str]) -> None:
    ids = torch.arange(1, 25).reshape(2, 12)
    examples = (ids, torch.ones_like(ids), torch.zeros_like(ids))
    dynamic = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    for name in ("torch.onnx", "onnxscript", "root"):
        logging.getLogger(name).setLevel(logging.ERROR)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")  # the exporter warns of its own deprecations
        torch.onnx.export(
            module,
            examples,
            path,
            input_names=list(_INPUTS),
            output_names=list(outputs),
            dynamic_shapes={"input_ids": dynamic, "attention_mask": dynamic, "token_type_ids": dynamic},
            external_data=False,
            dynamo=True,
            verbose=False,
        )


def _quantize(source: Path, target: Path) -> None:
    model = onnx.load(str(source))
    del model.graph.value_info[:]  # the exporter's shapes hold symbols that the quantiser's inference rejects
    quantize_dynamic(
        model, str(target), weight_type=QuantType.QInt8, per_channel=True, op_types_to_quantize=["MatMul", "Gather"]
    )


def _difference(module: nn.Module, path: Path, samples: Sequence[ModelInput]) -> float:
    outputs = OnnxSession(path, n_threads=1).run(samples)
    return max(
        float(np.abs(mine - theirs).max())
        for item, exported in zip(samples, outputs, strict=True)
        for mine, theirs in zip(exported, _torch_outputs(module, item), strict=True)
    )


def _torch_outputs(module: nn.Module, item: ModelInput) -> list[NDArray[np.float32]]:
    with torch.inference_mode():
        ids, token_types = torch.from_numpy(item.ids[None]), torch.from_numpy(item.token_types[None])
        return [output[0].numpy() for output in module(ids, torch.ones_like(ids), token_types)]
