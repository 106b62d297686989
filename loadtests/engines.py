"""Score candidates with each engine in turns: how fast, and how near to fp32 of the same weights.

    python loadtests/engines.py INDEX_FOLDER QUERIES.jsonl.gz [--n 20] [--rounds 3]

A request is a query and its best 100 passages by BM25, as their tokens lie in the index. The reference is OpenVINO in
fp32; top-10 kept and Kendall's tau are means over requests.
"""

import argparse
import statistics
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
from fidelity import Logits, fidelity
from target import read_queries

from indexer.snapshot import Snapshot
from models import native_session
from models.cross_encoder import CrossEncoder
from models.folder import BUNDLED_CROSS_ENCODER, BUNDLED_DUAL_ENCODER, WEIGHTS_FILE, open_model_folder
from models.openvino_session import OpenVinoSession
from models.session import Runtime, available_cpus
from models.tokenization import ModelInput

N_CANDIDATES = 100
DIMENSION = 384
REFERENCE = "openvino in f32"


def engines() -> dict[str, CrossEncoder]:
    """Return the bundled cross-encoder in each engine, the reference first."""
    folder, n_threads = open_model_folder(BUNDLED_CROSS_ENCODER, "cross-encoder"), available_cpus()
    path, max_tokens = folder.path / WEIGHTS_FILE, folder.settings.max_tokens
    models = [
        CrossEncoder(folder, OpenVinoSession(path, n_threads=n_threads, max_tokens=max_tokens, precision="f32")),
        CrossEncoder(folder, Runtime(n_threads, engine="onnxruntime")),
        CrossEncoder(folder, Runtime(n_threads, engine="openvino")),
    ]
    if native_session.is_supported():
        models.append(CrossEncoder(folder, Runtime(n_threads, engine="native")))
    return {model.engine: model for model in models}


def requests(index_path: Path, queries: list[str], model: CrossEncoder) -> list[list[ModelInput]]:
    """Return the pair inputs of each query with its best passages by BM25."""
    encoder = open_model_folder(BUNDLED_DUAL_ENCODER, "dual-encoder")
    snapshot = Snapshot.open(index_path, encoder_fingerprint=encoder.fingerprint, dimension=DIMENSION)
    found = [snapshot.search_bm25(query, N_CANDIDATES).rows for query in queries]
    return [
        model.inputs(query, [text.ids for text in model.tokenizer.encode_batch(snapshot.passage_texts(rows))])
        for query, rows in zip(queries, found, strict=True)
        if rows.size == N_CANDIDATES
    ]


def main() -> None:
    """Print a line for each engine."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("index", type=Path)
    parser.add_argument("queries", type=Path)
    parser.add_argument("--n", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    models = engines()
    asked = requests(arguments.index, read_queries(arguments.queries, n=arguments.n), models[REFERENCE])
    rates: dict[str, list[float]] = {name: [] for name in models}
    logits: dict[str, Logits] = {}
    for round_ in range(arguments.rounds + 1):  # the first warms up
        for name, model in models.items():
            scored = []
            for inputs in asked:
                started = time.perf_counter()
                scored.append(model.logits(inputs))
                if round_:
                    rates[name].append(len(inputs) / (time.perf_counter() - started))
            logits[name] = np.stack(scored)
    lengths = [item.ids.size for inputs in asked for item in inputs]
    print(f"{len(asked)} requests of {N_CANDIDATES} pairs, median {np.median(lengths):.0f} tokens")
    for name, found in rates.items():
        figures = asdict(fidelity(logits[name], logits[REFERENCE]))
        near = ", ".join(f"{what} {figure:.4f}" for what, figure in figures.items())
        print(f"{name}: {statistics.median(found):.0f} pairs/s; {near}")


if __name__ == "__main__":
    main()
