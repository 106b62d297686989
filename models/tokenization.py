"""Turn text into token ids with character offsets, and query-passage pairs into model inputs.

The pair layout is BERT's (Devlin et al. 2019, section 3): `[CLS] query [SEP] passage [SEP]`, token types 0
through the first `[SEP]` and 1 after it; tokenizers of RoBERTa's family put two separators in the middle. Text is
tokenized once, without special tokens; pairs and windows are then assembled from ids, so that what is cut is known
exactly and is never part of the query by accident.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
import tokenizers
from numpy.typing import NDArray

from models.errors import ModelFolderError
from models.native_wordpiece import NativeWordPiece, native_wordpiece

SPECIAL_TOKENS = 4  # of a pair at most

TokenIds: TypeAlias = NDArray[np.int64]
Offsets: TypeAlias = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class TokenizedText:
    """One text's tokens without special tokens: ids (n_tokens,)."""

    ids: TokenIds
    _find_offsets: Callable[[], Offsets]

    @cached_property
    def offsets(self) -> Offsets:
        """Where each token stands, (n_tokens, 2) in code points; found when asked for."""
        return self._find_offsets()


@dataclass(frozen=True, slots=True, eq=False)
class ModelInput:
    """One unpadded model input: ids and token types of shape (n_tokens,), and what did not fit.

    query_cut and passage_cut count the tokens that were left out.
    """

    ids: TokenIds
    token_types: TokenIds
    query_cut: int = 0
    passage_cut: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """One reader input: tokens [passage_start, passage_end) of the passage stand at input_start in the input."""

    input: ModelInput
    input_start: int
    passage_start: int
    passage_end: int


