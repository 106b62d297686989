"""Two small tokenizers, and models for builds without a neural network."""

from pathlib import Path

import pytest

from indexer.recipe import IndexModels
from models.tokenization import Tokenizer
from tests.indexer.hashed_words import HashedWordEncoder
from tests.indexer.small_tokenizers import save_byte_tokenizer, save_word_tokenizer


@pytest.fixture(scope="session")
def word_tokenizer_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of a BERT-like tokenizer: some words whole, others by letter, what it never saw as [UNK]."""
    path = tmp_path_factory.mktemp("word") / "tokenizer.json"
    save_word_tokenizer(path)
    return path


@pytest.fixture(scope="session")
def word_tokenizer(word_tokenizer_path: Path) -> Tokenizer:
    """Return that tokenizer."""
    return Tokenizer(word_tokenizer_path)


@pytest.fixture(scope="session")
def byte_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """Return a tokenizer with one token a byte, so that a character may have four tokens."""
    path = tmp_path_factory.mktemp("byte") / "tokenizer.json"
    save_byte_tokenizer(path)
    return Tokenizer(path)


@pytest.fixture(scope="session")
def index_models(word_tokenizer: Tokenizer) -> IndexModels:
    """Return models whose vectors are hashed bags of words."""
    return IndexModels(HashedWordEncoder(word_tokenizer), word_tokenizer, "c" * 64, encoder_name="hashed words")
