"""Rankings measured through the real pipeline, against ir_measures and by hand."""

import asyncio
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import ir_measures
import pytest
from ir_measures import RR, R, nDCG

from models.errors import DataError
from service.engine import open_engine
from service.evaluate import (
    STRATEGIES,
    JudgedQuery,
    RankingQuality,
    corpus_fingerprint,
    documents_of,
    mean_quality,
    measure,
    read_judged_queries,
)
from service.pipeline import SearchQuery, search
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


def test_a_document_stands_where_its_best_passage_does() -> None:
    assert documents_of(["a", "b", "a", "c", "b"]) == ["a", "b", "c"]
    assert documents_of([]) == []


def test_a_query_that_only_shares_its_id_with_a_document_loses_nothing(settings: Settings) -> None:
    """The document `beta` answers; a query of the same id but another text keeps it."""

    async def run() -> list[RankingQuality]:
        bm25 = STRATEGIES[0]
        async with open_engine(settings) as engine:
            other = JudgedQuery("beta", "the answer is beta", {"beta": 1})
            itself = JudgedQuery("beta", "beta is  the answer", {"beta": 1})
            return [await measure(engine, [each], bm25) for each in (other, itself)]

    other, itself = asyncio.run(run())
    assert other.recall_at_100 == 1
    assert itself.recall_at_100 == 0


def test_the_mean_counts_every_data_set_alike() -> None:
    mean = mean_quality([RankingQuality(1, 1.0, 0.5, 0.25, {"fuse": 1.0}), RankingQuality(99, 0.0, 0.5, 0.75, {})])
    assert mean == RankingQuality(100, 0.5, 0.5, 0.5, {})


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
