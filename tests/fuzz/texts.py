"""Texts of any characters: what is found in them are slices, and nothing of them is lost."""

import re
import tempfile
import unicodedata
from functools import cache
from itertools import pairwise
from pathlib import Path

from hypothesis import strategies as st
from tokenizers import normalizers

from indexer.analysis import Analyzer
from indexer.chunking import ChunkingSettings, chunk
from indexer.documents import Document, passage_text
from indexer.errors import NoDocumentError
from indexer.html import read_html
from indexer.markup import Extracted, read_markdown, read_restructured_text
from indexer.sections import sections, sentences
from models.folder import BUNDLED, BUNDLED_READER, TOKENIZER_FILE
from models.tokenization import Tokenizer
from service.answers import CONTEXT_CHARACTERS, context_around, utf16_length
from tests.fuzz.target import Target, as_text, require_one_sentence
from tests.indexer.small_tokenizers import save_byte_tokenizer, save_word_tokenizer

SMALL = ChunkingSettings(max_tokens=16, overlap_tokens=4, max_characters=64)

# Length changes with case or normal form; marks, joiners, directions, planes, separators, what is no character.
TRICKY = (
    *("İ", "ß", "ẞ", "ŉ", "ﬃ", "ǅ", "Σς", "ı", "K", "Å", "é"),
    *("e\u0301", "\u0301", "q\u0307\u0323", "각", "\u1100\u1161\u11a8"),
    *("🚀", "👩‍🚀", "👍🏽", "🇰🇪", "\U0001f469\u200d", "𝔸", "\U00020000", "\U0010ffff"),
    *("한국", "漢字かな", "ไทย", "नि", "א\u05b8ב", "\u202eabc", "ﷺ"),
    *("\x00", "\x7f", "\x85", "\xa0", "\xad", "\u200b", "\u2028", "\u2029"),
    *("\ufeff", "\ufffd", "\uffff", "\ud800", "\udc00"),
)  # fmt: skip
_MARKUP = (
    *("# Fog\n", "## Over the harbour ##\n", "Ferry\n=====\n", "```\n", "~~~~\n", "fog over harbour. ", "\n\n", "\r\n"),
    *("    x = 1\n", "ferry times\n", "a" * 90, "。", "- ticket prices\n", "!?", " ", "...", ">>> x\n", "{#fog}"),
    *(
        "---\n",
        "+++\n",
        "title: fog\n",
        "title = 'fog'\n",
        "<!-- ",
        "-->",
        "{% x %}\n",
        ":title: fog\n",
        ".. note:: x\n",
    ),
    *(".. image:: x\n", ":ref:`fog <x>`", "csv.DictReader", "snake_case", "JSONDecodeError"),
)
TEXTS = st.one_of(
    st.text(st.characters(codec=None)),  # all of Unicode, lone surrogates too
    st.lists(st.sampled_from([*TRICKY, *_MARKUP]), max_size=40).map("".join),
)
_HTML = (
    *("<p>", "</p>", "<h1>", "</h1>", "<pre>", "<li>", "<td>", "<script>", "<![", "<!--"),
    *("&#0;", "&#xD800;", "&eacute;"),
    *("<title>", "</title>", '<html lang="', '"', "<main>", "<article>", "<link rel=canonical href=http://a>", "<"),
)  # fmt: skip

_WORDS = [text.encode("utf-8", "surrogatepass") for text in (*TRICKY, *_MARKUP)]
_PAGE_WORDS = [text.encode() for text in _HTML]
_SEEDS = (
    "# Fog\n\nfog over harbour. İstanbul 🚀🚀 e\u0301.\n\n## More ##\n\n```\nx = 1\n```\n".encode(),
    b"a [SEP] b [CLS] [PAD] [MASK]",
    "---\ntitle: fog\n---\nFerry\n=====\n\n:ref:`a <b>` .. [1]\r\n\r\n漢字。かな。".encode(),
)
_WORD_CUT_IN_TWO = b"0 000 0 0  F0\n" + b"0" * 100 + b"Ferry;;;;\n;"  # "ferry" is one token, the end of "0ferry" five
_STRIPPED = normalizers.BertNormalizer(lowercase=True)


@cache
def bert_tokenizer() -> Tokenizer:
    """Return the tokenizer of the bundled reader: uncased, accents stripped, a token for each Han character."""
    return Tokenizer(BUNDLED / BUNDLED_READER / TOKENIZER_FILE)


@cache
def all_tokenizers() -> tuple[Tokenizer, ...]:
    """Return the reader's tokenizer, one of few words and of letters, and one of bytes."""
    with tempfile.TemporaryDirectory() as folder:
        word, byte = Path(folder, "word.json"), Path(folder, "byte.json")
        save_word_tokenizer(word)
        save_byte_tokenizer(byte)
        return bert_tokenizer(), Tokenizer(word), Tokenizer(byte)


