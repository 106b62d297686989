import re
from pathlib import Path

import pytest

from indexer.errors import FilterError
from indexer.filter_text import parse_filter
from indexer.filters import MAX_DEPTH, And, Equal, Exists, Filter, In, Not, Or, Range

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = 1", Equal("a", 1)),
        ("a=-1.5e3", Equal("a", -1500.0)),
        ("a = +2", Equal("a", 2)),
        ("a = .5", Equal("a", 0.5)),
        ("a = 9007199254740993", Equal("a", 9007199254740993)),
        ("a = true", Equal("a", True)),
        ("a = FALSE", Equal("a", False)),
        ("a != 'b'", Not(Equal("a", "b"))),
        ("a < 1", Range("a", lt=1)),
        ("a <= 1", Range("a", lte=1)),
        ("a > '2024-01-01'", Range("a", gt="2024-01-01")),
        ("a >= 1", Range("a", gte=1)),
        ("a in ()", In("a", ())),
        ('a IN ("x", 2, true)', In("a", ("x", 2, True))),
        ("exists a", Exists("a")),
        ("exists 'release date'", Exists("release date")),
        ('"and" = 1', Equal("and", 1)),
        ("Straße.no-1 = 1", Equal("Straße.no-1", 1)),
        ("not a = 1 and exists b", And((Not(Equal("a", 1)), Exists("b")))),
        ("not not exists a", Not(Not(Exists("a")))),
        ("exists a or exists b and exists c", Or((Exists("a"), And((Exists("b"), Exists("c")))))),
        ("(exists a or exists b) and exists c", And((Or((Exists("a"), Exists("b"))), Exists("c")))),
        (r'a = "say \"hi\" \\ 🚀"', Equal("a", 'say "hi" \\ 🚀')),
        ("a = 'it''", None),
    ],
)
def test_a_text_says_a_filter(text: str, expected: Filter | None) -> None:
    if expected is None:
        with pytest.raises(FilterError):
            parse_filter(text)
        return
    found = parse_filter(text)
    assert found == expected
    assert repr(found) == repr(expected)  # True == 1 and 1 == 1.0, but they are not the same filter


@pytest.mark.parametrize("page", ["README.md", "docs/filters.md"])
def test_filters_of_the_documentation_are_read(page: str) -> None:
    texts = re.findall(r"--filter '([^']+)'", (ROOT / page).read_text(encoding="utf-8"))
    assert texts
    for text in texts:
        parse_filter(text)


def test_all_of_the_grammar_in_one_filter_is_read() -> None:
    text = 'year >= 2020 and (lang = "en" or tag in ("a", "b")) and not draft = true and exists author'
    assert parse_filter(text) == And(
        (
            Range("year", gte=2020),
            Or((Equal("lang", "en"), In("tag", ("a", "b")))),
            Not(Equal("draft", True)),
            Exists("author"),
        )
    )


@pytest.mark.parametrize(
    ("text", "place", "what"),
    [
        ("", 1, "the name of a field is expected, but the filter ends"),
        ("  ", 3, "the name of a field is expected, but the filter ends"),
        ("year", 5, "=, !=, <, <=, >, >= or in is expected, but the filter ends"),
        ("year == 1", 7, 'a number, true, false or a text in quotes is expected, not "="'),
        ("lang = en", 8, 'a number, true, false or a text in quotes is expected, not "en"'),
        ("a = 1 b = 2", 7, 'and, or, or the end is expected, not "b"'),
        ("(a = 1", 7, 'and, or, or ")" is expected, but the filter ends'),
        ("a = 1)", 6, 'and, or, or the end is expected, not ")"'),
        ("a in 1", 6, '"(" is expected, not "1"'),
        ("a in (1 2)", 9, '"," or ")" is expected, not "2"'),
        ("a in (1,)", 9, 'a number, true, false or a text in quotes is expected, not ")"'),
        ("a > true", 5, 'a number or a text in quotes is expected, not "true"'),
        ("and = 1", 1, 'the name of a field is expected, not "and"'),
        ("a = 'b", 5, "a quote that nothing closes"),
        ("a ~ 1", 3, "a character that means nothing"),
        ('a "\x1b[2J"', 3, '=, !=, <, <=, >, >= or in is expected, not "\'"\\x1b[2J"\'"'),
        ("a = 1x", 5, "a character that means nothing"),
        ("a = 1e999", 5, "a number that is too large"),
        ("a = " + "9" * 500, 5, "a number that is too large"),
    ],
)
def test_what_is_no_filter_is_refused_at_its_place(text: str, place: int, what: str) -> None:
    with pytest.raises(FilterError) as caught:
        parse_filter(text)
    assert str(caught.value) == f"the filter cannot be read at character {place}: {what}"


@pytest.mark.parametrize(("opening", "levels"), [("(", MAX_DEPTH), ("not ", MAX_DEPTH), ("not (", MAX_DEPTH // 2)])
def test_depth_is_bounded(opening: str, levels: int) -> None:
    closing = ")" * opening.count("(")
    parse_filter(opening * levels + "exists a" + closing * levels)
    for deeper in (levels + 1, 5_000):
        with pytest.raises(FilterError, match="more than 16 levels deep"):
            parse_filter(opening * deeper + "exists a" + closing * deeper)


def test_size_is_bounded() -> None:
    with pytest.raises(FilterError, match="at most 64 conditions"):
        parse_filter(" or ".join(["exists a"] * 65))
