"""What a request will cost the models, in tokens, estimated before any of its work."""

from collections.abc import Sequence

from indexer.snapshot import Snapshot
from service.admission import Cost
from service.queries import AnswerQuery, SearchQuery

_CHARACTERS_PER_TOKEN = 4  # of English text


def search_cost(query: SearchQuery, snapshot: Snapshot) -> Cost:
    """Return the tokens of encoding the query, and of reranking, which may be left out near a deadline."""
    encoded = _tokens(query.query)
    return Cost(encoded + _reranked(query, snapshot), encoded)


def pairs_cost(query: str, texts: Sequence[str]) -> Cost:
    """Return the tokens of reading each of the caller's texts beside a query."""
    tokens = sum(map(_tokens, texts)) + len(texts) * _tokens(query)
    return Cost(tokens, tokens)


def texts_cost(texts: Sequence[str]) -> Cost:
    """Return the tokens of encoding the caller's texts."""
    tokens = sum(map(_tokens, texts))
    return Cost(tokens, tokens)


def answer_cost(query: AnswerQuery, snapshot: Snapshot | None) -> Cost:
    """Return the tokens of an answer: reading is what cannot be left out; snapshot is None for own passages."""
    asked = _tokens(query.query)
    if snapshot is None:
        return pairs_cost(query.query, [passage.text for passage in query.passages or []])
    read = asked + min(query.read_k, snapshot.n_passages) * (asked + snapshot.mean_passage_tokens)
    return Cost(read + _reranked(query, snapshot), read)


def _reranked(query: SearchQuery | AnswerQuery, snapshot: Snapshot) -> int:
    if not query.rerank:
        return 0
    n_passages = min(query.rerank_k, snapshot.n_passages)
    return n_passages * (_tokens(query.query) + snapshot.mean_passage_tokens)


def _tokens(text: str) -> int:
    return 2 + len(text) // _CHARACTERS_PER_TOKEN
