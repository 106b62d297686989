import pytest

from indexer.sections import first_heading, sections, sentences

_RESTRUCTURED = 'The "yield" statement\n*********************\nx\n\nMore\n====\ny\n\nAgain\n*****\nz'


@pytest.mark.parametrize(
    ("text", "headings"),
    [
        ("fog", [""]),
        ("# A\nx\n## B\ny\n# C\nz", ["A", "A > B", "C"]),
        ("# A\n## B\ny", ["A > B"]),
        (_RESTRUCTURED, ["The yield statement", "The yield statement > More", "Again"]),
        ("a | b\n--- | ---\n1 | 2", [""]),
        ("a sentence that is longer than its line\n---\nx", [""]),
        ("#hashtag and #more\nx", [""]),
        ("~~~\n# in a fence\n~~~\n# out\nx", ["", "out"]),
        ("    # indented code\nx", [""]),
    ],
)  # fmt: skip
def test_headings_of_markdown_and_restructuredtext_divide_a_text(text: str, headings: list[str]) -> None:
    assert [section.heading for section in sections(text)] == headings


def test_the_first_heading_is_without_marks() -> None:
    assert first_heading("intro\n\n## `csv` *module* {#csv}\n") == "csv module"
    assert first_heading("none") == ""


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ('He left. "Why?" She stayed!', ["He left.", '"Why?"', "She stayed!"]),
        ("Version 3.11 of os.path works.", ["Version 3.11 of os.path works."]),
        ("霧。船。", ["霧。", "船。"]),
        (">>> a. b\n1. 2", [">>> a. b", "1. 2"]),
        ("one\ntwo. three", ["one\ntwo.", "three"]),
    ],
)
def test_prose_is_divided_at_sentences_and_code_at_lines(text: str, parts: list[str]) -> None:
    assert [text[start:end] for start, end in sentences(text, (0, len(text)))] == parts


@pytest.mark.parametrize(
    "text",
    [
        "# fog" + " " * 20_000 + "harbour",
        "# fog" + "#" * 200_000 + "harbour",
        "# " + "{#" * 500_000,
        "." * 500_000,
        "Contents " + "." * 500_000 + "7",
    ],
    ids=["blanks", "signs", "attributes", "dots", "leader"],
)
def test_no_line_takes_more_than_its_length_in_time(text: str) -> None:
    """With time that grows as its square, or its cube, each of these would take from minutes to hours."""
    for section in sections(text):
        list(sentences(text, section.slice))


@pytest.mark.parametrize(
    ("line", "title"),
    [
        ("# fog ##", "fog"),
        ("# fog ## ", "fog"),
        ("# fog ##\r\n", "fog"),
        ("# fog # x", "fog # x"),
        ("# ##", "#"),
        ("# C# #", "C#"),
        ("# a {#b} {#c", "a  {#c"),
    ],
)
def test_a_heading_may_be_closed_by_its_sign(line: str, title: str) -> None:
    assert first_heading(line) == title
