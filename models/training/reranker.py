"""Train the cross-encoder on groups of one relevant passage and several that are not (Gao, Dai and Callan 2021).

The rerank logit is served in a sum with the retrieval scores (ADR 6), so it is trained as a term of such a sum: the
listwise loss is over `logit + retrieval_weight * cosine`. The model learns where the dual encoder errs, instead of
learning again what it knows, and has less to say about text unlike its training data (ADR 10).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.cross_encoder import CrossEncoder
from models.errors import DataError
from models.tokenization import Lengths, ModelInput, Tokenizer
from models.training.batches import outputs_of
from models.training.checkpoints import load_start
from models.training.digests import digest
from models.training.groups import Group
from models.training.loop import Task
from models.training.losses import listwise_loss, pointwise_loss
from models.training.mining import Miner
from models.training.recipe import Recipe
from models.training.torch_session import TorchSession

LENGTHS = Lengths(max_tokens=256, max_query_tokens=96)
_POINTWISE_SHARE = 0.25


def encode_groups(groups: Sequence[Group], tokenizer: Tokenizer, lengths: Lengths = LENGTHS) -> list[list[ModelInput]]:
    """Return one list of pair inputs per group, the relevant passage first."""
    queries = tokenizer.encode_batch([group.query for group in groups])
    texts = list({text: None for group in groups for text in (group.positive, *group.negatives)})
    passages = dict(zip(texts, tokenizer.encode_batch(texts), strict=True))
    return [
        [
            tokenizer.pair(
                query.ids,
                passages[text].ids,
                max_tokens=lengths.max_tokens,
                max_query_tokens=lengths.max_query_tokens,
            )
            for text in (group.positive, *group.negatives)
        ]
        for group, query in zip(groups, queries, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class RetrievalTerm:
    """What retrieval adds to the logit in the listwise loss: weight times the cosine; weight 0 trains without."""

    miner: Miner
    weight: float

    def of(self, groups: Sequence[Group]) -> NDArray[np.float32]:
        """Return the (groups, candidates) terms of each group's query with its passages, the relevant one first."""
        texts = [text for group in groups for text in (group.positive, *group.negatives)]
        n_candidates = len(texts) // max(1, len(groups))
        queries = [group.query for group in groups for _ in range(n_candidates)]
        cosines = self.miner.cosines(queries, texts).reshape(len(groups), n_candidates)
        return np.asarray(self.weight * cosines, np.float32)


def batch_group_loss(model: torch.nn.Module, batch: Sequence[Sequence[ModelInput]], offsets: Tensor) -> Tensor:
    """Return the listwise loss on top of offsets (groups, candidates), plus a share of the pointwise loss without.

    The groups are of equal size and padded into one batch. The pointwise share keeps logits on one scale across
    queries, which a calibrated probability needs.
    """
    flat = [pair for group in batch for pair in group]
    logits = outputs_of(model, flat).logits.float().view(len(batch), -1)
    return listwise_loss(logits + offsets) + _POINTWISE_SHARE * pointwise_loss(logits)


def group_measures(
    encoder: CrossEncoder, encoded: Sequence[Sequence[ModelInput]], offsets: NDArray[np.float32]
) -> dict[str, float]:
    """Return the mean reciprocal rank of the relevant passage in its group, on top of offsets, and of the logit alone.

    Ties count against it.
    """
    logits = encoder.logits([pair for group in encoded for pair in group]).reshape(offsets.shape)
    return {"mrr": _reciprocal_rank(logits + offsets), "mrr_alone": _reciprocal_rank(logits)}


def _reciprocal_rank(scores: NDArray[np.float32]) -> float:
    """Return the mean reciprocal rank of column 0 in its row."""
    return float(np.mean(1 / (1 + (scores[:, 1:] >= scores[:, :1]).sum(axis=1))))


def reranker_task(
    groups: Sequence[Group], dev: Sequence[Group], retrieval: RetrievalTerm, init: str, recipe: Recipe
) -> Task:
    """Return what a cross-encoder learns from the groups, starting from the encoder (or cross-encoder) init names.

    Args:
        dev: groups to measure on, of any one size.

    Raises:
        DataError: there is no group to learn from.
    """
    if not groups:
        raise DataError("the data gives no group of a query, a relevant passage and enough that are not")
    start = load_start("cross-encoder", init, recipe, LENGTHS)
    model, tokenizer = start.model, Tokenizer(start.tokenizer)
    encoded, encoded_dev = (encode_groups(each, tokenizer, start.lengths) for each in (groups, dev))
    offsets = torch.from_numpy(retrieval.of(groups))
    dev_offsets = retrieval.of(dev)
    folder = start.folder("cross-encoder")

    def batch_loss(indices: NDArray[np.int64]) -> Tensor:
        return batch_group_loss(model, [encoded[i] for i in indices], offsets[indices])

    def dev_measures() -> Mapping[str, float]:
        session = TorchSession(model, folder.settings.outputs)
        return group_measures(CrossEncoder(folder, session), encoded_dev, dev_offsets)

    return Task(
        model=model,
        summary=f"{len(groups):,} groups of {offsets.shape[1]} passages{start.note}",
        batch_loss=batch_loss,
        lengths=np.array([max(pair.ids.size for pair in group) * len(group) for group in encoded], np.int64),
        dev_measures=dev_measures if dev else None,
        save=start.save,
        data={
            "training data": digest(*_ids(encoded), offsets.numpy()),
            "dev data": digest(*_ids(encoded_dev), dev_offsets),
        },
        decoded=[tokenizer.decode(group[0].ids.tolist()) for group in encoded[:: len(encoded) // 4 + 1]],
    )


def _ids(groups: Sequence[Sequence[ModelInput]]) -> list[NDArray[np.int64]]:
    return [pair.ids for group in groups for pair in group]
