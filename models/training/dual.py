"""Train the dual encoder: each query's passage against all others of its batch and mined hard negatives (DPR).

Karpukhin et al. 2020, with mean pooling and a scaled cosine (Reimers and Gurevych 2019).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from models.dual_encoder import DualEncoder
from models.errors import DataError
from models.tokenization import Lengths, ModelInput, Tokenizer
from models.training.batches import outputs_of
from models.training.checkpoints import load_start
from models.training.digests import digest
from models.training.groups import Group
from models.training.loop import Task
from models.training.losses import contrastive_loss
from models.training.recipe import Recipe
from models.training.torch_session import TorchSession

LENGTHS = Lengths(max_tokens=256, max_query_tokens=256)
SCALE = 20.0  # sentence-transformers' default, with which the bundled encoder was made


def embed(model: torch.nn.Module, inputs: Sequence[ModelInput]) -> Tensor:
    """Return the (n, dimension) unit vectors of inputs: the mean of their tokens' vectors."""
    vectors = outputs_of(model, inputs).last_hidden_state.float()
    lengths = torch.tensor([item.ids.size for item in inputs])
    mask = (torch.arange(vectors.shape[1])[None, :] < lengths[:, None]).float()
    pooled = (vectors * mask[:, :, None]).sum(dim=1) / mask.sum(dim=1, keepdim=True)
    return functional.normalize(pooled, dim=-1)


def encode_texts(groups: Sequence[Group], tokenizer: Tokenizer, lengths: Lengths = LENGTHS) -> list[list[ModelInput]]:
    """Return one list of inputs per group: the query, the relevant passage, its negatives."""
    texts = list({text: None for group in groups for text in (group.query, group.positive, *group.negatives)})
    ids = dict(zip(texts, tokenizer.encode_batch(texts), strict=True))
    return [
        [
            tokenizer.single(ids[text].ids, max_tokens=lengths.max_tokens)
            for text in (group.query, group.positive, *group.negatives)
        ]
        for group in groups
    ]


def batch_contrastive_loss(model: torch.nn.Module, batch: Sequence[Sequence[ModelInput]]) -> Tensor:
    """Return the contrastive loss of encoded groups of equal size; queries and passages run apart, each padded."""
    queries = embed(model, [group[0] for group in batch])
    passages = embed(model, [item for group in batch for item in group[1:]])
    return contrastive_loss(queries, passages, scale=SCALE)


def dual_measures(encoder: DualEncoder, groups: Sequence[Group]) -> dict[str, float]:
    """Return the mean reciprocal rank of each query's passage among all passages of the groups; ties count against."""
    passages = list(dict.fromkeys(text for group in groups for text in (group.positive, *group.negatives)))
    rows = {text: row for row, text in enumerate(passages)}
    queries = encoder.encode_queries([group.query for group in groups]).vectors
    cosines = queries @ encoder.encode_passages(passages).vectors.T
    own = cosines[np.arange(len(groups)), [rows[group.positive] for group in groups]]
    return {"mrr": float(np.mean(1 / (cosines >= own[:, None]).sum(axis=1)))}


def dual_task(groups: Sequence[Group], dev: Sequence[Group], init: str, recipe: Recipe) -> Task:
    """Return what a dual encoder learns from the groups, starting from the encoder that init names.

    Raises:
        DataError: there is no group to learn from.
    """
    if not groups:
        raise DataError("the data gives no query with a relevant passage")
    start = load_start("dual-encoder", init, recipe, LENGTHS)
    model, tokenizer = start.model, Tokenizer(start.tokenizer)
    encoded = encode_texts(groups, tokenizer, start.lengths)
    folder = start.folder("dual-encoder")

    def batch_loss(indices: NDArray[np.int64]) -> Tensor:
        return batch_contrastive_loss(model, [encoded[i] for i in indices])

    def dev_measures() -> Mapping[str, float]:
        session = TorchSession(model, folder.settings.outputs)
        return dual_measures(DualEncoder(folder, session), dev)

    return Task(
        model=model,
        summary=f"{len(groups):,} groups of {len(encoded[0]) - 1} passages{start.note}",
        batch_loss=batch_loss,
        lengths=np.array([max(item.ids.size for item in group[1:]) * (len(group) - 1) for group in encoded], np.int64),
        dev_measures=dev_measures if dev else None,
        save=start.save,
        data={
            "training data": digest(*(item.ids for group in encoded for item in group)),
            "dev data": digest(json.dumps([astuple(group) for group in dev])),
        },
        decoded=[tokenizer.decode(item.ids.tolist()) for item in encoded[0][:3]],
    )
