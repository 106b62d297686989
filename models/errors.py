"""What can go wrong with models.

ModelError
├── ModelFolderError   a model folder is missing, incomplete, altered, or of another kind or format
├── DeviceError        the device that was asked for is not there
├── TrainingError      a training run cannot start, go on or converge
├── DataError          a training or evaluation file is malformed; says file, line and reason
└── ExportError        a checkpoint cannot be used, or the model exported from it does not give what it gives
"""

_MOST_SHOWN = 100


def shown(text: str) -> str:
    """Return a text from outside as an error may hold it: if it is long or would steer a terminal, cut and escaped."""
    return text if text.isprintable() and len(text) <= _MOST_SHOWN else repr(text[:_MOST_SHOWN])


class ModelError(Exception):
    """Any failure of this layer that is the caller's or the world's fault."""


class ModelFolderError(ModelError):
    """A model folder cannot be used."""


class DeviceError(ModelError):
    """The wanted device or execution provider is not there."""


class DataError(ModelError):
    """A data file is malformed."""


class ExportError(ModelError):
    """A checkpoint cannot be used, or an export failed its parity check."""


class TrainingError(ModelError):
    """A training run cannot go on."""
