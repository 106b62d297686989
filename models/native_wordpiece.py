"""BERT's WordPiece in C++ (models/native/wordpiece.cpp): the ids that `tokenizers` gives, many times as fast."""

import ctypes
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.compiled import compiled

_LIBRARY = "models._wordpiece"
_MOST_CHARACTERS = 256  # of a piece

EncodeWords = Callable[[Sequence[str]], Sequence[Sequence[int]]]


class NativeWordPiece:
    """Encodes texts by the vocabulary of a tokenizer.json; thread-safe."""

    def __init__(self, library: ctypes.CDLL, settings: Mapping[str, Any], encode_words: EncodeWords) -> None:
        """Copy the vocabulary.

        Args:
            library: what was compiled.
            settings: a tokenizer.json that `is_taken`.
            encode_words: what gives the ids of each text that stands between whitespace and is not ASCII.

        Raises:
            MemoryError: there is none for it.
        """
        self._library = _declared(library)
        self._encode_words = encode_words
        model = settings["model"]
        pieces = [piece.encode() for piece in sorted(model["vocab"], key=model["vocab"].__getitem__)]
        ends = np.cumsum([len(piece) for piece in pieces], dtype=np.int64)
        self._handle = self._library.tercet_wordpiece_new(
            b"".join(pieces),
            ends.ctypes.data,
            len(pieces),
            model["continuing_subword_prefix"].encode(),
            settings["normalizer"]["lowercase"],
            model["vocab"][model["unk_token"]],
            model["max_input_chars_per_word"],
        )
        if not self._handle:
            raise MemoryError("there is no memory for a vocabulary")

    def __del__(self) -> None:
        """Give the vocabulary back."""
        if getattr(self, "_handle", None):
            self._library.tercet_wordpiece_delete(self._handle)

    def encode(self, texts: Sequence[str]) -> list[NDArray[np.int64]]:
        """Return the ids of each text, (n_tokens,) without special tokens."""
        parts = [text.encode() for text in texts]
        content = b"".join(parts)
        ends = np.cumsum([len(part) for part in parts], dtype=np.int64)
        ids, id_ends = np.empty(len(content), np.int64), np.empty(len(parts), np.int64)
        bounds = np.empty(len(content) + 1, np.int64)
        arrays = (array.ctypes.data for array in (ids, id_ends, bounds))
        n_words = self._library.tercet_wordpiece_encode(self._handle, content, ends.ctypes.data, len(parts), *arrays)
        if n_words < 0:
            raise MemoryError("there is no memory to tokenize texts")
        ids = ids[: id_ends[-1] if parts else 0]
        if n_words:
            words = [content[start:end].decode() for start, end in bounds[: 2 * n_words].reshape(-1, 2).tolist()]
            ids, id_ends = self._with_words(ids, id_ends, words)
        return np.split(ids, id_ends[:-1]) if parts else []

    def _with_words(
        self, ids: NDArray[np.int64], id_ends: NDArray[np.int64], words: Sequence[str]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return ids and ends with the words' ids where -1 stands, in order."""
        distinct = list(dict.fromkeys(words))
        known = dict(zip(distinct, self._encode_words(distinct), strict=True))
        n_ids = np.ones(ids.size, np.int64)
        n_ids[ids < 0] = [len(known[word]) for word in words]
        all_ids = np.repeat(ids, n_ids)
        all_ids[all_ids < 0] = np.concatenate([known[word] for word in words])
        return all_ids, np.append(0, np.cumsum(n_ids))[id_ends]


def is_taken(settings: Mapping[str, Any]) -> bool:
    """Return whether a tokenizer.json is BERT's: what the kernels compute."""
    normalizer, pre_tokenizer, model = (settings.get(part) or {} for part in ("normalizer", "pre_tokenizer", "model"))
    vocabulary, prefix = model.get("vocab"), model.get("continuing_subword_prefix")
    return (
        normalizer.get("type") == "BertNormalizer"
        and normalizer.get("clean_text") is True
        and isinstance(normalizer.get("lowercase"), bool)
        and pre_tokenizer.get("type") == "BertPreTokenizer"
        and model.get("type") == "WordPiece"
        and isinstance(prefix, str)
        and prefix.isascii()
        and "\0" not in prefix
        and isinstance(vocabulary, dict)
        and max(len(piece) for piece in vocabulary) <= _MOST_CHARACTERS
        and model.get("unk_token") in vocabulary
        and sorted(vocabulary.values()) == list(range(len(vocabulary)))
        and all(token["special"] for token in settings.get("added_tokens", []))
    )


def native_wordpiece(content: bytes, encode_words: EncodeWords) -> NativeWordPiece | None:
    """Return what encodes by a tokenizer.json, None where it is of another kind or nothing was compiled."""
    library = compiled(_LIBRARY)
    if library is None:
        return None
    settings = json.loads(content)
    return NativeWordPiece(library, settings, encode_words) if is_taken(settings) else None


def _declared(library: ctypes.CDLL) -> ctypes.CDLL:
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    library.tercet_wordpiece_new.restype = pointer
    library.tercet_wordpiece_new.argtypes = [
        ctypes.c_char_p,
        pointer,
        number,
        ctypes.c_char_p,
        ctypes.c_int32,
        ctypes.c_int32,
        number,
    ]
    library.tercet_wordpiece_delete.restype = None
    library.tercet_wordpiece_delete.argtypes = [pointer]
    library.tercet_wordpiece_encode.restype = number
    library.tercet_wordpiece_encode.argtypes = [pointer, ctypes.c_char_p, pointer, number, *[pointer] * 3]
    return library
