"""Tercet itself with its bundled models; the variant is an engine, "auto" for the one that it chooses."""

from typing import Any, cast

from models.cross_encoder import CrossEncoder
from models.dual_encoder import DualEncoder
from models.folder import BUNDLED_CROSS_ENCODER, BUNDLED_DUAL_ENCODER, open_model_folder
from models.session import EngineName, Runtime, available_cpus
from peers.workers.protocol import Score, Task, run


def load(task: Task) -> Score:
    """Return the scores of a cross-encoder, or the vectors of a dual encoder."""
    runtime = Runtime(available_cpus(), engine=cast(EngineName, task.variant))
    if task.kind == "embed":
        encoder = DualEncoder(open_model_folder(BUNDLED_DUAL_ENCODER, "dual-encoder"), runtime)
        return lambda query, passages: _listed(encoder.encode_passages(passages).vectors)
    model = CrossEncoder(open_model_folder(BUNDLED_CROSS_ENCODER, "cross-encoder"), runtime)
    return lambda query, passages: _listed(model.score(query, passages))


def _listed(values: Any) -> list[Any]:
    return cast(list[Any], values.tolist())


if __name__ == "__main__":
    run(load)
