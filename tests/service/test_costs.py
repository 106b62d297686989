"""What a request is estimated to cost is what the models really read of it, or a little more."""

from collections.abc import Sequence
from contextlib import closing

import pytest

from models.tokenization import ModelInput
from service.admission import Cost
from service.answers import OwnPassage
from service.costs import answer_cost, pairs_cost, search_cost, texts_cost
from service.engine import Models, load_models, open_snapshot
from service.queries import AnswerQuery, SearchQuery
from service.settings import Settings

from .conftest import started
from .test_http import engine_of

WORD = "was "  # of as many characters as the estimate takes for a token
TEXTS = [WORD * n for n in (1, 10, 40, 100, 5000)]
QUERIES = [WORD, WORD * 10, WORD * 500]
SLACK = 4  # special tokens that not every tokenizer puts, and the rounding of the query


@pytest.fixture(scope="module")
def models(settings: Settings) -> Models:
    return load_models(settings)


def assert_estimates(cost: Cost, inputs: Sequence[ModelInput]) -> None:
    read = sum(each.ids.size for each in inputs)
    assert cost.tokens == cost.least
    assert read <= cost.tokens <= read + SLACK * len(inputs)


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("limits", [(1, None), (2, None), (None, None), (1, 5), (None, 70), (3, 200)])
def test_documents_cost_the_windows_that_are_read_of_them(
    models: Models, query: str, limits: tuple[int | None, int | None]
) -> None:
    max_windows, max_tokens = limits
    cross_encoder = models.cross_encoder
    task = cross_encoder.prepare(query, TEXTS, max_windows=max_windows, max_passage_tokens=max_tokens)
    cost = pairs_cost(query, TEXTS, cross_encoder.lengths, max_windows=max_windows, max_text_tokens=max_tokens)
    assert_estimates(cost, task.inputs)


@pytest.mark.parametrize("query", QUERIES)
def test_own_passages_cost_all_windows_of_the_reader(models: Models, query: str) -> None:
    passages = [OwnPassage(str(i), text) for i, text in enumerate(TEXTS)]
    cost = answer_cost(models, AnswerQuery(query, passages=passages), None)
    assert_estimates(cost, models.reader.prepare(query, TEXTS).inputs)


def test_texts_cost_no_more_than_the_encoder_takes(models: Models) -> None:
    assert_estimates(texts_cost(models, TEXTS), models.dual_encoder.inputs(TEXTS, "passage"))


def test_an_empty_request_costs_nothing(models: Models) -> None:
    assert texts_cost(models, []) == Cost(0, 0)
    assert pairs_cost(WORD, [], models.cross_encoder.lengths) == Cost(0, 0)
    assert answer_cost(models, AnswerQuery(WORD, passages=[]), None) == Cost(0, 0)


def test_a_long_query_costs_what_is_read_of_it(settings: Settings, models: Models) -> None:
    with closing(open_snapshot(settings, models)) as snapshot:
        long, longer = (
            (
                search_cost(models, SearchQuery(WORD * n), snapshot),
                search_cost(models, SearchQuery(WORD * n, rerank=False), snapshot),
                answer_cost(models, AnswerQuery(WORD * n), snapshot),
            )
            for n in (300, 900)
        )
        assert long == longer
        search, unranked, answer = long
        assert unranked == Cost(models.dual_encoder.max_tokens, models.dual_encoder.max_tokens)
        assert search.least == unranked.least < answer.least < answer.tokens
        assert search.tokens - search.least <= snapshot.n_passages * models.cross_encoder.lengths.max_tokens


def test_what_is_cut_off_a_long_text_refuses_no_request(settings: Settings) -> None:
    bodies = {
        "/v1/rerank": {"query": WORD, "documents": [WORD * 20_000]},
        "/rerank": {"query": WORD, "texts": [WORD * 20_000]},
        "/v1/embeddings": {"input": WORD * 20_000},
        "/embed": {"inputs": [WORD * 20_000]},
    }
    for client in started(settings.model_copy(update={"request_timeout_seconds": 600.0})):
        engine = engine_of(client)
        engine.encoding.tokens_per_second = engine.reranking.tokens_per_second = 10.0
        assert {path: client.post(path, json=body).status_code for path, body in bodies.items()} == dict.fromkeys(
            bodies, 200
        )
