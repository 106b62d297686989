"""Rankings measured through the real pipeline, against ir_measures and by hand."""

import asyncio
import json
import math
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ir_measures
import numpy as np
import pytest
from ir_measures import RR, R, nDCG

from models.errors import DataError
from models.folder import RelevanceCalibration, open_model_folder, write_settings
from service.candidates import Result
from service.commands.evaluate import Evaluation, run_evaluation
from service.commands.faults import CommandError
from service.engine import open_engine
from service.evaluate import (
    STRATEGIES,
    JudgedQuery,
    RankedQuery,
    Strategy,
    corpus_fingerprint,
    differences,
    measure,
    quality,
    ranked_documents,
    read_judged_queries,
)
from service.pipeline import search
from service.queries import SearchQuery
from service.settings import Settings
from tests.service.commands import Tercet, tercet_with
from tests.service.conftest import TinyModels

DOCUMENTS = {
    "1": ("The tide", "The tide is in the harbour and the boat is on the water."),
    "2": ("", "Fog over the harbour is a warning for every ship."),
    "3": ("The library", "The keeper reads in the library. " * 20),
    "4": ("Rows", "A csv file is a row, then a row, then a row."),
    "5": ("The vault", "which key is missing from the vault"),
}
QUERIES = {"1": "harbour tide", "b": "harbour", "5": "which key is missing  from the vault", "d": "paper lima"}
JUDGEMENTS = {"1": {"1": 2, "2": 1}, "b": {"2": 1, "3": 0}, "5": {"5": 1, "4": 1}, "d": {"3": 1}}


def write_lines(path: Path, records: Iterable[Mapping[str, str]]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


def write_beir(folder: Path) -> Path:
    (folder / "qrels").mkdir(parents=True)
    documents = ({"_id": key, "title": title, "text": text} for key, (title, text) in DOCUMENTS.items())
    write_lines(folder / "corpus.jsonl", documents)
    write_lines(folder / "queries.jsonl", ({"_id": key, "text": text} for key, text in QUERIES.items()))
    rows = [f"{query}\t{document}\t{grade}" for query, own in JUDGEMENTS.items() for document, grade in own.items()]
    (folder / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *rows, ""]))
    return folder


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_beir(tmp_path_factory.mktemp("beir") / "harbour")


