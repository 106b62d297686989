"""The training losses, as pure functions over logits.

Sources: span loss, Devlin et al. 2019, section 4.2; listwise softmax loss over one positive and its negatives,
Gao, Dai and Callan 2021 ("Rethink training of BERT rerankers"), equation 3; in-batch contrastive loss, Karpukhin et al.
2020 (DPR), equation 2, with hard negatives; distillation, Hinton, Vinyals and Dean 2015, section 2.
"""

import torch
from torch import Tensor
from torch.nn import functional


def span_loss(start_logits: Tensor, end_logits: Tensor, allowed: Tensor, starts: Tensor, ends: Tensor) -> Tensor:
    """Return the mean of the start's and the end's cross-entropy, averaged over the batch.

    Args:
        start_logits: (batch, window_tokens).
        end_logits: (batch, window_tokens).
        allowed: (batch, window_tokens) True at [CLS] and at passage tokens, the only places a span may stand.
        starts: (batch,) the first token of the answer, 0 for none.
        ends: (batch,) the last token of the answer, inclusive, 0 for none.
    """
    floor = torch.finfo(torch.float32).min
    start_loss = functional.cross_entropy(start_logits.float().masked_fill(~allowed, floor), starts)
    end_loss = functional.cross_entropy(end_logits.float().masked_fill(~allowed, floor), ends)
    return (start_loss + end_loss) / 2


def distillation_loss(logits: Tensor, allowed: Tensor, teachers: Tensor, *, temperature: float) -> Tensor:
    """Return how far the softmax is from the teachers' mean: the KL divergence, averaged over the batch.

    Both sides' logits are divided by the temperature and the loss is multiplied by its square, so that gradients keep
    their size whatever it is. Worked example: a teacher's logits [ln 3, 0] are (.75, .25), a student's [0, 0] (.5, .5);
    at temperature 1 the loss is .75 ln 1.5 + .25 ln .5 = .131.

    Args:
        logits: (batch, window_tokens).
        allowed: (batch, window_tokens) True where a probability may be; at least once a row.
        teachers: (teachers, batch, window_tokens) logits.
        temperature: greater than 0; above 1 it makes more of what is unlikely.
    """
    floor = -1e4  # its exponential is 0, and 0 times it is no NaN
    wanted = (teachers.float().masked_fill(~allowed, floor) / temperature).softmax(dim=-1).mean(dim=0)
    found = (logits.float().masked_fill(~allowed, floor) / temperature).log_softmax(dim=-1)
    return functional.kl_div(found, wanted, reduction="batchmean") * temperature**2


def listwise_loss(logits: Tensor) -> Tensor:
    """Return the mean cross-entropy of each group's softmax against its first column.

    Args:
        logits: (groups, candidates) with the relevant candidate in column 0.
    """
    return functional.cross_entropy(
        logits.float(), torch.zeros(logits.shape[0], dtype=torch.long, device=logits.device)
    )


def pointwise_loss(logits: Tensor) -> Tensor:
    """Return the binary cross-entropy of each candidate, relevant and not weighing the same in sum.

    Args:
        logits: (groups, candidates) with the relevant candidate in column 0.
    """
    labels = torch.zeros_like(logits, dtype=torch.float32)
    labels[:, 0] = 1.0
    weights = torch.full_like(labels, 0.5 / (logits.shape[1] - 1))
    weights[:, 0] = 0.5
    losses = functional.binary_cross_entropy_with_logits(logits.float(), labels, reduction="none")
    return (losses * weights).sum(dim=1).mean()


def contrastive_loss(queries: Tensor, passages: Tensor, *, scale: float) -> Tensor:
    """Return the mean cross-entropy of each query's own passage among the passages of the whole batch.

    Worked example: two orthogonal queries equal to their passages, no others, scale 1: cosines [[1, 0], [0, 1]], so the
    loss is ln(e + 1) - 1 = .313.

    Args:
        queries: (batch, dimension) unit vectors.
        passages: (batch * k, dimension) unit vectors, k a query: the relevant one first, then its hard negatives.
        scale: what a cosine is multiplied by, the inverse of the temperature.
    """
    n_queries = queries.shape[0]
    cosines = scale * queries.float() @ passages.float().T
    own = torch.arange(n_queries, device=queries.device) * (passages.shape[0] // n_queries)
    return functional.cross_entropy(cosines, own)
