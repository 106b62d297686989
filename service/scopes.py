"""What a key may do, and what each route needs: one table, without all routes in which a service does not start."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, TypeAlias

from fastapi import APIRouter
from starlette.routing import Route, compile_path


class KeyScope(StrEnum):
    """What a key may do; `admin` may do everything."""

    SEARCH = "search"
    INDEX = "index"
    METRICS = "metrics"
    ADMIN = "admin"


Needed: TypeAlias = KeyScope | Literal["nothing", "any key"]

SCOPE_OF_ROUTE: Mapping[str, Needed] = {
    "/v1/search": KeyScope.SEARCH,
    "/v1/search/batch": KeyScope.SEARCH,
    "/v1/answer": KeyScope.SEARCH,
    "/v1/documents/{document_id:path}": KeyScope.SEARCH,
    "/v1/indexes": KeyScope.SEARCH,
    "/v1/rerank": KeyScope.SEARCH,
    "/v2/rerank": KeyScope.SEARCH,
    "/rerank": KeyScope.SEARCH,
    "/v1/embeddings": KeyScope.SEARCH,
    "/embed": KeyScope.SEARCH,
    "/v1/jobs": KeyScope.INDEX,
    "/v1/jobs/upload": KeyScope.INDEX,
    "/v1/jobs/{job_id}": KeyScope.INDEX,
    "/metrics": KeyScope.METRICS,
    # Probes come from machines that hold no key, and say no more than yes or no.
    "/healthz": "nothing",
    "/readyz": "nothing",
    # The same in every installation; the page asks its user for a key and sends it along.
    "/": "nothing",
    "/docs": "nothing",
    "/page/{name}": "nothing",
    "/openapi.json": "nothing",
}


@dataclass(frozen=True, slots=True)
class AskedRoute:
    """A route by its template, as metrics and logs name it, and what a request of it needs."""

    template: str
    needs: Needed


_FIXED = {path: AskedRoute(path, needs) for path, needs in SCOPE_OF_ROUTE.items() if "{" not in path}
_PATTERNS = [
    (pattern, AskedRoute(template, needs))
    for (pattern, template, named), needs in ((compile_path(path), needs) for path, needs in SCOPE_OF_ROUTE.items())
    if named
]
_NO_ROUTE = AskedRoute("other", "any key")


def asked_route(path: str) -> AskedRoute:
    """Return the route of a path; one that is nowhere in the table still needs a key."""
    fixed = _FIXED.get(path)
    if fixed is not None:
        return fixed
    return next((route for pattern, route in _PATTERNS if pattern.match(path)), _NO_ROUTE)


def permits(scopes: Collection[KeyScope], needs: Needed) -> bool:
    """Return whether a key with these scopes may do what needs this."""
    return needs in ("nothing", "any key") or needs in scopes or KeyScope.ADMIN in scopes


def require_scopes(router: APIRouter) -> None:
    """Return if the table has every route of a router."""
    paths = {route.path if isinstance(route, Route) else repr(route) for route in router.routes}
    missing = sorted(paths - SCOPE_OF_ROUTE.keys())
    assert not missing, f"service/scopes.py does not say which scope these routes need: {', '.join(missing)}"
