"""From ranked rows to results: what each candidate scored, where it stood, and which of its words matched."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from indexer.facets import Facet
from indexer.filters import Filtered
from indexer.ranking import Hits, Mask, Rows
from indexer.snapshot import Snapshot
from indexer.store import StoredPassage
from models.calibration import sigmoid

Mode: TypeAlias = Literal["hybrid", "dense", "bm25"]
ScoreKind: TypeAlias = Literal["relevance", "rrf", "bm25", "dense"]

RRF_K = 60


@dataclass(frozen=True, slots=True, eq=False)
class Reranked:
    """What the cross-encoder made of the best rows: arrays (n,), by relevance logit descending, then row."""

    rows: Rows
    rerank_logits: NDArray[np.float64]
    relevance_logits: NDArray[np.float64]
    cut_tokens: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Everything that was found for one query. A leg that the mode leaves out is None, and so is a filter not given.

    fused holds every candidate; the reranked ones come first in the ranking, the others keep their fused order.
    """

    query: str
    mode: Mode
    query_vector: NDArray[np.float32] | None
    filtered: Filtered | None
    bm25: Hits | None
    dense: Hits | None
    fused: Hits
    reranked: Reranked
    query_cut_tokens: int
    skipped: list[str]

    @property
    def n_passages_cut(self) -> int:
        """Reranked passages that did not fit beside the query."""
        return int((self.reranked.cut_tokens > 0).sum())

    def rows(self) -> Rows:
        """Return all rows, best first: a total order that no page size changes."""
        is_reranked = np.isin(self.fused.rows, self.reranked.rows)
        return np.concatenate([self.reranked.rows, self.fused.rows[~is_reranked]])


@dataclass(frozen=True, slots=True)
class Scores:
    """Every score that a candidate earned; None where the mode or the depth left it out."""

    bm25: float | None
    dense: float | None
    rrf: float | None
    rerank_logit: float | None
    relevance: float | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Where a candidate stood, ranks from 1; None where a leg did not find it within its depth."""

    bm25_rank: int | None
    dense_rank: int | None
    fused_rank: int
    bm25_rrf: float | None
    dense_rrf: float | None
    relevance_logit: float | None


@dataclass(frozen=True, slots=True)
class Result:
    """One candidate as it is shown; rank counts from 1, highlights are slices of passage.text."""

    rank: int
    row: int
    passage: StoredPassage
    score: float
    score_kind: ScoreKind
    scores: Scores
    cut_tokens: int
    highlights: list[tuple[int, int]]
    explanation: Explanation | None


def results(
    snapshot: Snapshot, candidates: Candidates, page: slice, *, highlight: bool = False, explain: bool = False
) -> list[Result]:
    """Return the results on `page` of the ranking, in order."""
    rows = candidates.rows()[page]
    passages = snapshot.passages(rows)
    scores = _scores(snapshot, candidates, rows)
    ordering = [_score(each, candidates.mode) for each in scores]
    terms = frozenset(snapshot.analyzer.analyze(candidates.query)) if highlight else frozenset()
    cut_tokens = dict(zip(candidates.reranked.rows.tolist(), candidates.reranked.cut_tokens.tolist(), strict=True))
    return [
        Result(
            rank=page.start + i + 1,
            row=row,
            passage=passage,
            score=score,
            score_kind=kind,
            scores=each,
            cut_tokens=cut_tokens.get(row, 0),
            highlights=snapshot.analyzer.matches(passage.text, terms) if terms else [],
            explanation=_explain(candidates, row) if explain else None,
        )
        for i, (row, passage, each, (score, kind)) in enumerate(
            zip(rows.tolist(), passages, scores, ordering, strict=True)
        )
    ]


def facets(snapshot: Snapshot, candidates: Candidates, fields: Sequence[str], k: int) -> list[Facet]:
    """Return the k most frequent values of each field among the documents that match the query."""
    return snapshot.facets(fields, _matching(snapshot, candidates), k) if fields else []


def _matching(snapshot: Snapshot, candidates: Candidates) -> Mask:
    """Return the passages (n_passages,) that match: BM25's, however many, and those that the dense leg found.

    So every candidate counts, and where BM25 takes part no count depends on how deep it looked. Without a term in
    common every passage is more or less near a query, so the dense leg has to say how many it means.
    """
    matching = np.zeros(snapshot.n_passages, np.bool_)
    if candidates.bm25 is not None:
        matching |= snapshot.matching_bm25(candidates.query)
    if candidates.dense is not None:
        matching[candidates.dense.rows] = True
    return matching if candidates.filtered is None else matching & candidates.filtered.allowed


def _scores(snapshot: Snapshot, candidates: Candidates, rows: Rows) -> list[Scores]:
    """Return the exact scores of given rows; a leg's score does not need the leg to have found the row."""
    reranked = candidates.reranked
    logits = dict(zip(reranked.rows.tolist(), reranked.rerank_logits.tolist(), strict=True))
    relevances = dict(zip(reranked.rows.tolist(), sigmoid(reranked.relevance_logits).tolist(), strict=True))
    rrf = dict(zip(candidates.fused.rows.tolist(), candidates.fused.scores.tolist(), strict=True))
    bm25 = snapshot.bm25_scores(candidates.query, rows).tolist() if candidates.bm25 is not None else None
    vector = candidates.query_vector
    dense = snapshot.dense_scores(vector, rows).tolist() if vector is not None else None
    return [
        Scores(
            bm25=bm25[i] if bm25 is not None else None,
            dense=dense[i] if dense is not None else None,
            rrf=rrf[row],
            rerank_logit=logits.get(row),
            relevance=relevances.get(row),
        )
        for i, row in enumerate(rows.tolist())
    ]


def _score(scores: Scores, mode: Mode) -> tuple[float, ScoreKind]:
    """Return the score that ordered a candidate, and its kind."""
    if scores.relevance is not None:
        return scores.relevance, "relevance"
    kind: ScoreKind = "rrf" if mode == "hybrid" else mode
    score = {"rrf": scores.rrf, "bm25": scores.bm25, "dense": scores.dense}[kind]
    assert score is not None, f"a candidate of mode {mode} has no {kind} score"
    return score, kind


def _explain(candidates: Candidates, row: int) -> Explanation:
    bm25_rank, dense_rank = _rank(candidates.bm25, row), _rank(candidates.dense, row)
    fused_rank = _rank(candidates.fused, row)
    assert fused_rank is not None, "every candidate is fused"
    places = np.flatnonzero(candidates.reranked.rows == row)
    return Explanation(
        bm25_rank=bm25_rank,
        dense_rank=dense_rank,
        fused_rank=fused_rank,
        bm25_rrf=1 / (RRF_K + bm25_rank) if bm25_rank is not None else None,
        dense_rrf=1 / (RRF_K + dense_rank) if dense_rank is not None else None,
        relevance_logit=float(candidates.reranked.relevance_logits[places[0]]) if places.size else None,
    )


def _rank(hits: Hits | None, row: int) -> int | None:
    if hits is None:
        return None
    places = np.flatnonzero(hits.rows == row)
    return int(places[0]) + 1 if places.size else None
