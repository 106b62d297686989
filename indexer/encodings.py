"""Bytes to text: the encoding of a file, from its byte order mark, its declaration, or its bytes.

What is valid UTF-8 is UTF-8. For the rest charset-normalizer guesses among the encodings that legacy files are in;
among equally likely ones windows-1252 wins, as in browsers. A guess is marked, so that it can be reported. Left out:
UTF-16 and UTF-32 without a mark, and encodings in 7 bits, which are valid UTF-8.
"""

import codecs
import io
from dataclasses import dataclass
from typing import BinaryIO

from charset_normalizer import from_bytes

from indexer.errors import NoDocumentError

_MARKS = (  # UTF-32 first: its little-endian mark begins with that of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (codecs.BOM_UTF8, "utf-8-sig"),
)
_WESTERN = "cp1252"
_GUESSES = "cp1252 cp1250 cp1251 cp1253 cp1254 cp1255 cp1256 cp1257 koi8_r cp932 euc_jp gb18030 big5 cp949".split()
_LABELS = {"ascii": _WESTERN, "iso8859-1": _WESTERN}  # what browsers take these declarations for
_NEVER_DECLARED = {"idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape", "utf-7"}
_BLOCK_BYTES = 1 << 20
_SAMPLE_BYTES = 16 << 10


@dataclass(frozen=True, slots=True)
class Encoding:
    """A codec's name, and whether it was guessed."""

    name: str
    is_assumed: bool = False


def encoding_of(file: BinaryIO, *, declared: str | None = None) -> Encoding:
    """Return the encoding of what follows in a file, which is read block by block as far as needed.

    A mark goes before a declaration, and a declaration of a known encoding before the bytes. Damaged UTF-8, with more
    sound characters than broken ones, is still UTF-8.
    """
    block = file.read(_BLOCK_BYTES)
    for mark, name in _MARKS:
        if block.startswith(mark):
            return Encoding(name)
    known = _known(declared) if declared is not None else None
    if known is not None:
        return Encoding(known)
    decoder = codecs.getincrementaldecoder("utf-8")()
    while block:
        following = file.read(_BLOCK_BYTES)
        try:
            decoder.decode(block, final=not following)
        except UnicodeDecodeError:
            return _guessed(block)
        block = following
    return Encoding("utf-8")


def decode(content: bytes, *, declared: str | None = None) -> tuple[str, Encoding]:
    """Return the text of a whole file, its line ends as they are, with the encoding that it was read in.

    Raises:
        NoDocumentError: it is not text; names the line.
    """
    encoding = encoding_of(io.BytesIO(content), declared=declared)
    try:
        text = content.decode(encoding.name)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        reason = f"byte {error.start + 1} of the file is not {encoding.name.removesuffix('-sig')}"
        raise NoDocumentError("not-text", reason, line=line) from error
    require_text(text)
    return text, encoding


def require_text(text: str) -> None:
    """Return if the text holds no NUL character.

    Raises:
        NoDocumentError: it does; names the line.
    """
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise NoDocumentError("not-text", "holds a NUL character, so it is not text", line=line)


def _known(label: str) -> str | None:
    """Return the codec that a declaration means, None if it means none; it was found by reading ASCII."""
    try:
        name = codecs.lookup(label.strip()).name
        b" ".decode(name)  # what turns bytes into bytes, such as base64, is a codec too
    except (LookupError, ValueError):
        return None
    if name.startswith(("utf-16", "utf-32", "utf-8")) or name in _NEVER_DECLARED:
        return None
    return _LABELS.get(name, name)


def _guessed(block: bytes) -> Encoding:
    """Return the likeliest encoding of a block that is not UTF-8; UTF-8 if it is damaged, or if nothing fits."""
    text = block.decode("utf-8", "replace")
    n_broken = text.count("\ufffd")
    n_sound = sum(not character.isascii() for character in text) - n_broken
    telling = b"\n".join(line for line in block.split(b"\n") if not line.isascii())[:_SAMPLE_BYTES]
    guesses = list(from_bytes(telling, cp_isolation=_GUESSES)) if n_sound <= n_broken else []
    if not guesses:
        return Encoding("utf-8")
    best = guesses[0]
    for guess in guesses:
        is_as_likely = (guess.chaos, guess.coherence) == (best.chaos, best.coherence)
        if is_as_likely and _WESTERN in guess.could_be_from_charset:
            return Encoding(_WESTERN, is_assumed=True)
    return Encoding(best.encoding, is_assumed=True)
