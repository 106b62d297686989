"""Models that a student imitates: what they make of its examples, computed once."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.errors import TrainingError
from models.folder import TOKENIZER_FILE, open_model_folder
from models.reader import Reader
from models.session import Runtime, available_cpus
from models.tokenization import ModelInput
from models.training.batches import padded_width


class Teachers:
    """Readers that see the inputs of a student. What they make of an input is kept, so that later epochs cost nothing.

    An input's logits take 4 bytes a token and teacher.
    """

    def __init__(self, readers: Sequence[Reader], inputs: Sequence[ModelInput]) -> None:
        self._readers = tuple(readers)
        self._inputs = inputs
        self._logits: dict[int, NDArray[np.float16]] = {}

    @property
    def fingerprints(self) -> list[str]:
        """What the teachers are, for a run that goes on."""
        return [reader.fingerprint for reader in self._readers]

    def logits(self, indices: Sequence[int]) -> Tensor:
        """Return (2, teachers, batch, width) float32: start and end logits of inputs, padded with 0 as a batch is."""
        new = [i for i in indices if i not in self._logits]
        inputs = [self._inputs[i] for i in new]
        for i, *found in zip(new, *(reader.run(inputs) for reader in self._readers), strict=True):
            self._logits[i] = np.array([[each.start for each in found], [each.end for each in found]], np.float16)
        rows = [self._logits[i] for i in indices]
        out = np.zeros((2, len(self._readers), len(rows), padded_width(self._inputs[i] for i in indices)), np.float32)
        for at, row in enumerate(rows):
            out[:, :, at, : row.shape[2]] = row
        return torch.from_numpy(out)


def open_teachers(names: Sequence[str], tokenizer: bytes, inputs: Sequence[ModelInput]) -> Teachers:
    """Return the readers of the named model folders, as teachers of a student with this tokenizer.json.

    Raises:
        TrainingError: one has another tokenizer, or takes no input as long as the longest.
        ModelFolderError: one cannot be opened, or is no reader.
    """
    longest = max(each.ids.size for each in inputs)
    readers = []
    for name in names:
        folder = open_model_folder(name, "reader")
        if (folder.path / TOKENIZER_FILE).read_bytes() != tokenizer:
            raise TrainingError(f"the teacher {name} has another {TOKENIZER_FILE} than the model that it shall teach")
        if folder.settings.max_tokens < longest:
            raise TrainingError(
                f"the teacher {name} takes {folder.settings.max_tokens} tokens; the longest window has {longest}"
            )
        readers.append(Reader(folder, Runtime(available_cpus())))
    return Teachers(readers, inputs)
