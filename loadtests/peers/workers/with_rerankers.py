"""rerankers over a transformers folder, 16 pairs a batch as it has them by default."""

from rerankers import Reranker

from peers.workers.protocol import Score, Task, run


def load(task: Task) -> Score:
    """Return logits."""
    ranker = Reranker(str(task.model), model_type="cross-encoder", device="cpu", verbose=0)

    def logits(query: str, passages: list[str]) -> list[float]:
        found = {each.doc_id: each.score for each in ranker.rank(query, passages, list(range(len(passages)))).results}
        return [float(found[i]) for i in range(len(passages))]

    return logits


if __name__ == "__main__":
    run(load)
