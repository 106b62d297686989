import math
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rank_bm25 import BM25Okapi

from indexer.analysis import Analyzer
from indexer.bm25 import Bm25Builder, Bm25Index, inverse_document_frequency, term_weights

analyze = Analyzer().analyze
_corpora = st.lists(st.lists(st.sampled_from("abcdef"), max_size=12), max_size=12)


def _index(corpus: list[list[str]], folder: Path) -> Bm25Index:
    builder = Bm25Builder()
    for terms in corpus:
        builder.add(terms)
    builder.write(folder)
    return Bm25Index(folder, n_passages=len(corpus))


def _reference(corpus: list[list[str]], query: list[str], *, k1: float = 1.2, b: float = 0.75) -> list[float]:
    """Return the scores by the formula, term by term, as one would write it on paper."""
    average = sum(map(len, corpus)) / len(corpus) if corpus else 0.0
    scores = []
    for terms in corpus:
        score = 0.0
        for term in query:
            df = sum(term in other for other in corpus)
            tf = terms.count(term)
            idf = math.log(1 + (len(corpus) - df + 0.5) / (df + 0.5))
            score += idf * tf / (tf + k1 * (1 - b + b * len(terms) / average)) if tf else 0.0
        scores.append(score)
    return scores


def test_a_hand_worked_example(tmp_path: Path) -> None:
    """Passages of 3, 3, 2, 2 terms: average 2.5. `fog` is in 2 of 4: idf = ln(1 + 2.5 / 2.5) = ln 2 = 0.6931.

    Its weight at length 3 is ln 2 * 1 / (1 + 1.2 * (0.25 + 0.75 * 3 / 2.5)) = 0.6931 / 2.38 = 0.29124.
    """
    corpus = [["fog", "over", "harbour"], ["fog", "warning", "lifted"], ["ferry", "times"], ["ticket", "prices"]]
    hits = _index(corpus, tmp_path / "bm25").search(["fog"], 10)
    assert hits.rows.tolist() == [0, 1]
    assert hits.scores == pytest.approx([0.29124, 0.29124], abs=1e-5)


def test_idf_is_positive_even_for_a_term_of_every_passage(tmp_path: Path) -> None:
    assert inverse_document_frequency(4, np.array([2])) == pytest.approx([0.693147], abs=1e-6)
    assert inverse_document_frequency(2, np.array([2]))[0] > 0
    hits = _index([["drum", "kit"], ["drum", "skin"]], tmp_path / "two").search(["drum"], 10)
    assert hits.rows.tolist() == [0, 1]
    assert (hits.scores > 0).all()
    assert _index([["drum"]], tmp_path / "one").search(["drum"], 10).rows.tolist() == [0]


def test_passages_that_share_no_term_are_not_returned(tmp_path: Path) -> None:
    hits = _index([["fog"], ["fog"], ["ferry"], ["ticket"]], tmp_path / "bm25").search(["fog", "unknown"], 10)
    assert hits.rows.tolist() == [0, 1]


@pytest.mark.parametrize("texts", [[], ["", "", ""], ["...!!!"], ["one real doc", ""]])
@pytest.mark.parametrize("query", ["real", "", "the"])
def test_empty_and_termless_corpora_and_queries_give_what_matches_and_no_error(
    texts: list[str], query: str, tmp_path: Path
) -> None:
    index = _index([analyze(text) for text in texts], tmp_path / "bm25")
    expected = [0] if query == "real" and texts[:1] == ["one real doc"] else []
    assert index.search(analyze(query), 10).rows.tolist() == expected
    assert index.scores(analyze(query), np.arange(len(texts))).size == len(texts)


def test_the_same_passages_give_the_same_bytes_and_ties_stand_in_order_of_row(tmp_path: Path) -> None:
    corpus = [["b", "a"], ["a", "b"], ["c"], ["a", "b"]]
    index = _index(corpus, tmp_path / "one")
    _index(corpus, tmp_path / "two")
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()
    assert index.search(["a"], 2).rows.tolist() == [0, 1]
    assert index.search(["b", "a"], 10).scores.tolist() == index.search(["a", "b"], 10).scores.tolist()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_corpora, st.lists(st.sampled_from("abcdefg"), max_size=4), st.integers(0, 15))
