"""What is read of a passage when not all of it is."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from models.excerpts import Excerpts, TokenRarity

COMMON, RARE, OTHER = 1, 2, 3
SAMPLE = TokenRarity([np.array([COMMON] * 90 + [RARE] + [OTHER] * 9)])


def excerpt(passage: list[int], query: list[int], n_tokens: int = 3) -> list[int]:
    [found] = Excerpts(SAMPLE, n_tokens).of(np.array(query, np.int64), [np.array(passage, np.int64)])
    return [int(each) for each in found]


def test_a_weight_is_the_information_of_a_token() -> None:
    expected = [-np.log(share) * 1000 for share in (0.9, 0.01, 0.09, 0.005, 0.005)]
    assert SAMPLE.weights(np.array([COMMON, RARE, OTHER, 0, 999])).tolist() == np.rint(expected).tolist()


def test_a_sample_may_be_empty() -> None:
    assert TokenRarity([]).weights(np.array([5])).tolist() == [693]


def test_the_rare_token_decides() -> None:
    assert excerpt([COMMON, COMMON, COMMON, 7, 7, 7, 7, RARE, 8, 8], [COMMON, RARE]) == [7, RARE, 8]


def test_what_stands_together_decides() -> None:
    assert excerpt([OTHER, 7, 7, 7, 7, OTHER, RARE, 8, 8, 8], [OTHER, RARE]) == [7, OTHER, RARE]


def test_of_equal_excerpts_the_middle_one_is_read() -> None:
    assert excerpt([1, 2, 9, 4, 5, 6, 7], [9]) == [2, 9, 4]
    assert excerpt([9, 4, 5, 6, 7, 8, 9], [9]) == [9, 4, 5]  # that at the end is no neighbour of the first


def test_where_nothing_is_shared_the_passage_begins() -> None:
    assert excerpt([4, 5, 6, 7, 8], [9], n_tokens=2) == [4, 5]
    assert excerpt([4, 5, 6, 7], []) == [4, 5, 6]


@pytest.mark.parametrize("query", [[], [9]])
def test_a_short_passage_is_read_whole(query: list[int]) -> None:
    assert excerpt([4, 5, 6], query) == [4, 5, 6]
    assert excerpt([], query) == []


tokens = arrays.arrays(np.int64, st.integers(0, 40), elements=st.integers(0, 12))


@given(passage=tokens, query=tokens, n_tokens=st.integers(1, 12), sample=tokens)
def test_no_excerpt_holds_more(
    passage: NDArray[np.int64], query: NDArray[np.int64], n_tokens: int, sample: NDArray[np.int64]
) -> None:
    rarity = TokenRarity([sample])

    def worth(part: NDArray[np.int64]) -> int:
        return int(rarity.weights(part[np.isin(part, query)]).sum())

    [found] = Excerpts(rarity, n_tokens).of(query, [passage])
    slices = [passage[i : i + n_tokens] for i in range(max(1, passage.size - n_tokens + 1))]
    assert any(np.array_equal(found, each) for each in slices)
    if query.size:
        assert worth(found) == max(worth(each) for each in slices)
