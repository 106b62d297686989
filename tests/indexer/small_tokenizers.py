"""Two small tokenizers: of words and letters, and of bytes."""

from pathlib import Path

import tokenizers
from tokenizers import decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE, WordPiece

_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,!?#`>=-_()[]'\""
_WORDS = (
    "the",
    "of",
    "and",
    "fog",
    "over",
    "harbour",
    "warning",
    "lifted",
    "ferry",
    "times",
    "ticket",
    "prices",
    "drum",
    "kit",
    "skin",
)


def save_word_tokenizer(path: Path) -> None:
    """Write a BERT-like tokenizer: some words whole, others by letter, what it never saw as [UNK]."""
    entries = ["[UNK]", "[CLS]", "[SEP]", *_WORDS, *_LETTERS, *(f"##{letter}" for letter in _LETTERS)]
    tokenizer = tokenizers.Tokenizer(WordPiece({entry: i for i, entry in enumerate(entries)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.save(str(path))


def save_byte_tokenizer(path: Path) -> None:
    """Write a tokenizer with one token a byte, so that a character may have four tokens."""
    entries = ["<s>", "</s>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = tokenizers.Tokenizer(BPE({entry: i for i, entry in enumerate(entries)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(path))
