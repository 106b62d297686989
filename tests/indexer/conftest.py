"""Two small tokenizers, and models for builds without a neural network."""

from pathlib import Path

import pytest
import tokenizers
from tokenizers import decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE, WordPiece

from indexer.recipe import IndexModels
from models.tokenization import Tokenizer
from tests.indexer.hashed_words import HashedWordEncoder

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


@pytest.fixture(scope="session")
def word_tokenizer_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of a BERT-like tokenizer: some words whole, others by letter, what it never saw as [UNK]."""
    entries = ["[UNK]", "[CLS]", "[SEP]", *_WORDS, *_LETTERS, *(f"##{letter}" for letter in _LETTERS)]
    tokenizer = tokenizers.Tokenizer(WordPiece({entry: i for i, entry in enumerate(entries)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    path = tmp_path_factory.mktemp("word") / "tokenizer.json"
    tokenizer.save(str(path))
    return path


@pytest.fixture(scope="session")
def word_tokenizer(word_tokenizer_path: Path) -> Tokenizer:
    """Return that tokenizer."""
    return Tokenizer(word_tokenizer_path)


@pytest.fixture(scope="session")
def byte_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """Return a tokenizer with one token a byte, so that a character may have four tokens."""
    entries = ["<s>", "</s>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = tokenizers.Tokenizer(BPE({entry: i for i, entry in enumerate(entries)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    path = tmp_path_factory.mktemp("byte") / "tokenizer.json"
    tokenizer.save(str(path))
    return Tokenizer(path)


@pytest.fixture(scope="session")
def index_models(word_tokenizer: Tokenizer) -> IndexModels:
    """Return models whose vectors are hashed bags of words."""
    return IndexModels(HashedWordEncoder(word_tokenizer), word_tokenizer, "c" * 64, encoder_name="hashed words")