@pytest.fixture(scope="module")
def tercet(tiny_models: TinyModels, tmp_path_factory: pytest.TempPathFactory) -> Tercet:
    return tercet_with(tiny_models, tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def evaluated(tercet: Tercet, dataset: Path) -> dict[str, Any]:
    done = tercet("evaluate", "--dataset", dataset, "--json")
    assert done.code == 0, done.stderr
    assert "Embedding" in done.stderr
    return done.result


@pytest.fixture(scope="module")
def rankings(
    evaluated: dict[str, Any], tercet: Tercet, tiny_models: TinyModels
) -> dict[str, dict[str, list[tuple[str, float]]]]:
    """Each strategy's documents and falling stand-in scores by query, from the index that `evaluate` left."""
    assert evaluated
    [index] = (Path(tercet.environment["TERCET_DATA_PATH"]) / "evaluation").iterdir()
    settings = Settings(
        data_path=index.parent,
        index=index.name,
        dual_encoder=str(tiny_models.dual_encoder),
        cross_encoder=str(tiny_models.cross_encoder),
        reader=str(tiny_models.reader),
    )

    async def rank() -> dict[str, dict[str, list[tuple[str, float]]]]:
        found: dict[str, dict[str, list[tuple[str, float]]]] = {}
        async with open_engine(settings) as engine:
            for strategy in STRATEGIES:
                for query_id, query in QUERIES.items():
                    asked = SearchQuery(query, top_k=100, mode=strategy.mode, rerank=strategy.rerank)
                    outcome = await search(engine, asked)
                    best: dict[str, float] = {}
                    for result in outcome.results:
                        best.setdefault(result.passage.document_id, 1 / result.rank)
                    if query_id == "5":
                        best.pop("5", None)
                    found.setdefault(strategy.name, {})[query_id] = list(best.items())
        return found

    return asyncio.run(rank())


def test_measures_equal_those_of_ir_measures(
    evaluated: dict[str, Any], rankings: dict[str, dict[str, list[tuple[str, float]]]]
) -> None:
    judgements = {query_id: dict(own) for query_id, own in JUDGEMENTS.items()}
    del judgements["5"]["5"]  # the query itself
    for strategy, by_query in rankings.items():
        run = {query_id: dict(ranking) for query_id, ranking in by_query.items()}
        expected = ir_measures.calc_aggregate([nDCG @ 10, R @ 100, RR @ 10], judgements, run)
        found = evaluated["datasets"]["harbour"][strategy]
        assert found["n_queries"] == 4
        assert found["ndcg_at_10"] == pytest.approx(expected[nDCG @ 10], abs=1e-9)
        assert found["recall_at_100"] == pytest.approx(expected[R @ 100], abs=1e-9)
        assert found["mrr_at_10"] == pytest.approx(expected[RR @ 10], abs=1e-9)


def test_bm25_figures_equal_those_worked_by_hand(evaluated: dict[str, Any]) -> None:
    """Query 1 finds 1 (grade 2), then 2 (grade 1): 1. Query b finds the shorter 1 (not relevant), then 2: nDCG
    1 / log2(3), reciprocal rank 1/2. Query 5 loses itself, and 4 shares no term with it: 0. Query d finds nothing: 0.
    """
    bm25 = evaluated["datasets"]["harbour"]["bm25"]
    assert bm25["ndcg_at_10"] == pytest.approx((1 + 1 / math.log2(3)) / 4)
    assert bm25["recall_at_100"] == pytest.approx((1 + 1) / 4)
    assert bm25["mrr_at_10"] == pytest.approx((1 + 1 / 2) / 4)


def test_every_strategy_reports_the_stages_that_it_ran(evaluated: dict[str, Any]) -> None:
    stages = {name: set(found["median_ms"]) for name, found in evaluated["datasets"]["harbour"].items()}
    assert stages == {
        "bm25": {"retrieve", "fuse"},
        "dense": {"encode", "retrieve", "fuse"},
        "hybrid": {"encode", "retrieve", "fuse"},
        "hybrid+rerank": {"encode", "retrieve", "fuse", "rerank"},
    }


def test_a_second_evaluation_reuses_the_index_and_gives_the_same_figures(
    tercet: Tercet, dataset: Path, evaluated: dict[str, Any]
) -> None:
    again = tercet("evaluate", "--dataset", dataset, "--mode", "hybrid", "--json")
    assert "Embedding" not in again.stderr
    [(strategy, found)] = again.result["datasets"]["harbour"].items()
    measures = ("n_queries", "ndcg_at_10", "recall_at_100", "mrr_at_10")
    assert strategy == "hybrid"
    assert [found[name] for name in measures] == [evaluated["datasets"]["harbour"]["hybrid"][name] for name in measures]


def test_several_data_sets_get_a_mean_and_a_table(tercet: Tercet, dataset: Path, tmp_path: Path) -> None:
    other = write_beir(tmp_path / "other")
    done = tercet("evaluate", "--dataset", dataset, "--dataset", other, "--queries", "2", "--mode", "bm25")
    assert done.code == 0, done.stderr
    rows = [line for line in done.stdout.splitlines() if "bm25" in line]
    assert [row.split("│")[1].strip() for row in rows] == ["harbour", "other", "mean"]
    assert [row.split("│")[3].strip() for row in rows] == ["2", "2", "4"]
    assert all(re.fullmatch(r"[01]\.\d{3} ±0\.\d{3}", row.split("│")[4].strip()) for row in rows)


def test_data_sets_of_one_name_are_told_apart(tercet: Tercet, dataset: Path, tmp_path: Path) -> None:
    other = write_beir(tmp_path / "two" / dataset.name)
    done = tercet("evaluate", "--dataset", dataset, "--dataset", other, "--mode", "bm25", "--json")
    assert done.code == 0, done.stderr
    names = [f"{each.parent.name}/{each.name}" for each in (dataset, other)]
    assert list(done.result["datasets"]) == list(done.result["indexes"]) == names
    assert done.result["mean"]["bm25"]["n_queries"] == 8


def measured(settings: Settings, queries: Sequence[JudgedQuery], strategy: Strategy) -> list[RankedQuery]:
    async def run() -> list[RankedQuery]:
        async with open_engine(settings) as engine:
            return await measure(engine, queries, strategy)

    return asyncio.run(run())


def test_a_query_keeps_how_it_was_ranked_and_what_was_cut(settings: Settings) -> None:
    """`long` has many passages; the reranker has room for 64 tokens and 24 of the query."""
    queries = [JudgedQuery("q", "honey harbour " * 30, {"long": 1, "gone": 1, "fog": 0})]
    [found] = measured(settings, queries, STRATEGIES[3])
    documents = [each.document_id for each in found.first]
    assert [each.rank for each in found.first] == list(range(1, len(documents) + 1))
    assert len(set(documents)) == len(documents) > 1
    assert [(each.document_id, each.rank) for each in found.relevant] == [("long", documents.index("long") + 1)]
    assert found.measures[1] == 0.5
    assert found.query_cut_tokens > 0
    assert 0 < found.n_passages_cut <= len(found.relevances)
    assert 0 < found.relevances[:, 1].sum() < len(found.relevances)
    assert ((found.relevances[:, 0] > 0) & (found.relevances[:, 0] < 1)).all()


def test_a_document_stands_where_its_best_passage_does(settings: Settings) -> None:
    async def run() -> list[Result]:
        async with open_engine(settings) as engine:
            return (await search(engine, SearchQuery("honey harbour", top_k=100))).results

    results = asyncio.run(run())
    passages = [result.passage.document_id for result in results]
    assert len(set(passages)) < len(passages)
    documents = ranked_documents(results)
    assert [each.document_id for each in documents] == list(dict.fromkeys(passages))
    assert [each.row for each in documents] == [results[passages.index(each.document_id)].row for each in documents]
    assert ranked_documents([]) == []


def test_a_query_that_only_shares_its_id_with_a_document_loses_nothing(settings: Settings) -> None:
    """The document `beta` answers; a query of the same id but another text keeps it."""
    queries = [
        JudgedQuery("beta", "the answer is beta", {"beta": 1}),
        JudgedQuery("beta", "beta is  the answer", {"beta": 1}),
    ]
    other, itself = measured(settings, queries, STRATEGIES[0])
    assert (other.measures[1], [each.document_id for each in other.relevant]) == (1, ["beta"])
    assert (itself.measures[1], itself.relevant) == (0, ())


def ranked(*measures: tuple[float, float, float]) -> list[RankedQuery]:
    query = JudgedQuery("q", "q", {})
    return [RankedQuery(query, each, {"fuse": 1.0}, (), (), 0, 0, np.zeros((0, 2))) for each in measures]


def test_the_mean_counts_every_data_set_alike() -> None:
    small, large = ranked((1.0, 0.5, 0.25)), ranked(*[(0.0, 0.5, 0.75)] * 99)
    found = quality([small, large])
    assert (found.n_queries, found.ndcg_at_10, found.recall_at_100, found.mrr_at_10) == (100, 0.5, 0.5, 0.5)
    assert found.median_seconds == {}
    assert quality([small]).median_seconds == {"fuse": 1.0}


def test_intervals_hold_the_means_and_shrink_with_the_queries() -> None:
    """Half of the queries are perfect: the interval of n is about 1.96 * .5 / sqrt(n) to each side, .155 of 40."""
    found = quality([ranked(*[(1.0, 1.0, 1.0), (0.0, 1.0, 0.0)] * 20)])
    assert found.intervals["ndcg_at_10"].half_width == pytest.approx(0.155, abs=0.02)
    assert found.intervals["recall_at_100"].half_width == 0
    two = quality([ranked(*[(1.0, 1.0, 1.0), (0.0, 1.0, 0.0)] * 20)] * 2)
    assert two.intervals["ndcg_at_10"].half_width == pytest.approx(0.155 / math.sqrt(2), abs=0.02)


def test_differences_are_paired_by_query() -> None:
    """Each query gains .1, however far the queries lie apart."""
    reference = ranked(*[(value, value, value) for value in (0.0, 0.3, 0.6, 0.9)] * 3)
    better = ranked(*[(value + 0.1, value, value) for value in (0.0, 0.3, 0.6, 0.9)] * 3)
    found = differences(better, reference)
    interval = found["ndcg_at_10"].interval
    assert (found["ndcg_at_10"].mean, interval.low, interval.high) == pytest.approx((0.1, 0.1, 0.1))
    assert (found["recall_at_100"].mean, found["recall_at_100"].p_value) == (0, 1)


def test_intervals_and_differences_are_in_the_json(evaluated: dict[str, Any]) -> None:
    for name, found in evaluated["datasets"]["harbour"].items():
        low, high = found["intervals_95"]["ndcg_at_10"]
        assert 0 <= low <= found["ndcg_at_10"] <= high <= 1
        assert low < high
        assert ("above_hybrid" in found) == (name != "hybrid")
    better = evaluated["datasets"]["harbour"]["hybrid+rerank"]["above_hybrid"]["mrr_at_10"]
    scores = [evaluated["datasets"]["harbour"][name]["mrr_at_10"] for name in ("hybrid+rerank", "hybrid")]
    assert better["mean"] == pytest.approx(scores[0] - scores[1])
    assert better["interval_95"][0] <= better["mean"] <= better["interval_95"][1]
    assert 0 < better["p_value"] <= 1
    assert set(evaluated["mean"]) == set(evaluated["datasets"]["harbour"])


def test_reranking_by_excerpts_is_measured_beside_the_others_when_asked_for(
    tercet: Tercet, dataset: Path, evaluated: dict[str, Any]
) -> None:
    done = tercet("evaluate", "--dataset", dataset, "--rerank-tokens", "4", "--json")
    assert done.code == 0, done.stderr
    found, before = done.result["datasets"]["harbour"], evaluated["datasets"]["harbour"]
    assert found.keys() - before.keys() == {"hybrid+rerank:4"}
    assert found["hybrid+rerank"]["ndcg_at_10"] == before["hybrid+rerank"]["ndcg_at_10"]
    assert found["hybrid+rerank:4"]["median_ms"]["encode"] > 0.1, "it profits from the ranking before"


@pytest.mark.parametrize("option", [("--mode", "bm25"), ("--rerank-tokens", "4"), ("--reindex",)])
def test_options_of_rankings_have_no_place_beside_questions(
    tercet: Tercet, tmp_path: Path, option: tuple[str, ...]
) -> None:
    (tmp_path / "questions.jsonl").write_text("")
    done = tercet("evaluate", "--questions", tmp_path / "questions.jsonl", *option)
    assert (done.code, "have no place here" in done.sentence) == (1, True)


def test_a_named_cross_encoder_takes_the_place_of_the_configured_one(
    tercet: Tercet, dataset: Path, tiny_models: TinyModels, evaluated: dict[str, Any], tmp_path: Path
) -> None:
    """The same model with the sign of its relevance turned would be refused, so it is one with other weights."""
    other = tmp_path / "other"
    shutil.copytree(tiny_models.cross_encoder, other)
    settings = open_model_folder(str(other), "cross-encoder").settings
    turned = RelevanceCalibration(logit_weight=1e-9, dense_weight=-9.0, origin="turned")
    write_settings(other, settings.model_copy(update={"relevance": turned}))
    done = tercet("evaluate", other, "--dataset", dataset, "--mode", "hybrid+rerank", "--json")
    assert done.code == 0, done.stderr
    assert "Embedding" not in done.stderr
    found, before = (each["datasets"]["harbour"]["hybrid+rerank"] for each in (done.result, evaluated))
    assert found["recall_at_100"] == before["recall_at_100"]
    assert found["ndcg_at_10"] != before["ndcg_at_10"]


def test_an_index_is_judged_as_it_stands(tercet: Tercet, dataset: Path, tmp_path: Path) -> None:
    """The index holds documents 1 and 4 of the five: query 1 finds 1 (grade 2) but never 2, query d nothing."""
    lines = (dataset / "corpus.jsonl").read_text().splitlines()
    (tmp_path / "part.jsonl").write_text("\n".join([lines[0], lines[3]]) + "\n")
    assert tercet("index", tmp_path / "part.jsonl", "--index", "part").code == 0
    done = tercet("evaluate", "part", "--dataset", dataset, "--mode", "bm25", "--json")
    assert done.code == 0, done.stderr
    assert "The index 'part' lacks 3 of the 5 documents that harbour judges." in done.stderr
    assert done.result["indexes"]["harbour"]["index"] == "part"
    assert done.result["indexes"]["harbour"]["n_judged_missing"] == 3
    found = done.result["datasets"]["harbour"]["bm25"]
    assert found["ndcg_at_10"] == pytest.approx(2 / (2 + 1 / math.log2(3)) / 4)
    assert found["mrr_at_10"] == pytest.approx(1 / 4)
    (tmp_path / "none.jsonl").write_text('{"id": "other", "text": "harbour tide"}\n')
    assert tercet("index", tmp_path / "none.jsonl", "--index", "none").code == 0
    refused = tercet("evaluate", "none", "--dataset", dataset, "--mode", "bm25")
    assert "holds none of the 5 documents that harbour judges" in refused.sentence
    unknown = tercet("evaluate", "nowhere", "--dataset", dataset).sentence
    assert "'nowhere' is neither a bundled model (" in unknown
    assert unknown.endswith("(none, part).")


def test_what_does_not_fit_together_is_one_sentence(settings: Settings, dataset: Path, tmp_path: Path) -> None:
    questions = tmp_path / "questions.jsonl"
    questions.write_text("")
    cases: list[tuple[str | None, list[Path], str]] = [
        (settings.reader, [dataset], "is a reader: give it one file of labelled questions"),
        (settings.cross_encoder, [questions], "is a cross-encoder: give it BEIR folders"),
        (settings.index, [questions], "is an index: give it BEIR folders"),
        (None, [questions, dataset], "measured alone"),
        (None, [tmp_path / "gone"], "no folder and no file"),
        (None, [dataset, dataset / ".." / dataset.name], r"harbour/\.\./harbour is given twice"),
    ]
    for target, datasets, sentence in cases:
        task = Evaluation(target, datasets, "test", None, [], 0, False, False, None, "tercet")
        with pytest.raises(CommandError, match=sentence):
            run_evaluation(task, settings)
    reindexing = Evaluation(settings.index, [dataset], "test", None, [], 0, True, False, None, "tercet")
    with pytest.raises(CommandError, match="judged as it stands, so --reindex"):
        run_evaluation(reindexing, settings)


def test_judged_queries_come_in_the_order_of_the_judgements(dataset: Path) -> None:
    assert [each.query_id for each in read_judged_queries(dataset, split="test", limit=None)] == ["1", "b", "5", "d"]
    assert [each.query_id for each in read_judged_queries(dataset, split="test", limit=2)] == ["1", "b"]


def test_a_data_set_that_lacks_something_is_an_error_that_names_it(dataset: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="dev"):
        read_judged_queries(dataset, split="dev", limit=None)
    broken = write_beir(tmp_path / "broken")
    (broken / "queries.jsonl").write_text('{"_id": "1", "text": "harbour"}\n')
    with pytest.raises(DataError, match="3 judged queries have no text, the first is 'b'"):
        read_judged_queries(broken, split="test", limit=None)
    (broken / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n")
    with pytest.raises(DataError, match="no judgement"):
        read_judged_queries(broken, split="test", limit=None)
    (broken / "corpus.jsonl").unlink()
    with pytest.raises(DataError, match="no BEIR folder"):
        corpus_fingerprint(broken)
