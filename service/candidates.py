"""From ranked rows to results: what each candidate scored, where it stood, and which of its words matched."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from indexer.bm25 import TermWeight
from indexer.facets import Facet
from indexer.filters import Filtered
from indexer.ranking import Hits, Mask, Rows
from indexer.snapshot import Snapshot
from indexer.store import StoredPassage
from models.calibration import Calibration, RelevanceParts, sigmoid
from service.metrics import Metrics
from service.queries import Mode, SearchQuery

ScoreKind: TypeAlias = Literal["relevance", "rrf", "bm25", "dense"]

RRF_K = 60


@dataclass(frozen=True, slots=True, eq=False)
class Reranked:
    """What the cross-encoder made of the best rows: arrays (n,), by relevance logit descending, then row.

    not_finite are the rows that it was given and has no finite score for; n_tokens_left_out counts what excerpts left
    out of all of them.
    """

    rows: Rows
    bm25_shares: NDArray[np.float64]
    rerank_logits: NDArray[np.float64]
    relevance_logits: NDArray[np.float64]
    cut_tokens: NDArray[np.int64]
    not_finite: Rows
    n_tokens_left_out: int


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Everything that was found for one query. A leg that the mode leaves out is None, and so is a filter not given.

    fused holds every candidate; the reranked ones come first in the ranking, the others keep their fused order.
    """

    query: str
    mode: Mode
    calibration: Calibration
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


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """What pages are cut from: rows (n,), best first, and rank, that of the first of them, from 1.

    n_document_candidates (n,) is how many candidates the document of each row has; None where all of them are listed.
    """

    rows: Rows
    n_document_candidates: NDArray[np.int64] | None
    n_below_min_score: int
    first_rank: int = 1

    def __getitem__(self, page: slice) -> "Ranking":
        """Return a page; its bounds are not negative."""
        counts = self.n_document_candidates
        return Ranking(
            self.rows[page],
            None if counts is None else counts[page],
            self.n_below_min_score,
            self.first_rank + page.start,
        )


@dataclass(frozen=True, slots=True)
class Scores:
    """Every score that a candidate earned; None where the mode or the depth left it out."""

    bm25: float | None
    dense: float | None
    rrf: float | None
    bm25_share: float | None
    rerank_logit: float | None
    relevance: float | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Where a candidate stood, ranks from 1, and why; None where a leg did not find it within its depth.

    bm25_terms sum up to the BM25 score, the parts to the relevance logit, both but for rounding.
    """

    bm25_rank: int | None
    dense_rank: int | None
    fused_rank: int
    bm25_rrf: float | None
    dense_rrf: float | None
    bm25_terms: list[TermWeight]
    relevance_logit: float | None
    relevance_parts: RelevanceParts | None


@dataclass(frozen=True, slots=True)
class Result:
    """One candidate as it is shown; rank counts from 1, highlights are slices of passage.text.

    n_document_candidates is how many candidates its document has, this one counted; None where all of them are listed.
    """

    rank: int
    row: int
    passage: StoredPassage
    score: float
    score_kind: ScoreKind
    scores: Scores
    cut_tokens: int
    unscored: Literal["no_finite_score"] | None
    highlights: list[tuple[int, int]]
    explanation: Explanation | None
    n_document_candidates: int | None


def best_first(
    relevance_logits: NDArray[np.float64], ties: Rows, metrics: Metrics
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the positions of finite logits, greatest first and of equals the lesser tie, and those of the others.

    The others are counted; the model that gave them is not sound.
    """
    is_finite = np.isfinite(relevance_logits)
    finite, others = np.flatnonzero(is_finite), np.flatnonzero(~is_finite)
    metrics.not_finite_scores.inc(others.size)
    return finite[np.lexsort((ties[finite], -relevance_logits[finite]))], others


