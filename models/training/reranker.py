"""Train the cross-encoder on groups of one relevant passage and several that are not (Gao, Dai and Callan 2021).

Groups come from four kinds of query, so that the model does not learn one genre: questions with their paragraph,
sentences with the paragraph they were taken from, labelled keyword queries, and labelled answer sentences.
"""

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import AutoModelForSequenceClassification

from models.tokenization import ModelInput, Tokenizer
from models.training.data import read_questions
from models.training.groups import Group, groups_from_beir, groups_from_questions, groups_from_sentences
from models.training.loop import Recipe, padded_batch, train
from models.training.losses import listwise_loss, pointwise_loss

logger = logging.getLogger(__name__)

MAX_PAIR_TOKENS = 224
MAX_QUERY_TOKENS = 64


def encode_groups(groups: Sequence[Group], tokenizer: Tokenizer) -> list[list[ModelInput]]:
    """Return one list of pair inputs per group, the relevant passage first."""
    queries = tokenizer.encode_batch([group.query for group in groups])
    texts = list({text: None for group in groups for text in (group.positive, *group.negatives)})
    passages = dict(zip(texts, tokenizer.encode_batch(texts), strict=True))
    return [
        [
            tokenizer.pair(query.ids, passages[text].ids, max_tokens=MAX_PAIR_TOKENS, max_query_tokens=MAX_QUERY_TOKENS)
            for text in (group.positive, *group.negatives)
        ]
        for group, query in zip(groups, queries, strict=True)
    ]


def batch_group_loss(model: torch.nn.Module, batch: Sequence[Sequence[ModelInput]]) -> Tensor:
    """Return the listwise plus half the pointwise loss of groups of equal size, padded into one batch."""
    flat = [pair for group in batch for pair in group]
    logits = model(**padded_batch(flat)).logits.view(len(batch), -1)
    return listwise_loss(logits) + 0.5 * pointwise_loss(logits)


def train_reranker(groups: Sequence[Group], init: Path, out: Path, recipe: Recipe) -> None:
    """Train a cross-encoder from the encoder in init and write a transformers checkpoint and its log to out."""
    torch.manual_seed(recipe.seed)
    tokenizer = Tokenizer(init / "tokenizer.json")
    encoded = encode_groups(groups, tokenizer)
    for group in encoded[:: max(1, len(encoded) // 4)]:
        logger.info("decoded input: %s", tokenizer.decode(group[0].ids.tolist()))
    model = AutoModelForSequenceClassification.from_pretrained(
        init, num_labels=1, attn_implementation="sdpa", attention_probs_dropout_prob=0.0
    )
    lengths = np.array([max(pair.ids.size for pair in group) * len(group) for group in encoded], np.int64)
    out.mkdir(parents=True, exist_ok=True)

    def batch_loss(indices: NDArray[np.int64]) -> Tensor:
        return batch_group_loss(model, [encoded[i] for i in indices])

    train(model, batch_loss, lengths, recipe, out / "log.jsonl")
    model.save_pretrained(out)
    (out / "tokenizer.json").write_bytes((init / "tokenizer.json").read_bytes())


def main() -> None:
    """Run from the command line, see --help."""
    parser = argparse.ArgumentParser(description=train_reranker.__doc__)
    parser.add_argument("--questions", type=Path, required=True, help="labelled questions, JSON Lines")
    parser.add_argument("--beir", nargs="*", default=[], help="FOLDER:SPLIT:GROUPS of labelled queries")
    parser.add_argument("--question-groups", type=int, default=11_000)
    parser.add_argument("--sentence-groups", type=int, default=2_500)
    parser.add_argument("--init", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    questions = read_questions(arguments.questions)
    groups = [
        *groups_from_questions(questions, n_groups=arguments.question_groups, seed=arguments.seed),
        *groups_from_sentences(questions, n_groups=arguments.sentence_groups, seed=arguments.seed),
    ]
    for source in arguments.beir:
        folder, split, n_groups = source.rsplit(":", 2)
        groups += groups_from_beir(Path(folder), split, n_groups=int(n_groups), seed=arguments.seed)
    logger.info("%d groups", len(groups))
    recipe = Recipe(arguments.seed, 1, 5120, learning_rate=7e-5, head_learning_rate=3e-4)
    train_reranker(groups, arguments.init, arguments.out, recipe)


if __name__ == "__main__":
    main()
