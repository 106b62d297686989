"""txtai's cross-encoder pipeline over a transformers folder."""

from txtai.pipeline import CrossEncoder

from peers.workers.protocol import Score, Task, run


def load(task: Task) -> Score:
    """Return logits, as it gives them where labels are neither independent nor exclusive."""
    model = CrossEncoder(str(task.model), gpu=False)

    def logits(query: str, passages: list[str]) -> list[float]:
        found = dict(model(query, passages, multilabel=None))
        return [float(found[i]) for i in range(len(passages))]

    return logits


if __name__ == "__main__":
    run(load)
