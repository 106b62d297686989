"""What OpenAPI says of keys: how to send one, which scope each route needs, and every problem that can come of it."""

from collections.abc import Mapping
from typing import Any

from service import problems
from service.examples import documented
from service.problems import MEDIA_TYPE
from service.scopes import asked_route

_SCHEMES: Mapping[str, Any] = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "A key; a service without keys asks for none."},
    "header": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "The same key by another way."},
}
_WITH_KEYS = (problems.KeyMissing, problems.KeyRefused, problems.ScopeMissing, problems.KeyAtLimit)
_CHALLENGE = {"WWW-Authenticate": {"description": "`Bearer`, and what is wrong.", "schema": {"type": "string"}}}


def with_access(description: dict[str, Any]) -> dict[str, Any]:
    """Return an application's OpenAPI description with the keys and scopes that its routes need; twice does no harm."""
    description["components"]["securitySchemes"] = _SCHEMES
    for path, operations in description["paths"].items():
        needs = asked_route(path).needs
        for method, operation in operations.items():
            # By OpenAPI 3.1 what is listed here is a role where the scheme has no scopes of its own.
            operation["security"] = [] if needs == "nothing" else [{name: [needs]} for name in _SCHEMES]
            _add(operation["responses"], problems.WrongHost)
            if method != "get":
                _add(operation["responses"], problems.ForeignPage)
            if needs != "nothing":
                _add(operation["responses"], *_WITH_KEYS)
    return description


def _add(responses: dict[str, Any], *kinds: type[problems.Problem]) -> None:
    for status, response in documented(*kinds).items():
        known = responses.setdefault(str(status), response)
        known["content"][MEDIA_TYPE]["examples"] |= response["content"][MEDIA_TYPE]["examples"]
        if status == 401:
            known["headers"] = _CHALLENGE