def rank(snapshot: Snapshot, candidates: Candidates, query: SearchQuery) -> Ranking:
    """Return what the pages of a query are cut from.

    A candidate below the query's min_score is in none of them, nor is one that lacks the score which orders. Grouped by
    document, the best candidate stands for all of its document.
    """
    rows = candidates.rows()
    if query.min_score is not None:
        rows = _at_least(candidates, query.min_score, wants_relevance=query.rerank)
    n_below = int(candidates.fused.rows.size - rows.size)
    if not query.group_by_document:
        return Ranking(rows, None, n_below)
    _, firsts, counts = np.unique(snapshot.documents_of(rows), return_index=True, return_counts=True)
    order = np.argsort(firsts)
    return Ranking(rows[firsts[order]], counts[order], n_below)


def _at_least(candidates: Candidates, min_score: float, *, wants_relevance: bool) -> Rows:
    if wants_relevance:
        return candidates.reranked.rows[sigmoid(candidates.reranked.relevance_logits) >= min_score]
    hits = {"hybrid": candidates.fused, "bm25": candidates.bm25, "dense": candidates.dense}[candidates.mode]
    assert hits is not None, f"a search of mode {candidates.mode} has that leg"
    return hits.rows[hits.scores >= min_score]


def results(snapshot: Snapshot, candidates: Candidates, page: Ranking, query: SearchQuery) -> list[Result]:
    """Return the results of a page of the query's ranking, in order."""
    rows, counts = page.rows, page.n_document_candidates
    passages = snapshot.passages(rows)
    scores = _scores(snapshot, candidates, rows)
    ordering = [_score(each, candidates.mode) for each in scores]
    terms = frozenset(snapshot.analyzer.analyze(candidates.query)) if query.highlight else frozenset()
    cut_tokens = dict(zip(candidates.reranked.rows.tolist(), candidates.reranked.cut_tokens.tolist(), strict=True))
    return [
        Result(
            rank=page.first_rank + i,
            row=row,
            passage=passage,
            score=score,
            score_kind=kind,
            scores=each,
            cut_tokens=cut_tokens.get(row, 0),
            unscored="no_finite_score" if row in candidates.reranked.not_finite else None,
            highlights=snapshot.analyzer.matches(passage.text, terms) if terms else [],
            explanation=_explain(snapshot, candidates, row, each) if query.explain else None,
            n_document_candidates=None if counts is None else int(counts[i]),
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
    shares = dict(zip(reranked.rows.tolist(), reranked.bm25_shares.tolist(), strict=True))
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
            bm25_share=shares.get(row),
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


def _explain(snapshot: Snapshot, candidates: Candidates, row: int, scores: Scores) -> Explanation:
    bm25_rank, dense_rank = _rank(candidates.bm25, row), _rank(candidates.dense, row)
    fused_rank = _rank(candidates.fused, row)
    assert fused_rank is not None, "every candidate is fused"
    logit, parts = None, None
    if scores.rerank_logit is not None and scores.dense is not None and scores.bm25_share is not None:
        parts = candidates.calibration.parts(scores.rerank_logit, scores.dense, scores.bm25_share)
        [place] = np.flatnonzero(candidates.reranked.rows == row)
        logit = float(candidates.reranked.relevance_logits[place])
    return Explanation(
        bm25_rank=bm25_rank,
        dense_rank=dense_rank,
        fused_rank=fused_rank,
        bm25_rrf=1 / (RRF_K + bm25_rank) if bm25_rank is not None else None,
        dense_rrf=1 / (RRF_K + dense_rank) if dense_rank is not None else None,
        bm25_terms=snapshot.bm25_terms(candidates.query, row) if candidates.bm25 is not None else [],
        relevance_logit=logit,
        relevance_parts=parts,
    )


def _rank(hits: Hits | None, row: int) -> int | None:
    if hits is None:
        return None
    places = np.flatnonzero(hits.rows == row)
    return int(places[0]) + 1 if places.size else None
