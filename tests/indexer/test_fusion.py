from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.fusion import reciprocal_rank_fusion
from indexer.ranking import Rows

_rankings = st.lists(st.lists(st.integers(0, 20), unique=True, max_size=12), max_size=4)


def _rows(*rows: int) -> Rows:
    return np.array(rows, np.int64)


def test_a_hand_worked_example_gives_the_sums_of_reciprocal_ranks() -> None:
    hits = reciprocal_rank_fusion([_rows(7, 3), _rows(3)], rrf_k=60)
    assert hits.rows.tolist() == [3, 7]
    assert hits.scores.tolist() == [1 / 61 + 1 / 62, 1 / 61]


def test_the_best_of_either_leg_tie_and_stand_in_order_of_row() -> None:
    """d1, d2, d3 are rows 1, 2, 3: the lexical leg has d2 only, the dense one d1 then d3."""
    hits = reciprocal_rank_fusion([_rows(2), _rows(1, 3)])
    assert hits.rows.tolist() == [1, 2, 3]
    assert hits.scores.tolist() == [1 / 61, 1 / 61, 1 / 62]


@pytest.mark.parametrize("rankings", [[], [_rows()], [_rows(), _rows()]])
def test_legs_without_hits_give_no_hits(rankings: list[Rows]) -> None:
    hits = reciprocal_rank_fusion(rankings)
    assert hits.rows.size == hits.scores.size == 0


def test_a_leg_without_hits_changes_nothing() -> None:
    alone, beside = reciprocal_rank_fusion([_rows(4, 2)]), reciprocal_rank_fusion([_rows(), _rows(4, 2)])
    assert alone.rows.tolist() == beside.rows.tolist() == [4, 2]
    assert alone.scores.tolist() == beside.scores.tolist()


@given(_rankings, st.integers(0, 100))
def test_fusion_equals_a_plain_sum_sorted_by_score_then_row(rankings: list[list[int]], rrf_k: int) -> None:
    expected: dict[int, float] = {}
    for ranking in rankings:
        for rank, row in enumerate(ranking, 1):
            expected[row] = expected.get(row, 0.0) + 1 / (rrf_k + rank)
    hits = reciprocal_rank_fusion([_rows(*ranking) for ranking in rankings], rrf_k=rrf_k)
    assert sorted(hits.rows.tolist()) == sorted(expected)
    assert hits.scores == pytest.approx([expected[row] for row in hits.rows.tolist()], rel=1e-12)
    assert np.all(np.diff(hits.scores) <= 0)
    ties = np.flatnonzero(np.diff(hits.scores) == 0)
    assert np.all(hits.rows[ties] < hits.rows[ties + 1])


@given(_rankings, st.randoms(use_true_random=False))
def test_the_order_of_the_legs_changes_not_one_bit(rankings: list[list[int]], random: Random) -> None:
    shuffled = list(rankings)
    random.shuffle(shuffled)
    one, other = (reciprocal_rank_fusion([_rows(*ranking) for ranking in legs]) for legs in (rankings, shuffled))
    assert one.rows.tolist() == other.rows.tolist()
    assert one.scores.tolist() == other.scores.tolist()
