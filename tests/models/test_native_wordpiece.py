"""What was compiled tokenizes as `tokenizers` does, whatever the text."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import example, given, settings
from hypothesis import strategies as st

from models.compiled import compiled
from models.folder import BUNDLED, BUNDLED_DUAL_ENCODER
from models.native_wordpiece import native_wordpiece
from models.tokenization import Tokenizer

CONTENT = (BUNDLED / BUNDLED_DUAL_ENCODER / "tokenizer.json").read_bytes()
needs_compiled = pytest.mark.skipif(compiled("models._wordpiece") is None, reason="nothing was compiled")

WORDS = [
    "owls",
    "Owls",
    "hunt!?",
    "can't",
    "café",
    "naïve—but",
    "梟は",
    "e\u0301te\u0301",
    "Straße",
    "ΣΑΣ",
    "\x00",
    "a\x0bb",
    "\x7f",
]
SPACES = [" ", "\t", "\r\n", "\u00a0", "\u2003", "\u3000", "\x1c", "\x85", ""]


class Both:
    """The same tokenizer.json, read by `tokenizers` and by what was compiled."""

    def __init__(self, content: bytes) -> None:
        self._theirs = tokenizers.Tokenizer.from_buffer(content)
        self._theirs.no_truncation()
        self._theirs.no_padding()
        self._theirs.encode_special_tokens = True
        self._ours = native_wordpiece(content, self.theirs)

    def theirs(self, texts: Sequence[str]) -> list[list[int]]:
        return [each.ids for each in self._theirs.encode_batch(list(texts), add_special_tokens=False)]

    def ours(self, texts: list[str]) -> list[list[int]]:
        assert self._ours is not None
        return [ids.tolist() for ids in self._ours.encode(texts)]


def tokenizer_json(**changes: Any) -> bytes:
    """Return a small cased tokenizer.json with parts replaced."""
    pieces = ["[UNK]", "[CLS]", "[SEP]", "a", "A", "b", "##a", "##b", "##ab", "#", "##", "é", "-", "aba"]
    model = {
        "type": "WordPiece",
        "unk_token": "[UNK]",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 6,
    }
    parts = {
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": False,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "model": model | {"vocab": {piece: i for i, piece in enumerate(pieces)}},
        "added_tokens": [
            {
                "id": i,
                "content": pieces[i],
                "special": True,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
            }
            for i in range(3)
        ],
    }
    return json.dumps({"version": "1.0", **parts, **changes}).encode()


MODEL = json.loads(tokenizer_json())["model"]
BUNDLED_BOTH, CASED_BOTH = Both(CONTENT), Both(tokenizer_json())
made = st.lists(st.sampled_from([*WORDS, *SPACES]) | st.text(max_size=6), max_size=12).map("".join)


@needs_compiled
@given(st.lists(made, max_size=4))
@settings(deadline=None, max_examples=200)
@example([])
@example(["", "[SEP] [CLS]", "x" * 100, "x" * 101, "é" * 101, " lone"])
@example([chr(code) for code in range(128)] + [f"a{chr(code)}b" for code in range(128)])
def test_the_ids_are_those_of_tokenizers(texts: list[str]) -> None:
    assert BUNDLED_BOTH.ours(texts) == BUNDLED_BOTH.theirs(texts)


@needs_compiled
@given(st.lists(st.text("aAbB#é- z", max_size=12), max_size=4))
@settings(deadline=None, max_examples=200)
@example(["##", "##a", "abab", "abaab", "aaaaaaa", "aaaaaa", "A", "B", "é", "aé ab", "éa"])
def test_so_are_those_of_a_cased_vocabulary_with_few_pieces(texts: list[str]) -> None:
    assert CASED_BOTH.ours(texts) == CASED_BOTH.theirs(texts)


@needs_compiled
@pytest.mark.parametrize(
    "changes",
    [
        {"normalizer": None},
        {"normalizer": {"type": "Lowercase"}},
        {"pre_tokenizer": {"type": "Whitespace"}},
        {"model": MODEL | {"vocab": {"[UNK]": 0, "a": 2}}},
        {"model": MODEL | {"continuing_subword_prefix": "▁"}},
        {"model": MODEL | {"continuing_subword_prefix": "#\0"}},
        {"model": MODEL | {"vocab": {"[UNK]": 0, "a" * 257: 1}}},
        {"added_tokens": [json.loads(tokenizer_json())["added_tokens"][0] | {"content": "aba", "special": False}]},
    ],
    ids=[
        "no normalizer",
        "another normalizer",
        "another pre-tokenizer",
        "ids with gaps",
        "a prefix of another script",
        "a prefix with a NUL",
        "a piece that is too long",
        "a token that is searched for",
    ],
)
def test_other_tokenizers_are_left_to_tokenizers(changes: dict[str, Any]) -> None:
    assert native_wordpiece(tokenizer_json(), lambda words: []) is not None
    assert native_wordpiece(tokenizer_json(**changes), lambda words: []) is None


def test_without_what_is_compiled_the_ids_are_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    texts = ["Owls hunt.", "", "naïve owls", "梟"]
    usual = Tokenizer(BUNDLED / BUNDLED_DUAL_ENCODER / "tokenizer.json").encode_batch(texts)
    monkeypatch.setattr("models.native_wordpiece.compiled", lambda name: None)
    other = tmp_path / "tokenizer.json"
    other.write_bytes(CONTENT + b"\n")  # not the one that is open already
    for with_it, without in zip(usual, Tokenizer(other).encode_batch(texts), strict=True):
        np.testing.assert_array_equal(with_it.ids, without.ids)
        np.testing.assert_array_equal(with_it.offsets, without.offsets)
