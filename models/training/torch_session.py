"""The torch implementation of `Session`: what runs a model that is still being trained."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from models.session import Outputs
from models.tokenization import ModelInput
from models.training.batches import outputs_of, token_budget_batches

_BATCH_TOKENS = 8192


class TorchSession:
    """A torch model in bfloat16, in padded batches of like length; outputs are cut back to each input's length."""

    engine = "torch in bf16"

    def __init__(self, model: nn.Module, outputs: Sequence[str]) -> None:
        self._model = model
        self._outputs = tuple(outputs)

    def run(self, inputs: Sequence[ModelInput]) -> list[Outputs]:
        """Return the outputs of each input, in order."""
        self._model.eval()
        lengths = np.array([item.ids.size for item in inputs], np.int64)
        found: dict[int, Outputs] = {}
        for batch in token_budget_batches(lengths, batch_tokens=_BATCH_TOKENS, seed=0):
            with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
                result = outputs_of(self._model, [inputs[i] for i in batch])
            rows = [getattr(result, name).float().numpy() for name in self._outputs]
            for row, i in enumerate(batch):
                found[int(i)] = tuple(
                    values[row, : lengths[i]] if values.shape[1] > 1 else values[row] for values in rows
                )
        return [found[i] for i in range(len(inputs))]
