"""Add int8 by NNCF to a folder with an OpenVINO model, with the options that sentence-transformers' own export takes.

    python quantize_openvino.py FOLDER CALIBRATION.json

The export itself wants a data set of a hub; here the calibration is other requests of the same kind as are scored.
"""

import json
import sys
from pathlib import Path
from typing import Any

import nncf
import numpy as np
import openvino
from tokenizers import Tokenizer

MAX_PAIR_TOKENS = 512


def main() -> None:
    """Quantise what openvino/openvino_model.xml holds."""
    folder = Path(sys.argv[1])
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(MAX_PAIR_TOKENS)
    requests = json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))
    pairs = [tokenizer.encode(query, passage) for query, passages in requests for passage in passages]
    model = openvino.Core().read_model(folder / "openvino" / "openvino_model.xml")
    quantized = nncf.quantize(
        model,
        nncf.Dataset(pairs, _inputs),
        model_type=nncf.ModelType.TRANSFORMER,
        subset_size=len(pairs),
    )
    openvino.save_model(quantized, folder / "openvino" / "openvino_model_qint8_quantized.xml", compress_to_fp16=False)


def _inputs(pair: Any) -> dict[str, Any]:
    columns = {"input_ids": pair.ids, "attention_mask": pair.attention_mask, "token_type_ids": pair.type_ids}
    return {name: np.array([values], np.int64) for name, values in columns.items()}


if __name__ == "__main__":
    main()
