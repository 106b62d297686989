"""Fixtures for all tests: tiny random models, made once a run with the code that makes the real ones."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import tokenizers
from hypothesis import settings
from tokenizers import models as tokenizer_models
from tokenizers import normalizers, pre_tokenizers

from models.folder import OUTPUTS, AnswerCalibration, Kind, ModelSettings, RelevanceCalibration

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# A deadline would be a timing threshold, and fails on a busy machine.
settings.register_profile("tercet", deadline=None)
settings.load_profile("tercet")

WORDS = (
    "a an and answer are bees boat capital city code csv dict document does exception file fog for from harbour "
    "how in is it key keeper lamp library lighthouse lima map missing mount not of on over paper peru porto "
    "raised read reader reads river row rows search sea ship storm the tide to tower town vault warning was water "
    "what when where which who wind"
).split()


@dataclass(frozen=True, slots=True)
class TinyModels:
    """Paths of three model folders that share a tokenizer: 2-layer random BERTs, 32 wide, fp32, 64 tokens at most."""

    dual_encoder: Path
    cross_encoder: Path
    reader: Path


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Kind], Path]:
    """Return a function that writes a random transformers checkpoint of a kind, with a tokenizer.json, once."""
    root = tmp_path_factory.mktemp("checkpoints")

    def checkpoint(kind: Kind) -> Path:
        path = root / kind
        if not path.exists():
            _random_model(kind).save_pretrained(path)
            _tokenizer().save(str(path / "tokenizer.json"))
        return path

    return checkpoint


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory: pytest.TempPathFactory, tiny_checkpoint: Callable[[Kind], Path]) -> TinyModels:
    """Return three exported tiny models."""
    from models.checkpoint import open_checkpoint
    from models.export import export

    root = tmp_path_factory.mktemp("models")
    kinds: tuple[Kind, ...] = ("dual-encoder", "cross-encoder", "reader")
    for kind in kinds:
        settings = ModelSettings(
            name=f"tiny-{kind}",
            kind=kind,
            architecture="BERT, 2 layers, 32 wide, random",
            max_tokens=64,
            max_query_tokens=24,
            overlap_tokens=8,
            pooling="mean" if kind == "dual-encoder" else None,
            outputs=OUTPUTS[kind],
            relevance=RelevanceCalibration(logit_weight=1.0, origin="none") if kind == "cross-encoder" else None,
            answer=AnswerCalibration(threshold=0.0, margin_weight=1.0, margin_bias=0.0, origin="none")
            if kind == "reader"
            else None,
            origin="random",
            licence="Apache-2.0",
        )
        export(open_checkpoint(tiny_checkpoint(kind), kind), root / kind, settings, quantizes=False)
    return TinyModels(*(root / kind for kind in kinds))


def _random_model(kind: Kind) -> "PreTrainedModel":
    import torch
    from transformers import BertConfig, BertForQuestionAnswering, BertForSequenceClassification, BertModel

    torch.manual_seed(7)
    config = BertConfig(
        vocab_size=_tokenizer().get_vocab_size(),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=128,
        hidden_dropout_prob=0.0,
    )
    config.num_labels = 1 if kind == "cross-encoder" else 2
    models: dict[Kind, Callable[[BertConfig], PreTrainedModel]] = {
        "dual-encoder": BertModel,
        "cross-encoder": BertForSequenceClassification,
        "reader": BertForQuestionAnswering,
    }
    return models[kind](config)


def _tokenizer() -> tokenizers.Tokenizer:
    """Return a WordPiece tokenizer that knows WORDS and every letter, digit and some marks as pieces."""
    characters = [chr(code) for code in range(33, 127) if not "A" <= chr(code) <= "Z"]
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS, *characters, *(f"##{character}" for character in characters)]
    vocabulary = {piece: index for index, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = tokenizers.Tokenizer(tokenizer_models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer
