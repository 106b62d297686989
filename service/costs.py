"""What a request will cost the models, in tokens, estimated before any of its work: of each text what a model reads."""

import math
from collections.abc import Sequence
from dataclasses import replace

from indexer.snapshot import Snapshot
from models.early_exit import FIRST
from models.tokenization import SPECIAL_TOKENS, Lengths
from service.admission import Cost
from service.engine import Models
from service.queries import AnswerQuery, SearchQuery

_CHARACTERS_PER_TOKEN = 4  # of English text


def search_cost(models: Models, query: SearchQuery, snapshot: Snapshot, *, read_share: float = 1.0) -> Cost:
    """Return the tokens of encoding the query, and of reranking, which may be left out near a deadline.

    Args:
        models: that will run.
        query: what is asked.
        snapshot: where.
        read_share: of the candidates of a query that may stop early, how many are expected to be read; at least as
            many are as must be before the first look, or to fill the head.
    """
    encoded = _encoded(query.query, models)
    return Cost(encoded + _reranked(models, query, snapshot, read_share), encoded)


def answer_cost(models: Models, query: AnswerQuery, snapshot: Snapshot | None, *, read_share: float = 1.0) -> Cost:
    """Return the tokens of an answer, as `search_cost`; snapshot is None for own passages, which are all read.

    Of an index one passage must be read; near a deadline the others are left out, and reranking before them.
    """
    if snapshot is None:
        return pairs_cost(query.query, [passage.text for passage in query.passages or []], models.reader.lengths)
    encoded, read = _encoded(query.query, models), reading_tokens(models, query, snapshot)
    least = encoded + reading_tokens(models, replace(query, read_k=1), snapshot)
    return Cost(encoded + _reranked(models, query, snapshot, read_share) + read, least)


def reading_tokens(models: Models, query: AnswerQuery, snapshot: Snapshot) -> int:
    """Return the tokens of reading read_k passages of an index."""
    n_passages = min(query.read_k, snapshot.n_passages)
    return n_passages * _pair(query.query, snapshot.mean_passage_tokens, models.reader.lengths)


def pairs_cost(
    query: str,
    texts: Sequence[str],
    lengths: Lengths,
    *,
    max_windows: int | None = None,
    max_text_tokens: int | None = None,
) -> Cost:
    """Return the tokens of reading each of the caller's texts beside a query, as `CrossEncoder.prepare` limits them."""
    n_tokens = [_tokens(text) for text in texts]
    if max_text_tokens is not None:
        n_tokens = [min(each, max_text_tokens) for each in n_tokens]
    tokens = sum(_pair(query, each, lengths, max_windows) for each in n_tokens)
    return Cost(tokens, tokens)


def texts_cost(models: Models, texts: Sequence[str]) -> Cost:
    """Return the tokens of encoding the caller's texts."""
    tokens = sum(_encoded(text, models) for text in texts)
    return Cost(tokens, tokens)


def _reranked(models: Models, query: SearchQuery | AnswerQuery, snapshot: Snapshot, read_share: float) -> int:
    if not query.rerank:
        return 0
    lengths = models.cross_encoder.lengths
    n_passages = min(query.rerank_k, snapshot.n_passages)
    may_stop = 0 < query.settle_k < n_passages and not (isinstance(query, SearchQuery) and query.min_score is not None)
    if may_stop:
        n_passages = min(n_passages, max(FIRST, query.settle_k, math.ceil(n_passages * read_share)))
    n_tokens = min(snapshot.mean_passage_tokens, query.rerank_tokens or snapshot.mean_passage_tokens)
    return n_passages * _pair(query.query, n_tokens, lengths, max_windows=1)


def _encoded(text: str, models: Models) -> int:
    return min(_tokens(text) + SPECIAL_TOKENS, models.dual_encoder.max_tokens)


def _pair(query: str, passage_tokens: int, lengths: Lengths, max_windows: int | None = None) -> int:
    """Return the tokens of the windows, at most max_windows, in which a passage is read beside a query.

    Worked example: windows of 10 tokens with a query of 2 and 4 special ones have room for 4 of a passage. With an
    overlap of 1 one of 9 needs three: 9 + 2 * 1 + 3 * 6 = 29 tokens. Two windows are full: 20.
    """
    asked = min(_tokens(query), lengths.max_query_tokens) + SPECIAL_TOKENS
    room = lengths.max_tokens - asked
    step = max(1, room - lengths.overlap_tokens)  # an overlap as wide as the room is an error when it is read
    n_windows = 1 + max(0, -(-(passage_tokens - room) // step))
    if max_windows is not None:
        n_windows = min(n_windows, max_windows)
    whole = passage_tokens + (n_windows - 1) * lengths.overlap_tokens + n_windows * asked
    return min(whole, n_windows * lengths.max_tokens)


def _tokens(text: str) -> int:
    return -(-len(text) // _CHARACTERS_PER_TOKEN)
