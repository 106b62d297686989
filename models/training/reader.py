"""Train the reader: BERT with a start and an end logit per token (Devlin et al. 2019, section 4.2 and 4.3).

An example without an answer points both at [CLS]. Real unanswerable questions are rare in the data, so more are made
by asking a question of another passage of the same title that does not hold its answer.
"""

import argparse
import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import AutoModelForQuestionAnswering

from models.tokenization import ModelInput, TokenizedText, Tokenizer, Window
from models.training.data import LabelledQuestion, passages_by_title, read_questions
from models.training.loop import Recipe, padded_batch, train
from models.training.losses import span_loss

logger = logging.getLogger(__name__)

MAX_WINDOW_TOKENS = 384
MAX_QUERY_TOKENS = 64
OVERLAP_TOKENS = 128


@dataclass(frozen=True, slots=True)
class SpanExample:
    """One window and its target: first and last answer token in the input, both 0 ([CLS]) for none."""

    input: ModelInput
    passage_start: int
    start: int
    end: int


def with_made_negatives(
    questions: Sequence[LabelledQuestion], *, n_negatives: int, seed: int
) -> list[LabelledQuestion]:
    """Return questions plus n_negatives unanswerable ones, made by moving a question to a sibling passage.

    A sibling has the same title and holds none of the question's answer texts, in any case.
    """
    passages = passages_by_title(questions)
    generator = random.Random(seed)
    made: list[LabelledQuestion] = []
    sources = [question for question in questions if question.answers and len(passages[question.title]) > 1]
    for question in generator.sample(sources, len(sources)):
        if len(made) == n_negatives:
            break
        sibling = generator.choice(passages[question.title])
        if sibling != question.passage and not question.has_answer_in(sibling):
            made.append(LabelledQuestion(question.question_id + "-null", question.title, sibling, question.query, ()))
    return [*questions, *made]


def span_examples(
    questions: Sequence[LabelledQuestion], tokenizer: Tokenizer, *, null_windows: int, seed: int
) -> list[SpanExample]:
    """Return the windows to train on: all that hold the answer whole, and at most null_windows others a question."""
    generator = random.Random(seed)
    queries = tokenizer.encode_batch([question.query for question in questions])
    texts = list({question.passage: None for question in questions})
    passages = dict(zip(texts, tokenizer.encode_batch(texts), strict=True))
    examples: list[SpanExample] = []
    for question, query in zip(questions, queries, strict=True):
        passage = passages[question.passage]
        windows = tokenizer.windows(
            query.ids,
            passage.ids,
            max_window_tokens=MAX_WINDOW_TOKENS,
            max_query_tokens=MAX_QUERY_TOKENS,
            overlap_tokens=OVERLAP_TOKENS,
        )
        own = [_example(window, _answer_tokens(question, passage)) for window in windows]
        held = [example for example in own if example.start > 0]
        null = [example for example in own if example.start == 0]
        if question.answers and not held:
            continue
        examples += held + generator.sample(null, min(len(null), null_windows))
    return examples


def _answer_tokens(question: LabelledQuestion, passage: TokenizedText) -> tuple[int, int] | None:
    """Return the first answer's tokens as [first, last], None when the question has no answer."""
    if not question.answers:
        return None
    start, text = question.answers[0]
    inside = np.flatnonzero((passage.offsets[:, 0] < start + len(text)) & (passage.offsets[:, 1] > start))
    return (int(inside[0]), int(inside[-1])) if inside.size else None


def _example(window: Window, answer: tuple[int, int] | None) -> SpanExample:
    if answer is None or answer[0] < window.passage_start or answer[1] >= window.passage_end:
        return SpanExample(window.input, window.input_start, 0, 0)
    shift = window.input_start - window.passage_start
    return SpanExample(window.input, window.input_start, answer[0] + shift, answer[1] + shift)


def batch_span_loss(model: torch.nn.Module, examples: Sequence[SpanExample]) -> Tensor:
    """Return the span loss of the examples, padded into one batch."""
    batch = padded_batch([example.input for example in examples])
    lengths = torch.tensor([example.input.ids.size for example in examples])
    positions = torch.arange(batch["input_ids"].shape[1])
    passage_starts = torch.tensor([example.passage_start for example in examples])
    in_passage = (positions[None, :] >= passage_starts[:, None]) & (positions[None, :] < lengths[:, None] - 1)
    outputs = model(**batch)
    return span_loss(
        outputs.start_logits,
        outputs.end_logits,
        in_passage | (positions[None, :] == 0),
        torch.tensor([example.start for example in examples]),
        torch.tensor([example.end for example in examples]),
    )


def train_reader(data: Sequence[Path], init: Path, out: Path, recipe: Recipe, *, n_negatives: int) -> None:
    """Train a reader from the encoder in init and write a transformers checkpoint and its log to out."""
    torch.manual_seed(recipe.seed)
    tokenizer = Tokenizer(init / "tokenizer.json")
    questions = with_made_negatives(
        [question for path in data for question in read_questions(path)], n_negatives=n_negatives, seed=recipe.seed
    )
    examples = span_examples(questions, tokenizer, null_windows=1, seed=recipe.seed)
    n_null = sum(example.start == 0 for example in examples)
    logger.info("%d windows, %d of them without an answer", len(examples), n_null)
    for example in examples[:2]:
        logger.info("decoded input: %s", tokenizer.decode(example.input.ids.tolist()))
    model = AutoModelForQuestionAnswering.from_pretrained(
        init, attn_implementation="sdpa", attention_probs_dropout_prob=0.0
    )
    lengths = np.array([example.input.ids.size for example in examples], np.int64)
    out.mkdir(parents=True, exist_ok=True)

    def batch_loss(indices: NDArray[np.int64]) -> Tensor:
        return batch_span_loss(model, [examples[i] for i in indices])

    train(model, batch_loss, lengths, recipe, out / "log.jsonl")
    model.save_pretrained(out)
    (out / "tokenizer.json").write_bytes((init / "tokenizer.json").read_bytes())


def main() -> None:
    """Run from the command line: `python -m models.training.reader --data FILE --init DIR --out DIR`."""
    parser = argparse.ArgumentParser(description=train_reader.__doc__)
    parser.add_argument("--data", type=Path, nargs="+", required=True)
    parser.add_argument("--init", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--negatives", type=int, default=12_000)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    recipe = Recipe(arguments.seed, arguments.epochs, 4096, learning_rate=8e-5, head_learning_rate=3e-4)
    train_reader(arguments.data, arguments.init, arguments.out, recipe, n_negatives=arguments.negatives)


if __name__ == "__main__":
    main()
