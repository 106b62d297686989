"""Tercet itself with its bundled models.

The variant is an engine, "auto" for the one that it chooses; and behind a colon, how many tokens of a passage it reads.
"""

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from models.cross_encoder import CrossEncoder
from models.dual_encoder import DualEncoder
from models.excerpts import TokenRarity
from models.folder import BUNDLED_CROSS_ENCODER, BUNDLED_DUAL_ENCODER, open_model_folder
from models.session import EngineName, Runtime, available_cpus
from peers.workers.protocol import Score, Task, run


def load(task: Task) -> Score:
    """Return the scores of a cross-encoder, or the vectors of a dual encoder."""
    engine, _, n_tokens = task.variant.partition(":")
    runtime = Runtime(available_cpus(), engine=cast(EngineName, engine))
    if task.kind == "embed":
        encoder = DualEncoder(open_model_folder(BUNDLED_DUAL_ENCODER, "dual-encoder"), runtime)
        return lambda query, passages: _listed(encoder.encode_passages(passages).vectors)
    model = CrossEncoder(open_model_folder(BUNDLED_CROSS_ENCODER, "cross-encoder"), runtime)
    if n_tokens:
        return lambda query, passages: _listed(_score_excerpts(model, query, passages, int(n_tokens)))
    return lambda query, passages: _listed(model.score(query, passages))


def _score_excerpts(model: CrossEncoder, query: str, passages: list[str], n_tokens: int) -> NDArray[np.float32]:
    """Return the logits (n,) of an excerpt of each passage; a service has the rarity of tokens from its index."""
    tokens = [text.ids for text in model.tokenizer.encode_batch(passages)]
    excerpts = model.excerpts(query, tokens, TokenRarity(tokens), n_tokens=n_tokens)
    return model.logits(model.inputs(query, excerpts))


def _listed(values: Any) -> list[Any]:
    return cast(list[Any], values.tolist())


if __name__ == "__main__":
    run(load)
