"""flashrank over other weights: it finds them in a folder that is named as one of its own models."""

import math

from flashrank import Ranker, RerankRequest

from peers.workers.protocol import Score, Task, run

MAX_PAIR_TOKENS = 512
STANDS_FOR = "ms-marco-MiniLM-L-12-v2"  # the name of one of its models, whose file and tokenizer are replaced


def load(task: Task) -> Score:
    """Return logits, from the sigmoids that it gives; the variant is a folder of the model's."""
    ranker = Ranker(STANDS_FOR, cache_dir=str(task.model / task.variant), max_length=MAX_PAIR_TOKENS)

    def logits(query: str, passages: list[str]) -> list[float]:
        named = [{"id": i, "text": passage} for i, passage in enumerate(passages)]
        found = {each["id"]: float(each["score"]) for each in ranker.rerank(RerankRequest(query, named))}
        return [math.log(found[i] / (1 - found[i])) for i in range(len(passages))]

    return logits


if __name__ == "__main__":
    run(load)