def test_search_equals_the_formula_sorted_by_score_then_row(
    tmp_path_factory: pytest.TempPathFactory, corpus: list[list[str]], query: list[str], k: int
) -> None:
    index = _index(corpus, tmp_path_factory.mktemp("bm25") / "bm25")
    expected = _reference(corpus, query)
    hits = index.search(query, k)
    assert index.scores(query, np.arange(len(corpus))) == pytest.approx(expected, rel=1e-5)
    rounded = index.scores(query, np.arange(len(corpus))).tolist()
    best = sorted((row for row in range(len(corpus)) if expected[row] > 0), key=lambda row: (-rounded[row], row))
    assert hits.rows.tolist() == best[:k]
    assert hits.scores.tolist() == [rounded[row] for row in best[:k]]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_corpora, st.lists(st.sampled_from("abcdefg"), max_size=4), st.integers(0, 15), st.data())
def test_of_allowed_passages_the_best_are_found_with_the_scores_that_they_have_anyway(
    tmp_path_factory: pytest.TempPathFactory, corpus: list[list[str]], query: list[str], k: int, data: st.DataObject
) -> None:
    index = _index(corpus, tmp_path_factory.mktemp("bm25") / "bm25")
    flags = data.draw(st.lists(st.booleans(), min_size=len(corpus), max_size=len(corpus)))
    everything, hits = index.search(query, len(corpus)), index.search(query, k, np.array(flags, np.bool_))
    expected = [each for each in zip(everything.rows, everything.scores, strict=True) if flags[each[0]]][:k]
    assert list(zip(hits.rows, hits.scores, strict=True)) == expected
    assert index.matching(query).nonzero()[0].tolist() == sorted(everything.rows.tolist())


def test_weights_equal_those_of_rank_bm25_but_for_its_idf_and_its_factor() -> None:
    """rank-bm25 multiplies by (k1 + 1) and has Robertson's idf, which may be negative; tf and length act alike."""
    corpus = [["fog", "fog", "sea"], ["fog", "ferry", "times", "of", "day"], ["ticket"], ["prices", "sea"], ["kit"]]
    okapi = BM25Okapi(corpus, k1=1.2, b=0.75)
    theirs = okapi.get_scores(["fog"]) / okapi.idf["fog"] / (1.2 + 1)
    counts = np.array([Counter(terms)["fog"] for terms in corpus])
    lengths = np.array([len(terms) for terms in corpus])
    ours = term_weights(counts, lengths, average_length=float(lengths.mean()), k1=1.2, b=0.75)
    assert ours == pytest.approx(theirs, rel=1e-12)


def test_what_was_compiled_gives_the_bits_that_numpy_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dice = random.Random(0)
    corpus = [dice.choices("abcdefghijé水😀", range(13, 0, -1), k=dice.randint(1, 9)) for _ in range(300)]
    index = _index(corpus, tmp_path / "index")
    if index._native is None:
        pytest.skip("nothing was compiled when Tercet was installed")
    queries = ["abj", "j", "aaj", "ijxa", "x", "", "é水", "😀a", "\udc80a", "水"]
    masks = [None, np.array([row % 3 == 0 for row in range(300)]), np.zeros(300, np.bool_)]
    asked = [(query, k, mask) for query in queries for k in (0, 1, 10, 400) for mask in masks]
    compiled = [index.search(list(query), k, mask) for query, k, mask in asked]
    assert any(hits.rows.size for hits in compiled)
    monkeypatch.setattr(index, "_native", None)
    for (query, k, mask), hits in zip(asked, compiled, strict=True):
        found = index.search(list(query), k, mask)
        assert (found.rows.tolist(), found.scores.tolist()) == (hits.rows.tolist(), hits.scores.tolist())
