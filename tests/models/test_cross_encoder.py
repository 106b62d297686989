"""A query over passages as text: windows, what was cut, and which window speaks for its passage."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.calibration import Calibration
from models.cross_encoder import CrossEncoder, PairTask
from models.excerpts import TokenRarity
from models.folder import RelevanceCalibration, open_model_folder
from models.session import Runtime
from tests.conftest import TinyModels

QUERY = "who keeps bees"
LONG = "the keeper of the lighthouse was ingrid " * 30


@pytest.fixture(scope="module")
def cross_encoder(tiny_models: TinyModels) -> CrossEncoder:
    return CrossEncoder(open_model_folder(str(tiny_models.cross_encoder), "cross-encoder"), Runtime(1))


def test_one_window_is_the_input_that_search_uses(cross_encoder: CrossEncoder) -> None:
    passages = ["bees", LONG, "a river"]
    task = cross_encoder.prepare(QUERY, passages)
    expected = cross_encoder.inputs(QUERY, [text.ids for text in cross_encoder.tokenizer.encode_batch(passages)])
    assert [item.ids.tolist() for item in task.inputs] == [item.ids.tolist() for item in expected]
    assert [item.token_types.tolist() for item in task.inputs] == [item.token_types.tolist() for item in expected]
    assert task.cut_tokens.tolist() == [item.passage_cut for item in expected]
    assert task.owners.tolist() == [0, 1, 2]


@pytest.mark.parametrize("query", [QUERY, "who " * 100])
def test_all_windows_together_hold_the_whole_passage(cross_encoder: CrossEncoder, query: str) -> None:
    task = cross_encoder.prepare(query, ["bees", LONG], max_windows=None)
    own = [window for window, owner in zip(task.windows, task.owners, strict=True) if owner == 1]
    held = {place for window in own for place in range(window.passage_start, window.passage_end)}
    assert held == set(range(task.tokens[1].ids.size))
    assert task.cut_tokens.tolist() == [0, 0]
    assert all(item.ids.size <= 64 for item in task.inputs)


def test_windows_and_tokens_can_be_limited(cross_encoder: CrossEncoder) -> None:
    n_tokens = cross_encoder.tokenizer.encode(LONG).ids.size
    two = cross_encoder.prepare(QUERY, [LONG], max_windows=2)
    assert len(two.windows) == 2
    assert two.cut_tokens.tolist() == [n_tokens - two.windows[1].passage_end]
    five = cross_encoder.prepare(QUERY, [LONG, "bees"], max_windows=None, max_passage_tokens=5)
    assert [window.passage_end for window in five.windows] == [5, five.tokens[1].ids.size]
    assert five.cut_tokens.tolist() == [n_tokens - 5, 0]


@pytest.mark.parametrize("blank", ["", "   ", "\n\t", "\u3000", "\u200b", "\x00"])
def test_a_blank_passage_has_no_window(cross_encoder: CrossEncoder, blank: str) -> None:
    task = cross_encoder.prepare(QUERY, [blank, "bees", blank])
    assert task.owners.tolist() == [1]
    assert task.best_windows(np.zeros(1, np.float32)).tolist() == [-1, 0, -1]


def test_no_passages_have_no_windows(cross_encoder: CrossEncoder) -> None:
    task = cross_encoder.prepare("who " * 30, [])
    assert (task.windows, task.query_cut, task.best_windows(np.zeros(0, np.float32)).size) == ((), 6, 0)


def task_of(owners: list[int], n_passages: int) -> PairTask:
    empty = np.zeros(0, np.int64)
    return PairTask((object(),) * n_passages, (), np.array(owners, np.int64), 0, empty)  # type: ignore[arg-type]  # only counted


def test_the_best_window_worked_example() -> None:
    """Passage 0 has logits 1, 3, 3: the first 3, at 1. Passage 1 has none that is finite. Passage 2 has NaN and 5."""
    logits = np.array([1, 3, 3, np.nan, -np.inf, np.nan, 5], np.float32)
    assert task_of([0, 0, 0, 1, 1, 2, 2], 4).best_windows(logits).tolist() == [1, -1, 6, -1]


@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from([-2.0, 0.0, 0.5, 3.0, float("nan")])), max_size=12))
def test_the_best_window_equals_brute_force(windows: list[tuple[int, float]]) -> None:
    windows.sort(key=lambda window: window[0])
    expected = []
    for passage in range(5):
        own = [(-logit, i) for i, (owner, logit) in enumerate(windows) if owner == passage and logit == logit]
        expected.append(min(own)[1] if own else -1)
    logits = np.array([logit for _, logit in windows], np.float32)
    assert task_of([owner for owner, _ in windows], 5).best_windows(logits).tolist() == expected


def test_a_pair_is_calibrated_by_scale_and_bias_of_its_logit(cross_encoder: CrossEncoder) -> None:
    logits = np.array([4.0, 0.0], np.float32)
    assert cross_encoder.pair_calibration.pair_logits(logits).tolist() == [4.0, 0.0]
    learned = Calibration.of(RelevanceCalibration(logit_weight=0.5, bias=-1.0, origin="made"))
    assert learned.pair_logits(logits).tolist() == [1.0, -1.0]


def test_an_excerpt_fits_beside_the_query(cross_encoder: CrossEncoder) -> None:
    """Else what stands at its end would be cut from it, though that may be what it was taken for."""
    [long] = cross_encoder.tokenizer.encode_batch([LONG + "bees"])
    sample = TokenRarity([long.ids])
    [excerpt] = cross_encoder.excerpts("bees", [long.ids], sample, n_tokens=512)
    [item] = cross_encoder.inputs("bees", [excerpt])
    assert item.ids.size == cross_encoder.lengths.max_tokens
    assert item.passage_cut == 0
    assert item.ids[-2] == cross_encoder.tokenizer.encode("bees").ids[-1]


def test_signs_that_the_vocabulary_lacks_have_no_say(cross_encoder: CrossEncoder) -> None:
    encode = cross_encoder.tokenizer.encode
    passage = encode("\ua66e \ua66e \ua66e fog fog fog bees").ids
    assert (passage == cross_encoder.tokenizer.unknown_id).sum() == 3
    [excerpt] = cross_encoder.excerpts("bees \U0001f36f", [passage], TokenRarity([encode("bees fog").ids]), n_tokens=2)
    assert excerpt.tolist() == passage[-2:].tolist()
