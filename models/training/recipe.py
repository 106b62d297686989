"""What a training run is told besides its data; without torch, so that bad data are refused before it is loaded."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Recipe:
    """What decides a training run besides its data; written next to the checkpoint."""

    seed: int
    epochs: float
    batch_tokens: int
    learning_rate: float
    head_learning_rate: float
    warmup_share: float = 0.06
    weight_decay: float = 0.01
    dropout: float = 0.1
    freeze_embeddings: bool = False


@dataclass(frozen=True, slots=True)
class NullSide:
    """How much is learned of questions without an answer: n moved, n edited, and how often a real one is shown."""

    n_moved: int
    n_edited: int
    real_repeats: int = 1


@dataclass(frozen=True, slots=True)
class Lesson:
    """What is learned beside the labels: questions without an answer, and to do as the named readers do."""

    null_side: NullSide
    teachers: tuple[str, ...] = ()
