"""Every route says what it needs, in one table, which names no route that is not there."""

from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts
from fastapi.testclient import TestClient

from service.app import create_app
from service.routes import router
from service.scopes import SCOPE_OF_ROUTE, KeyScope, asked_route, permits
from service.settings import Settings

DOCS = Path(__file__).parents[2] / "docs" / "keys.md"


def test_the_table_has_every_route_and_no_other(client: TestClient) -> None:
    application = client.app
    assert isinstance(application, FastAPI)
    routed = {context.path: context.path_format for context in iter_route_contexts(application.routes)}
    assert set(routed) == set(SCOPE_OF_ROUTE)
    for path, template in routed.items():
        assert template is not None
        asked = asked_route(template.replace("{", "").replace("}", ""))
        assert (asked.template, asked.needs) == (template, SCOPE_OF_ROUTE[path or ""])


def test_a_route_without_a_scope_stops_the_start(settings: Settings) -> None:
    router.add_api_route("/v1/forgotten", lambda: None)
    try:
        with pytest.raises(AssertionError, match="/v1/forgotten"):
            create_app(settings)
    finally:
        router.routes.pop()
    create_app(settings)


@pytest.mark.parametrize(
    "path",
    ["/v1", "/v1/", "/v1/search/", "//v1/search", "/v1/jobs/", "/V1/search", "/healthz/", "/page/a/b", "", "/v1/x"],
)
def test_a_path_that_is_no_route_needs_a_key_all_the_same(path: str) -> None:
    assert (asked_route(path).template, asked_route(path).needs) == ("other", "any key")


def test_an_id_that_looks_like_another_path_is_part_of_its_route() -> None:
    assert asked_route("/v1/documents/../healthz").needs == KeyScope.SEARCH
    assert asked_route("/v1/documents//healthz").needs == KeyScope.SEARCH
    assert asked_route("/v1/jobs/healthz").needs == KeyScope.INDEX


def test_admin_may_do_everything_and_others_what_they_are_for() -> None:
    assert all(permits([KeyScope.ADMIN], needed) for needed in KeyScope)
    assert [needed for needed in KeyScope if permits([KeyScope.SEARCH], needed)] == [KeyScope.SEARCH]


def test_docs_name_the_scope_of_every_route() -> None:
    documented = DOCS.read_text(encoding="utf-8")
    for path, needs in SCOPE_OF_ROUTE.items():
        shown = asked_route(path.replace(":path", "")).template
        assert f"| `{shown}` | {'none' if needs == 'nothing' else f'`{needs}`'} |" in documented
