"""MaxScore leaves out nothing that can be among the best: its candidates give what adding up everything gives."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.maxscore import MaxScore, Postings
from indexer.ranking import Mask, best_rows

N = 60


def postings(term: tuple[frozenset[int], int, float]) -> Postings:
    """Return the postings of a term: who holds it, how often the query has it, and a seed of its weights."""
    rows, times, scale = np.array(sorted(term[0]), np.int32), term[1], term[2]
    weights = (scale * (1 + np.cos(rows * scale)) / 2 + 0.01).astype(np.float32)
    return Postings(rows, weights, times, times * (scale + 0.01))


TERMS = st.lists(
    st.tuples(st.frozensets(st.integers(0, N - 1), min_size=1), st.integers(1, 3), st.floats(0.05, 8)).map(postings),
    min_size=1,
    max_size=6,
)


def all_sums(terms: Sequence[Postings]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    sums = np.zeros(N)
    for term in terms:
        sums[term.rows] += term.times * term.weights.astype(np.float64)
    return sums.astype(np.float32).astype(np.float64)


@given(terms=TERMS, k=st.integers(1, N), allowed=st.none() | st.lists(st.booleans(), min_size=N, max_size=N))
def test_the_best_are_among_the_candidates(terms: list[Postings], k: int, allowed: list[bool] | None) -> None:
    mask: Mask | None = None if allowed is None else np.array(allowed)
    search = MaxScore(N)
    sums = all_sums(terms)
    matching = np.flatnonzero(sums if mask is None else sums * mask)
    expected = best_rows(matching, sums[matching], k)
    for _ in range(2):  # the second search finds the arrays as the first left them
        rows = search.candidates(terms, k, mask).astype(np.int64)
        assert np.unique(rows).size == rows.size
        found = best_rows(rows, sums[rows], k)
        assert found.rows.tolist() == expected.rows.tolist()


def test_a_common_term_adds_no_candidate_once_the_best_are_settled() -> None:
    rare = Postings(np.array([3, 7], np.int32), np.array([5, 4], np.float32), 1, 6.0)
    common = Postings(np.arange(N, dtype=np.int32), np.full(N, 0.5, np.float32), 1, 1.0)
    assert sorted(MaxScore(N).candidates([common, rare], 2, None).tolist()) == [3, 7]
    assert MaxScore(N).candidates([common, rare], 3, None).size == N


def test_what_a_filter_leaves_out_settles_nothing() -> None:
    rare = Postings(np.array([3, 7], np.int32), np.array([5, 4], np.float32), 1, 6.0)
    common = Postings(np.arange(N, dtype=np.int32), np.full(N, 0.5, np.float32), 1, 1.0)
    allowed = np.ones(N, np.bool_)
    allowed[3] = False
    assert MaxScore(N).candidates([common, rare], 2, allowed).size == N - 1


@pytest.mark.parametrize("times", [1, 2])
def test_a_repeated_term_counts_as_often(times: int) -> None:
    term = Postings(np.array([2], np.int32), np.array([1.5], np.float32), times, 2.0 * times)
    assert term.added().tolist() == term.added_to(np.array([2], np.int32)).tolist() == [1.5 * times]
    assert term.added_to(np.array([0, 9], np.int32)).tolist() == [0, 0]
