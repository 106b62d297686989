import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.analysis import analyze, occurrences


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("Running runners ran", ["run", "runner", "ran"]),
        ("the fog and the harbour", ["fog", "harbour"]),
        ("Café CAFÉ cafe\u0301 cafe", ["cafe"] * 4),
        ("STRASSE Straße", ["strass", "strass"]),
        ("don't", ["don", "t"]),
        ("東京タワー", ["東", "京", "タワー"]),
        ("हिन्दी", ["हिन्दी"]),
        ("…!!! \u2028 ---", []),
        ("", []),
    ],
)
def test_words_are_folded_stemmed_and_rid_of_stop_words(text: str, terms: list[str]) -> None:
    assert analyze(text) == terms


@pytest.mark.parametrize(
    ("identifier", "terms"),
    [
        ("csv.DictReader", ["csv.dictreader", "csv", "dictread", "dict", "reader"]),
        ("json.JSONDecodeError", ["json.jsondecodeerror", "json", "jsondecodeerror", "json", "decod", "error"]),
        ("snake_case", ["snake_case", "snake", "case"]),
        ("camelCase", ["camelcas", "camel", "case"]),
        ("HTTPServer", ["httpserver", "http", "server"]),
        ("utf8", ["utf8"]),
        ("__init__", ["init"]),
        ("ends.Here", ["ends.here", "end", "here"]),
    ],
)
def test_identifiers_are_kept_whole_and_also_split(identifier: str, terms: list[str]) -> None:
    assert analyze(identifier) == terms


@pytest.mark.parametrize(
    ("query", "text"),
    [("dict reader", "csv.DictReader"), ("dictreader", "csv.DictReader"), ("CSV.dictreader", "csv.DictReader")],
)
def test_a_name_is_found_by_itself_in_any_case_and_by_its_words(query: str, text: str) -> None:
    assert set(analyze(query)) & set(analyze(text)) - {"csv"}


def test_a_full_stop_is_no_part_of_the_last_word() -> None:
    assert analyze("Fog lifted.") == analyze("fog lifted")


@given(st.text())
def test_analysis_is_the_terms_of_the_occurrences_and_they_are_slices_in_order(text: str) -> None:
    found = list(occurrences(text))
    assert [term for occurrence in found for term in occurrence.terms] == analyze(text)
    ends = [0] + [occurrence.end for occurrence in found]
    assert all(end <= item.start < item.end <= len(text) for end, item in zip(ends, found, strict=False))
    for item in found:
        assert analyze(text[item.start : item.end]) == list(item.terms)


@given(st.text())
def test_terms_are_never_empty_and_case_does_not_matter_to_ascii_words(text: str) -> None:
    assert all(analyze(text) and term for term in analyze(text))
    ascii_text = " ".join(word for word in text.split() if word.isascii() and word.islower())
    assert analyze(ascii_text.upper()) == analyze(ascii_text)
