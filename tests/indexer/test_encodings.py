import pytest

from indexer.encodings import Encoding, decode
from indexer.errors import NoDocumentError

_RUSSIAN = "Съешь ещё этих мягких французских булок, да выпей чаю."


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("\ufefffog".encode(), "fog"),
        ("fog".encode("utf-16"), "fog"),
        (b"\xfe\xff" + "fóg🐝".encode("utf-16-be"), "fóg🐝"),
        ("fog".encode("utf-32"), "fog"),
        ("a\r\nb\u2028c\u0085d\x0ce".encode(), "a\r\nb\u2028c\u0085d\x0ce"),
        (b"", ""),
    ],
)
def test_marked_and_valid_texts_are_read_as_they_are(content: bytes, text: str) -> None:
    decoded, encoding = decode(content)
    assert (decoded, encoding.is_assumed) == (text, False)


@pytest.mark.parametrize(
    ("codec", "text"),
    [
        ("cp1252", "café"),
        ("cp1252", "naïve façade, “quoted” — it’s fine"),
        ("cp1251", _RUSSIAN),
        ("koi8_r", _RUSSIAN),
        ("cp1253", "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία"),
        ("cp932", "こんにちは世界。これは日本語の文章です。"),
        ("gb18030", "你好，世界。这是一个中文句子。"),
    ],
)
def test_other_encodings_are_guessed_and_said_to_be(codec: str, text: str) -> None:
    assert decode(text.encode(codec)) == (text, Encoding(codec, is_assumed=True))


def test_the_telling_bytes_may_stand_far_behind() -> None:
    text = "plain words\n" * 200_000 + _RUSSIAN
    assert decode(text.encode("cp1251")) == (text, Encoding("cp1251", is_assumed=True))


def test_a_declaration_goes_before_a_guess_and_behind_a_mark() -> None:
    assert decode(b"caf\xe9", declared="ISO-8859-1") == ("café", Encoding("cp1252"))
    assert decode("café".encode("utf-8-sig"), declared="iso-8859-2")[0] == "café"


@pytest.mark.parametrize("declared", ["no-such", "base64", "utf-16", "punycode", "unicode_escape", "", "x\0y"])
def test_a_declaration_that_cannot_be_meant_is_ignored(declared: str) -> None:
    assert decode("café \\u0041".encode(), declared=declared) == ("café \\u0041", Encoding("utf-8"))


@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        ("naïve façade\ndéjà\n".encode() + b"\xe9 end\n", 3, "byte 23 of the file is not utf-8"),
        (b"one\n\x00", 2, "holds a NUL character, so it is not text"),
        (b"\xff\xfea\x00\n\x00b", 2, "byte 7 of the file is not utf-16"),
        (b"one\ntwo\x81\x8d\x8f\x90\x9d \x00", 2, "not"),
    ],
)
def test_what_is_no_text_is_refused_with_its_line(content: bytes, line: int, reason: str) -> None:
    with pytest.raises(NoDocumentError, match=reason) as refused:
        decode(content)
    assert (refused.value.kind, refused.value.line) == ("not-text", line)