@dataclass(frozen=True, slots=True)
class Lengths:
    """How many tokens an input has at most, special ones included, and its query, and what two windows share."""

    max_tokens: int
    max_query_tokens: int
    overlap_tokens: int = 0

    def cut_to(self, max_tokens: int) -> "Lengths":
        """Return the same for inputs of max_tokens: a query has a third of one at most, an overlap half of the rest."""
        query = min(self.max_query_tokens, max_tokens // 3)
        overlap = min(self.overlap_tokens, (max_tokens - query - SPECIAL_TOKENS) // 2)
        return Lengths(max_tokens, query, overlap)


class Tokenizer:
    """A `tokenizer.json` with truncation and padding switched off."""

    def __init__(self, path: Path) -> None:
        """Open the file.

        Raises:
            ModelFolderError: it is no tokenizer, or lacks the special tokens that an input needs.
        """
        content = path.read_bytes()
        try:
            self._tokenizer, self._native = _opened(content)
            self.cls_id, self.sep_id = (self._special_id(*names) for names in (("[CLS]", "<s>"), ("[SEP]", "</s>")))
            self._n_middle = self._separators_between()
        except Exception as error:  # tokenizers raises nothing more precise
            raise ModelFolderError(f"{path} is no tokenizer that can be used: {error}") from error
        self.vocabulary_size = self._tokenizer.get_vocab_size()
        unknown_id = self._id_of("[UNK]", "<unk>")
        self.unknown_id = -1 if unknown_id is None else unknown_id

    def _special_id(self, *names: str) -> int:
        token_id = self._id_of(*names)
        if token_id is None:
            raise ValueError(f"it has none of the special tokens {', '.join(names)}")
        return token_id

    def _id_of(self, *names: str) -> int | None:
        """Return the id of the first of the names that is a token."""
        return next((i for i in map(self._tokenizer.token_to_id, names) if i is not None), None)

    def _separators_between(self) -> int:
        """Return how many special tokens the tokenizer itself puts between two texts, at least 1."""
        belongs_to = self._tokenizer.encode("a", "a").sequence_ids
        if not {0, 1} <= set(belongs_to):
            return 1
        return max(1, belongs_to.index(1) - (len(belongs_to) - 1 - belongs_to[::-1].index(0)) - 1)

    def encode(self, text: str) -> TokenizedText:
        """Tokenize one text without special tokens, its offsets at hand."""
        encoding = self._tokenizer.encode(_encodable(text), add_special_tokens=False)
        return TokenizedText(np.array(encoding.ids, np.int64), partial(_offsets, encoding))

    def encode_batch(self, texts: Sequence[str]) -> list[TokenizedText]:
        """Tokenize texts without special tokens, in order; a text is tokenized once more when its offsets are wanted.

        Lone surrogates, which UTF-8 cannot carry, are read as U+FFFD; offsets are unchanged by it.
        """
        encodable = [_encodable(text) for text in texts]
        if self._native is not None:
            encoded = self._native.encode(encodable)
        else:
            encoded = [np.array(ids, np.int64) for ids in _encode_words(self._tokenizer, encodable)]
        return [
            TokenizedText(ids, partial(self._offsets_of, text)) for ids, text in zip(encoded, encodable, strict=True)
        ]

    def _offsets_of(self, text: str) -> Offsets:
        return self.encode(text).offsets

    def decode(self, ids: Sequence[int]) -> str:
        """Return ids as text, special tokens kept: what a model really receives."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=False))

    def single(self, text_ids: TokenIds, *, max_tokens: int) -> ModelInput:
        """Return `[CLS] text [SEP]`, the text cut at its end to fit max_tokens in all."""
        kept = text_ids[: max_tokens - 2]
        ids = np.concatenate(([self.cls_id], kept, [self.sep_id])).astype(np.int64)
        return ModelInput(ids, np.zeros_like(ids), passage_cut=text_ids.size - kept.size)

    def passage_room(self, n_query_tokens: int, *, max_tokens: int) -> int:
        """Return how many tokens of a passage fit beside so many of a query in an input of max_tokens."""
        return max_tokens - n_query_tokens - self._n_middle - 2

    def pair(self, query_ids: TokenIds, passage_ids: TokenIds, *, max_tokens: int, max_query_tokens: int) -> ModelInput:
        """Return `[CLS] query [SEP] passage [SEP]` of at most max_tokens tokens.

        The query keeps its first max_query_tokens tokens; the passage gets all the room that is left.
        """
        query = query_ids[:max_query_tokens]
        start = 1 + query.size + self._n_middle
        passage = passage_ids[: self.passage_room(query.size, max_tokens=max_tokens)]
        middle = [self.sep_id] * self._n_middle
        ids = np.concatenate(([self.cls_id], query, middle, passage, [self.sep_id])).astype(np.int64)
        token_types = np.zeros_like(ids)
        token_types[start:] = 1
        return ModelInput(ids, token_types, query_ids.size - query.size, passage_ids.size - passage.size)

    def windows(
        self,
        query_ids: TokenIds,
        passage_ids: TokenIds,
        *,
        max_window_tokens: int,
        max_query_tokens: int,
        overlap_tokens: int,
    ) -> list[Window]:
        """Return the pair inputs that together hold every token of the passage, in passage order.

        Neighbouring windows share overlap_tokens passage tokens. An empty passage gives one empty window.

        Raises:
            ValueError: the overlap leaves no room for the window to advance.
        """
        query = query_ids[:max_query_tokens]
        start = 1 + query.size + self._n_middle
        room = self.passage_room(query.size, max_tokens=max_window_tokens)
        if not 0 <= overlap_tokens < room:
            raise ValueError(
                f"an overlap of {overlap_tokens} tokens must lie in [0, {room}), the window's passage room"
            )
        windows = []
        for first in window_starts(passage_ids.size, room, overlap_tokens):
            end = min(first + room, passage_ids.size)
            pair = self.pair(
                query_ids, passage_ids[first:end], max_tokens=max_window_tokens, max_query_tokens=max_query_tokens
            )
            windows.append(Window(pair, start, first, end))
        return windows


def window_starts(n_tokens: int, room: int, overlap: int) -> list[int]:
    """Return the first token of each window of room tokens, so that no token is left out.

    Worked example: 10 tokens, room 4, overlap 1: starts 0, 3, 6 hold [0, 4), [3, 7), [6, 10).
    """
    starts = [0]
    while starts[-1] + room < n_tokens:
        starts.append(starts[-1] + room - overlap)
    return starts


@lru_cache(maxsize=4)
def _opened(content: bytes) -> tuple[tokenizers.Tokenizer, NativeWordPiece | None]:
    """Return what reads a tokenizer.json, and what does so faster where there is such; models share one of the same."""
    tokenizer = tokenizers.Tokenizer.from_buffer(content)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True  # "[SEP]" in a text is five characters, and ends no query
    return tokenizer, native_wordpiece(content, partial(_encode_words, tokenizer))


def _encode_words(tokenizer: tokenizers.Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    return [encoding.ids for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]


def _offsets(encoding: tokenizers.Encoding) -> Offsets:
    return np.array(encoding.offsets, np.int32).reshape(-1, 2)


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return "".join("\ufffd" if "\ud800" <= character <= "\udfff" else character for character in text)
    return text
