"""Compare the bundled int8 dual encoder with the original in torch: cosines, and nDCG@10 of exact dense search.

Needs the `train` extra. `python loadtests/dual_encoder_parity.py BEIR_FOLDER… [--split test]`
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModel

from models.dual_encoder import DualEncoder
from models.evaluation import ndcg_at_k
from models.folder import BUNDLED_DUAL_ENCODER, open_model_folder
from models.pooling import mean_pool, unit
from models.session import Runtime, available_cpus
from models.training.beir import LabelledCollection, read_beir
from models.training.checkpoints import original_encoder


def original_vectors(model: torch.nn.Module, encoder: DualEncoder, texts: Sequence[str]) -> NDArray[np.float32]:
    """Return the (n, dimension) unit vectors that the original gives for the very inputs that int8 gets."""
    pooled = []
    for tokenized in encoder.tokenizer.encode_batch(texts):
        ids = encoder.tokenizer.single(tokenized.ids, max_tokens=encoder.max_tokens).ids
        with torch.inference_mode():
            hidden = model(torch.from_numpy(ids[None])).last_hidden_state[0]
        pooled.append(mean_pool(hidden.numpy()))
    return unit(np.stack(pooled))


def mean_ndcg(queries: NDArray[np.float32], documents: NDArray[np.float32], collection: LabelledCollection) -> float:
    """Return the mean nDCG@10 of ranking documents by inner product, ties by order."""
    ids = list(collection.documents)
    scores = []
    for vector, (query_id, judgements) in zip(queries, collection.judgements.items(), strict=True):
        best = np.argsort(-(documents @ vector), kind="stable")[:11]
        ranking = [ids[i] for i in best if ids[i] != query_id or query_id not in judgements]
        scores.append(ndcg_at_k(ranking, judgements, 10))
    return fmean(scores)


def main() -> None:
    """Print one row for each collection."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--split", default="test")
    arguments = parser.parse_args()
    torch.set_num_threads(available_cpus())
    encoder = DualEncoder(open_model_folder(BUNDLED_DUAL_ENCODER, "dual-encoder"), Runtime(available_cpus()))
    model = AutoModel.from_pretrained(original_encoder()).eval()
    print("| collection | nDCG@10 original | nDCG@10 int8 | cosine min | cosine mean |\n|---|---|---|---|---|")
    for folder in arguments.folders:
        collection = read_beir(folder, arguments.split)
        documents = list(collection.documents.values())
        queries = [collection.queries[query_id] for query_id in collection.judgements]
        mine = [encoder.encode_passages(documents).vectors, encoder.encode_queries(queries).vectors]
        theirs = [original_vectors(model, encoder, documents), original_vectors(model, encoder, queries)]
        cosines = np.concatenate([(a * b).sum(axis=1) for a, b in zip(mine, theirs, strict=True)])
        before, after = mean_ndcg(theirs[1], theirs[0], collection), mean_ndcg(mine[1], mine[0], collection)
        figures = " | ".join(f"{value:.3f}" for value in (before, after, cosines.min(), cosines.mean()))
        print(f"| {folder.name} | {figures} |", flush=True)


if __name__ == "__main__":
    main()
