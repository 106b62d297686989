"""What a request will cost the models, in tokens, estimated before any of its work."""

from indexer.snapshot import Snapshot
from service.admission import Cost
from service.engine import estimated_tokens
from service.queries import AnswerQuery, SearchQuery


def search_cost(query: SearchQuery, snapshot: Snapshot) -> Cost:
    """Return the tokens of encoding the query, and of reranking, which may be left out near a deadline."""
    encoded = estimated_tokens(query.query)
    return Cost(encoded + _reranked(query, snapshot), encoded)


def answer_cost(query: AnswerQuery, snapshot: Snapshot | None) -> Cost:
    """Return the tokens of an answer: reading is what cannot be left out; snapshot is None for own passages."""
    asked = estimated_tokens(query.query)
    if snapshot is None:
        own = query.passages if query.passages is not None else []
        read = sum(asked + estimated_tokens(passage.text) for passage in own)
        return Cost(read, read)
    read = asked + min(query.read_k, snapshot.n_passages) * (asked + snapshot.mean_passage_tokens)
    return Cost(read + _reranked(query, snapshot), read)


def _reranked(query: SearchQuery | AnswerQuery, snapshot: Snapshot) -> int:
    if not query.rerank:
        return 0
    n_passages = min(query.rerank_k, snapshot.n_passages)
    return n_passages * (estimated_tokens(query.query) + snapshot.mean_passage_tokens)
