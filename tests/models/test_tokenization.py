"""Pairs, token types, cuts and windows; tests/fuzz has what holds for all of them."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tokenizers

from models.folder import BUNDLED, BUNDLED_DUAL_ENCODER, Kind
from models.tokenization import Tokenizer, window_starts

TOKENIZER = Tokenizer(BUNDLED / BUNDLED_DUAL_ENCODER / "tokenizer.json")


def test_pair_equals_the_one_transformers_builds(tiny_checkpoint: Callable[[Kind], Path]) -> None:
    from transformers import BertTokenizer

    path = tiny_checkpoint("reader") / "tokenizer.json"
    vocabulary = json.loads(path.read_text())["model"]["vocab"]
    theirs = BertTokenizer(vocab=vocabulary)("what do owls eat", "Owls mainly hunt voles.")
    tokenizer = Tokenizer(path)
    query, passage = tokenizer.encode_batch(["what do owls eat", "Owls mainly hunt voles."])
    pair = tokenizer.pair(query.ids, passage.ids, max_tokens=100, max_query_tokens=50)
    assert pair.ids.tolist() == theirs["input_ids"]
    assert pair.token_types.tolist() == theirs["token_type_ids"]


def test_a_pair_of_robertas_family_has_two_separators_in_the_middle(tmp_path: Path) -> None:
    vocabulary = {"<s>": 0, "</s>": 1, "<unk>": 2, "what": 3, "owls": 4, "hunt": 5}
    theirs = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<unk>"))
    theirs.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    theirs.post_processor = tokenizers.processors.RobertaProcessing(("</s>", 1), ("<s>", 0))
    theirs.save(str(tmp_path / "tokenizer.json"))
    ours = Tokenizer(tmp_path / "tokenizer.json")
    query, passage = ours.encode("what").ids, ours.encode("owls hunt owls").ids
    pair = ours.pair(query, passage, max_tokens=100, max_query_tokens=50)
    assert pair.ids.tolist() == theirs.encode("what", "owls hunt owls").ids == [0, 3, 1, 1, 4, 5, 4, 1]
    assert ours.pair(query, passage, max_tokens=6, max_query_tokens=50).ids.size == 6
    windows = ours.windows(query, passage, max_window_tokens=7, max_query_tokens=5, overlap_tokens=1)
    assert [window.input.ids[window.input_start :].tolist() for window in windows] == [[4, 5, 1], [5, 4, 1]]


def test_token_types_are_zero_through_the_first_separator() -> None:
    query, passage = TOKENIZER.encode_batch(["a b", "c d e"])
    pair = TOKENIZER.pair(query.ids, passage.ids, max_tokens=20, max_query_tokens=10)
    assert pair.token_types.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]


def test_only_the_passage_gives_way_until_the_query_passes_its_own_budget() -> None:
    query, passage = np.arange(10), np.arange(100, 200)
    pair = TOKENIZER.pair(query, passage, max_tokens=32, max_query_tokens=12)
    assert (pair.ids.size, pair.query_cut, pair.passage_cut) == (32, 0, 81)
    short = TOKENIZER.pair(query, passage, max_tokens=32, max_query_tokens=4)
    assert (short.query_cut, short.passage_cut) == (6, 75)
    assert TOKENIZER.single(passage, max_tokens=32).passage_cut == 70


def test_window_starts_worked_example() -> None:
    assert window_starts(10, 4, 1) == [0, 3, 6]
    assert window_starts(0, 4, 1) == [0]


def test_an_overlap_that_cannot_advance_is_refused() -> None:
    ids = np.arange(100)
    with pytest.raises(ValueError, match="overlap of 30 tokens"):
        TOKENIZER.windows(ids[:5], ids, max_window_tokens=32, max_query_tokens=8, overlap_tokens=30)


def test_offsets_count_code_points_past_emoji() -> None:
    text = "🚀🚀 The probe left from Kourou 👩‍🚀 on Tuesday."
    spans = {text[start:end]: (int(start), int(end)) for start, end in TOKENIZER.encode(text).offsets}
    assert spans["Tuesday"] == (37, 44)


def test_a_text_that_names_a_special_token_does_not_hold_one() -> None:
    ids = TOKENIZER.encode("a [SEP] b [CLS]").ids
    assert not {TOKENIZER.cls_id, TOKENIZER.sep_id} & set(ids.tolist())


def test_lone_surrogates_are_read_and_leave_offsets_alone() -> None:
    encoded = TOKENIZER.encode("a \ud800 b")
    assert encoded.offsets[-1].tolist() == [4, 5]