def check_offsets(text: str) -> None:
    """Tokens are slices in order, and the reader's tokens say what their slices say, once both are normalised."""
    for tokenizer in all_tokenizers():
        offsets = tokenizer.encode(text).offsets
        assert ((offsets >= 0) & (offsets <= len(text))).all()
        assert (offsets[:, 0] <= offsets[:, 1]).all()
        assert (offsets[:-1, 0] <= offsets[1:, 0]).all(), "tokens stand in the order of their text"
    tokens, seen = bert_tokenizer().encode(text), 0
    for token_id, (start, end) in zip(tokens.ids.tolist(), tokens.offsets.tolist(), strict=True):
        piece = bert_tokenizer().decode([token_id]).removeprefix("##")
        said = _STRIPPED.normalize_str(re.sub("[\ud800-\udfff]", "\ufffd", text[start:end]))
        assert piece == "[UNK]" or piece in said, (piece, text[start:end])
        assert not _says_something(text[seen:start]), "what no token holds says nothing"
        seen = max(seen, end)
    assert not _says_something(text[seen:])


def _says_something(text: str) -> bool:
    """Return whether a text holds what BERT's normaliser does not drop: blanks, controls, marks, U+FFFD."""
    return any(unicodedata.category(each)[0] not in "ZCM" and each != "\ufffd" for each in text)


def check_passages(text: str) -> None:
    """Every character that is not blank lies in a passage; passages are slices in order, of bounded length."""
    document = Document("d", text, title="Fog")
    for tokenizer in all_tokenizers():
        passages = chunk(document, tokenizer, SMALL)
        covered = [False] * len(text)
        for number, passage in enumerate(passages):
            start, end = passage.start, passage.end
            assert passage.ordinal == number
            assert 0 <= start <= end <= len(text)
            assert end - start <= SMALL.max_characters
            assert text[start:end] == text[start:end].strip()
            assert tokenizer.encode(text[start:end]).ids.size <= SMALL.max_tokens
            assert passage_text(document, passage).endswith(text[start:end])
            covered[start:end] = [True] * (end - start)
        assert all(is_covered or character.isspace() for is_covered, character in zip(covered, text, strict=True))
        for places in ([each.start for each in passages], [each.end for each in passages]):
            assert places == sorted(set(places))


def check_sections(text: str) -> None:
    """Sections hold every character that is not blank, once; sentences likewise, of a section."""
    found = sections(text)
    assert _without_blanks("".join(text[slice(*each.slice)] for each in found)) == _without_blanks(text)
    for section in found:
        assert "\n" not in section.heading
        parts = list(sentences(text, section.slice))
        assert all(left[1] <= right[0] for left, right in pairwise(parts))
        assert _without_blanks("".join(text[slice(*part)] for part in parts)) == _without_blanks(
            text[slice(*section.slice)]
        )


def check_words(text: str) -> None:
    """A word's place is its slice, which alone gives the same terms; matches are slices apart from each other."""
    seen: set[str] = set()
    analyzer, last = Analyzer.of("english"), 0
    for terms, (start, end) in analyzer.occurrences(text):
        assert last <= start + 1, "only pairs of unspaced characters overlap, by one"
        assert start < end <= len(text)
        assert all(terms)
        assert analyzer.analyze(text[start:end]) == list(terms)
        seen.update(terms)
        last = end
    found = analyzer.matches(text, frozenset(seen))
    assert all(left[1] <= right[0] for left, right in pairwise(found))
    assert all(start < end <= len(text) for start, end in found)


def check_context(text: str) -> None:
    """UTF-16 offsets are those of the encoded text; the context around a slice holds it and is no longer than said."""
    encoded = text.encode("utf-16-le", "surrogatepass")
    for start in range(0, len(text) + 1, max(1, len(text) // 7)):
        assert len(text[:start].encode("utf-16-le", "surrogatepass")) == 2 * utf16_length(text[:start])
        assert encoded[2 * utf16_length(text[:start]) :].decode("utf-16-le", "surrogatepass") == text[start:]
        for end in (start, min(len(text), start + 3), len(text)):
            left, right = context_around(text, start, end)
            assert max(0, start - CONTEXT_CHARACTERS) <= left <= start
            assert end <= right <= min(len(text), end + CONTEXT_CHARACTERS)


def check_markup(text: str) -> None:
    """Any text can be read as Markdown, reStructuredText or HTML, or is said to be damaged; its metadata are values."""
    for reader in (read_markdown, read_restructured_text, read_html):
        try:
            found: Extracted = reader(text)
        except NoDocumentError as error:
            require_one_sentence(error)
            continue
        assert isinstance(found.title, str)
        assert found.url is None or found.url.startswith("http")
        for name, value in found.metadata.items():
            assert isinstance(name, str)
            assert isinstance(value, str | bool | int | float)
            assert not isinstance(value, float) or abs(value) < float("inf")


def _without_blanks(text: str) -> str:
    return "".join(text.split())


TARGETS = (
    Target("offsets", check_offsets, TEXTS, as_text, _SEEDS, _WORDS),
    Target("passages", check_passages, TEXTS, as_text, (*_SEEDS, _WORD_CUT_IN_TWO), _WORDS),
    Target("sections", check_sections, TEXTS, as_text, _SEEDS, _WORDS),
    Target("words", check_words, TEXTS, as_text, _SEEDS, _WORDS),
    Target("context", check_context, TEXTS, as_text, _SEEDS, _WORDS),
    Target(
        "markup",
        check_markup,
        st.one_of(TEXTS, st.lists(st.sampled_from([*_HTML, *TRICKY, *_MARKUP]), max_size=30).map("".join)),
        as_text,
        (*_SEEDS, b"<html lang=en><title>a</title><main><h1>b</h1><p>c<pre>d</pre><ul><li>e</ul>"),
        [*_WORDS, *_PAGE_WORDS],
    ),
)
