import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.analysis import Analyzer

ENGLISH = Analyzer()
analyze, occurrences = ENGLISH.analyze, ENGLISH.occurrences


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("Running runners ran", ["run", "runner", "ran"]),
        ("the fog and the harbour", ["fog", "harbour"]),
        ("Café CAFÉ cafe\u0301 cafe", ["cafe"] * 4),
        ("STRASSE Straße", ["strass", "strass"]),
        ("don't", ["don", "t"]),
        ("東京タワー", ["東京", "京タ", "タワ", "ワー"]),
        ("水 a 水質", ["水", "水質"]),
        ("한국어 ﾀﾜ", ["한국", "국어", "タワ"]),
        ("Python入門", ["python", "入門"]),
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
    assert [term for terms, _ in found for term in terms] == analyze(text)
    starts = [-1] + [start for _, (start, _) in found]
    assert all(before < start < end <= len(text) for before, (_, (start, end)) in zip(starts, found, strict=False))
    for terms, (start, end) in found:
        assert analyze(text[start:end]) == list(terms)


@given(st.text())
def test_terms_are_never_empty_and_case_does_not_matter_to_ascii_words(text: str) -> None:
    assert all(analyze(text) and term for term in analyze(text))
    ascii_text = " ".join(word for word in text.split() if word.isascii() and word.islower())
    assert analyze(ascii_text.upper()) == analyze(ascii_text)


@pytest.mark.parametrize(
    ("language", "one", "other"),
    [
        ("german", "Häuser", "haus"),
        ("french", "généreuses", "généreux"),
        ("russian", "красивая", "красивый"),
        ("spanish", "hablando", "hablamos"),
    ],
)
def test_other_languages_have_their_own_stems(language: str, one: str, other: str) -> None:
    analyzer = Analyzer(language)
    assert analyzer.analyze(one) == analyzer.analyze(other)
    assert ENGLISH.analyze(one) != ENGLISH.analyze(other)


def test_none_keeps_words_as_they_are() -> None:
    assert Analyzer("none").analyze("The Running runners") == ["the", "running", "runners"]


def test_a_name_gives_its_analyzer_back_and_an_unknown_one_none() -> None:
    found = Analyzer.named(Analyzer("german").name)
    assert found is not None
    assert found.language == "german"
    assert Analyzer.named("words/1") is None
    with pytest.raises(ValueError, match="language 'klingon' is none of none, arabic"):
        Analyzer("klingon")


def test_matches_are_merged_where_pairs_overlap() -> None:
    assert ENGLISH.matches("in 東京タワー now, 東京", frozenset(["東京", "京タ", "now"])) == [(3, 6), (9, 12), (14, 16)]


@given(st.text(st.characters(max_codepoint=127)))
def test_ascii_text_has_the_words_that_it_has_within_other_text(text: str) -> None:
    """There is a quicker pattern for it alone."""
    analyzer = Analyzer.of("english")
    assert list(analyzer.occurrences(text)) == list(analyzer.occurrences(text + " ¿"))
