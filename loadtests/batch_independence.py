"""Measure how far a cross-encoder's logit depends on what shares its batch, on real pairs.

Each of 20 pairs is scored alone and beside 2, 7 and 31 long mates, once as ONNX Runtime takes a padded batch, once as
Tercet's session runs it, each input alone. `python loadtests/batch_independence.py QUESTIONS [--model DIR…]`
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from models.cross_encoder import CrossEncoder
from models.folder import BUNDLED_CROSS_ENCODER, WEIGHTS_FILE, open_model_folder
from models.session import Runtime, available_cpus
from models.tokenization import ModelInput
from models.training.data import LabelledQuestion, read_questions

N_PAIRS = 20
BATCH_SIZES = (3, 8, 32)


def pair_inputs(
    model: CrossEncoder, questions: Sequence[LabelledQuestion]
) -> tuple[list[ModelInput], list[ModelInput]]:
    """Return the inputs of N_PAIRS questions on different passages, spread over the file, and of as many long mates.

    The mates are the same queries with the three longest passages, one after the other.
    """
    distinct = list({question.passage: question for question in questions}.values())
    asked = distinct[:: max(1, len(distinct) // N_PAIRS)][:N_PAIRS]
    longest = sorted((question.passage for question in distinct), key=len)[-3:]
    passages = model.tokenizer.encode_batch([question.passage for question in asked])
    long = np.concatenate([text.ids for text in model.tokenizer.encode_batch(longest)])
    pairs = [model.inputs(each.query, [text.ids])[0] for each, text in zip(asked, passages, strict=True)]
    mates = [model.inputs(asked[i % len(asked)].query, [np.roll(long, 37 * i)])[0] for i in range(max(BATCH_SIZES) - 1)]
    return pairs, mates


def padded_logits(session: onnxruntime.InferenceSession, batch: Sequence[ModelInput]) -> NDArray[np.float32]:
    """Return the (n,) logits of one padded batch."""
    width = max(item.ids.size for item in batch)
    rows = [(item.ids, np.ones_like(item.ids), item.token_types) for item in batch]
    arrays = [
        np.stack([np.pad(values, (0, width - values.size)) for values in column]) for column in zip(*rows, strict=True)
    ]
    feeds = dict(zip(("input_ids", "attention_mask", "token_type_ids"), arrays, strict=True))
    names = {node.name for node in session.get_inputs()}
    logits: NDArray[np.float32] = session.run(None, {name: feeds[name] for name in names})[0]
    return logits[:, 0]


def measure(name: str, questions: Sequence[LabelledQuestion]) -> None:
    """Print one row for each batch size: greatest and mean difference from the pair alone, both ways."""
    folder = open_model_folder(name, "cross-encoder")
    model = CrossEncoder(folder, Runtime(available_cpus()))
    session = onnxruntime.InferenceSession(str(folder.path / WEIGHTS_FILE), providers=["CPUExecutionProvider"])
    pairs, mates = pair_inputs(model, questions)
    alone = np.array([padded_logits(session, [pair])[0] for pair in pairs])
    own_alone = np.array([model.logits([pair])[0] for pair in pairs])
    for size in BATCH_SIZES:
        batches = [[pair, *mates[: size - 1]] for pair in pairs]
        batched = np.abs([padded_logits(session, batch)[0] for batch in batches] - alone)
        own = np.abs([model.logits(batch)[0] for batch in batches] - own_alone)
        figures = " | ".join(f"{values.max():.1e} | {values.mean():.1e}" for values in (batched, own))
        print(f"| {folder.settings.name} | {size} | {figures} |", flush=True)


def main() -> None:
    """Measure each model and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("questions", type=Path, help="labelled questions, whose passages are paired with them")
    parser.add_argument("--model", nargs="+", default=[BUNDLED_CROSS_ENCODER], help="cross-encoder folders")
    arguments = parser.parse_args()
    questions = read_questions(arguments.questions)
    print("| model | batch | padded batch, max | mean | Tercet's session, max | mean |\n|---|---|---|---|---|---|")
    for name in arguments.model:
        measure(name, questions)


if __name__ == "__main__":
    main()
