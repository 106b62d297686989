"""The report as the real command writes it, read as a browser would: what it says, and that it loads nothing."""

import json
import re
from pathlib import Path

import pytest
from bs4 import BeautifulSoup, Tag

from tests.service.commands import Finished, Tercet, tercet_with
from tests.service.conftest import TinyModels

SCRIPT = "<script>alert('harbour')</script>"
DOCUMENTS = {
    "tide": ("The tide", "The tide is in the harbour and the boat is on the water."),
    "fog": (SCRIPT, f"Fog over the harbour {SCRIPT} is a warning for every ship."),
    "rows": ("", "a row then a row. " * 60),
    "lima": ("", "lima is the capital of peru"),
}
QUERIES = {"1": "harbour tide", "2": f"harbour fog {SCRIPT}", "3": "paper", "4": "capital of peru"}
JUDGEMENTS = {"1": {"tide": 1, "rows": 0}, "2": {"fog": 2}, "3": {"lima": 1}, "4": {"lima": 1}}
PASSAGE = f"The keeper {SCRIPT} reads the tide in the harbour."


@pytest.fixture(scope="module")
def tercet(tiny_models: TinyModels, tmp_path_factory: pytest.TempPathFactory) -> Tercet:
    return tercet_with(tiny_models, tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("beir") / "harbour & co"
    (folder / "qrels").mkdir(parents=True)
    documents = [{"_id": key, "title": title, "text": text} for key, (title, text) in DOCUMENTS.items()]
    (folder / "corpus.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in documents))
    queries = [{"_id": key, "text": text} for key, text in QUERIES.items()]
    (folder / "queries.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in queries))
    rows = [f"{query}\t{document}\t{grade}" for query, own in JUDGEMENTS.items() for document, grade in own.items()]
    (folder / "qrels" / "test.tsv").write_text("\n".join(rows))
    return folder


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve questions on one passage, every third without an answer."""
    answers = [{"text": "keeper", "answer_start": PASSAGE.index("keeper")}]
    path = tmp_path_factory.mktemp("questions") / "questions.jsonl"
    records = [
        {
            "id": f"q{number}",
            "title": "The lighthouse",
            "context": PASSAGE * (1 + number % 2 * 4),
            "question": f"{'who' if number % 2 else 'what'} reads {SCRIPT} {number}",
            "answers": answers if number % 3 else [],
        }
        for number in range(12)
    ]
    path.write_text("".join(f"{json.dumps(each)}\n" for each in records))
    return path


def report(tercet: Tercet, path: Path, *arguments: str | Path) -> tuple[Finished, str]:
    done = tercet("evaluate", *arguments, "--report", path, "--json")
    assert done.code == 0, done.stderr
    assert done.stderr.endswith(f"The report is {path}.\n")
    return done, path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def rankings(tercet: Tercet, dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Finished, str]:
    return report(tercet, tmp_path_factory.mktemp("rankings") / "report.html", "--dataset", dataset)


@pytest.fixture(scope="module")
def reading(
    tercet: Tercet, tiny_models: TinyModels, questions: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Finished, str]:
    path = tmp_path_factory.mktemp("reading") / "report.html"
    return report(tercet, path, tiny_models.reader, "--questions", questions)


def table(page: BeautifulSoup, section: str) -> list[list[str]]:
    """The body of a section's first table, a cell's interval after its value."""
    [body, *_] = page.select(f"#{section} tbody")
    return [[cell.get_text(" ", strip=True) for cell in row.select("th, td")] for row in body.select("tr")]


def pages(rankings: tuple[Finished, str], reading: tuple[Finished, str]) -> list[str]:
    return [rankings[1], reading[1]]


def test_a_report_loads_nothing(rankings: tuple[Finished, str], reading: tuple[Finished, str]) -> None:
    for html in pages(rankings, reading):
        page = BeautifulSoup(html, "html.parser")
        links = [
            str(element.attrs[name])
            for element in page.find_all(True)
            for name in ("src", "href", "xlink:href", "srcset", "data", "action", "poster", "style")
            if name in element.attrs
        ]
        loading = [link for link in links if not link.startswith("#") and ("//" in link or "url(" in link)]
        assert [link for link in loading if not re.fullmatch(r"[^/]*url\(#\w+\)[^/]*", link)] == []
        assert not re.search(r"https?://|@import|url\((?!#)", html)
        assert page.find_all(["link", "script", "iframe", "img", "object", "embed", "base"]) == []
        [policy] = page.select("meta[http-equiv=Content-Security-Policy]")
        assert str(policy["content"]).startswith("default-src 'none'")


def test_text_of_users_is_text(rankings: tuple[Finished, str], reading: tuple[Finished, str]) -> None:
    for html in pages(rankings, reading):
        assert "<script" not in html.lower()
        assert SCRIPT in BeautifulSoup(html, "html.parser").get_text()


def test_every_entry_of_the_contents_leads_somewhere_and_no_id_comes_twice(
    rankings: tuple[Finished, str], reading: tuple[Finished, str]
) -> None:
    for html in pages(rankings, reading):
        page = BeautifulSoup(html, "html.parser")
        targets = [str(link["href"]) for link in page.select("nav a")]
        assert len(targets) >= 5
        assert all(len(page.select(f"section{target}")) == 1 for target in targets)
        assert len(targets) == len(page.select("main > section"))
        ids = [str(element["id"]) for element in page.find_all(id=True)]
        assert len(ids) == len(set(ids))


def test_the_head_says_what_was_measured_with_what(
    rankings: tuple[Finished, str], reading: tuple[Finished, str], tiny_models: TinyModels
) -> None:
    ranked, read = (BeautifulSoup(each[1], "html.parser").get_text(" ") for each in (rankings, reading))
    assert "tercet evaluate --dataset" in ranked
    assert "10,000 resamples, seed 1" in ranked
    assert "tiny-dual-encoder, fingerprint" in ranked
    assert "tiny-cross-encoder, fingerprint" in ranked
    index = rankings[0].result["indexes"]["harbour & co"]
    assert f"{index['index']}, snapshot {index['snapshot']}" in ranked
    assert "4, with judgements of 4 documents" in ranked
    assert f"tiny-reader, fingerprint {reading[0].result['fingerprint']}" in read
    assert "12, 8 of them answerable" in read


def test_the_table_of_rankings_says_what_the_json_says(rankings: tuple[Finished, str]) -> None:
    rows = table(BeautifulSoup(rankings[1], "html.parser"), "measures")
    found = rankings[0].result["datasets"]["harbour & co"]
    assert [row[1] for row in rows] == list(found)
    for row in rows:
        own = found[row[1]]
        for column, name in enumerate(("ndcg_at_10", "recall_at_100", "mrr_at_10"), start=3):
            low, high = own["intervals_95"][name]
            assert row[column] == f"{own[name]:.3f} [{low:.3f}, {high:.3f}]"
    better = found["hybrid+rerank"]["above_hybrid"]["ndcg_at_10"]
    assert rows[-1][6].split(" ")[0] == f"{better['mean']:+.3f}".replace("-", "−")
    assert rows[-1][7] == f"{better['p_value']:.3f}"
    assert rows[2][6:] == ["", ""]  # hybrid itself


def test_latencies_and_cuts_are_those_of_each_ranking(rankings: tuple[Finished, str]) -> None:
    """Query 2 has more than the 24 tokens that the tiny models grant; the passages of `rows` more than 64."""
    page = BeautifulSoup(rankings[1], "html.parser")
    stages = {row[1]: [bool(cell) for cell in row[2:]] for row in table(page, "latency")}
    assert stages["bm25"] == [False, True, True, False]
    assert stages["hybrid+rerank"] == [True, True, True, True]
    median = rankings[0].result["datasets"]["harbour & co"]["hybrid+rerank"]["median_ms"]["rerank"]
    assert table(page, "latency")[-1][5].startswith(f"{median:,.1f} / ")
    cuts = {row[1]: row[2:] for row in table(page, "cut")}
    assert cuts["bm25"] == ["0 of 4", "0", "", ""]
    assert cuts["hybrid+rerank"][0] == "1 of 4"
    n_reranked, n_cut = (int(each) for each in cuts["hybrid+rerank"][2:])
    assert 0 < n_cut < n_reranked


def test_changes_put_both_rankings_side_by_side(rankings: tuple[Finished, str]) -> None:
    page = BeautifulSoup(rankings[1], "html.parser")
    changes = page.select("#changes-1 details")
    assert changes
    gains = []
    for change in changes:
        before, after = re.findall(r"\d\.\d{3}(?= →)|(?<=→ )\d\.\d{3}", change.get_text())[:2]
        gains.append(float(after) - float(before))
        assert [each.get_text() for each in change.select("h4")] == ["hybrid", "hybrid+rerank"]
        assert "✓ relevant" in change.get_text()
    n_wins = sum(gain > 0 for gain in gains)
    assert gains == [*sorted(gains[:n_wins], reverse=True), *sorted(gains[n_wins:])]
    ties = re.search(r"(\d+) queries are the same", page.get_text())
    assert ties is not None
    assert int(ties[1]) + len(gains) == 4


def test_the_worst_query_comes_first_with_what_should_have_come(rankings: tuple[Finished, str]) -> None:
    page = BeautifulSoup(rankings[1], "html.parser")
    worst = page.select("#worst-1 details")
    ndcg = [float(found[1]) for each in worst if (found := re.search(r"nDCG@10 (\d\.\d+)", each.get_text()))]
    assert len(ndcg) == len(worst) > 0
    assert ndcg == sorted(ndcg)
    assert all(value < 1 for value in ndcg)
    for each in worst:
        [first, expected] = each.select(".sides > div")
        assert first.select("li strong")[0].get_text() == "1."
        assert all("✓ relevant" in item.get_text() for item in expected.select("li"))


def test_bins_hold_every_reranked_passage(rankings: tuple[Finished, str]) -> None:
    page = BeautifulSoup(rankings[1], "html.parser")
    bins = table(page, "reliability-1")
    [*_, n_reranked, _] = table(page, "cut")[-1]
    assert sum(int(row[1]) for row in bins) == int(n_reranked)
    n_relevant = sum(int(row[1]) * float(row[3]) for row in bins)
    assert n_relevant > 0
    error = sum(int(row[1]) * abs(float(row[2]) - float(row[3])) for row in bins) / int(n_reranked)
    stated = re.search(r"Expected calibration error (\d\.\d+)", page.get_text())
    assert stated is not None
    assert float(stated[1]) == pytest.approx(error, abs=0.0015)  # the table is rounded to a thousandth


def test_the_page_on_the_reader_says_what_the_json_says(reading: tuple[Finished, str]) -> None:
    page = BeautifulSoup(reading[1], "html.parser")
    rows = {row[0]: row[1:] for row in table(page, "measures")}
    found = reading[0].result
    low, high = found["intervals_95"]["f1"]
    assert rows["F1"] == [f"{100 * found['f1']:.1f}", f"{100 * low:.1f} – {100 * high:.1f}"]
    assert rows["F1 at the best threshold for this file"] == [f"{100 * found['best_threshold_f1']:.1f}", ""]
    assert f"In use: {found['threshold']:.3f}" in page.get_text()
    assert re.search(r"over the\s+first 12 questions, each read alone", page.get_text())


def test_every_question_is_in_one_subgroup_of_each_kind(reading: tuple[Finished, str]) -> None:
    by_kind: dict[str, dict[str, int]] = {}
    for row in table(BeautifulSoup(reading[1], "html.parser"), "groups"):
        by_kind.setdefault(row[0], {})[row[1]] = int(row[2])
    assert by_kind["question word"] == {"who": 6, "what": 6}
    assert by_kind["expected answer"] == {"1 word": 8, "no answer": 4}
    assert set(by_kind["passage"]) >= {"3+ windows"}
    assert sum(by_kind["passage"].values()) == 12


def test_the_most_confident_errors_come_first_with_their_span_marked(reading: tuple[Finished, str]) -> None:
    page = BeautifulSoup(reading[1], "html.parser")
    cards = page.select("#wrong details")
    margins = [float(found[1]) for each in cards if (found := re.search(r"margin (-?\d+\.\d+)", each.get_text()))]
    assert len(margins) == len(cards) > 0
    assert margins == sorted(margins, reverse=True)
    assert min(margins) >= 0  # the tiny reader's threshold
    for card in cards:
        [marked] = card.select("mark")
        assert marked.get_text()
        assert isinstance(marked.parent, Tag)
        assert marked.parent.get_text().strip("… ") in PASSAGE * 5
        assert ("no answer" in card.get_text()) == (not card.select(".badge.good"))


def test_plots_are_the_same_for_the_same_numbers_and_follow_the_colour_scheme(
    tercet: Tercet, tiny_models: TinyModels, questions: Path, reading: tuple[Finished, str], tmp_path: Path
) -> None:
    _, again = report(tercet, tmp_path / "again.html", tiny_models.reader, "--dataset", questions)
    plots, same = (re.findall(r"<svg.*?</svg>", html, flags=re.DOTALL) for html in (reading[1], again))
    assert len(plots) == 3
    assert plots == same
    for plot in plots:
        assert "var(--ink)" in plot
        assert re.findall(r"(?<![\w#&(])#[0-9a-f]{6}\b", plot) == []
        assert "<text" in plot


def test_where_no_report_can_go_is_told_before_any_work(tercet: Tercet, dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    cases = {
        tmp_path / "missing" / "report.html": f"there is no folder {tmp_path / 'missing'}",
        tmp_path / "folder": f"{tmp_path / 'folder'} is a folder",
        Path("/dev/null"): "/dev/null is no plain file",
    }
    for path, sentence in cases.items():
        done = tercet("evaluate", "--dataset", dataset, "--reindex", "--report", path)
        assert done.code == 1
        assert sentence in done.sentence
        assert len(done.stderr.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_without_its_libraries_one_sentence_says_what_to_install(tercet: Tercet, dataset: Path, tmp_path: Path) -> None:
    """Python imports sitecustomize at its start; here it marks matplotlib as a module that is not there."""
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['matplotlib'] = None\n")
    without = Tercet({**tercet.environment, "PYTHONPATH": str(tmp_path)})
    done = without("evaluate", "--dataset", dataset, "--report", tmp_path / "report.html")
    assert done.code == 1
    assert done.sentence == "A report needs matplotlib: run pip install --editable '.[train]' in Tercet's folder."
    assert len(done.stderr.splitlines()) == 1
