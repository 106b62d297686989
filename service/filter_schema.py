"""The rule that a filter has one form, as a JSON schema for OpenAPI; `FilterBody` checks it."""

from collections.abc import Mapping

from pydantic import JsonValue

_BOUNDS = ("gt", "gte", "lt", "lte")
_GROUPS = {"and": "array", "or": "array", "not": "object"}
_TESTS: Mapping[str, JsonValue] = {"equal": ["string", "number", "boolean"], "in": "array", "exists": "boolean"}
_NAMES = (*_GROUPS, "field", *_TESTS, *_BOUNDS)


def _form(given: Mapping[str, JsonValue], *needed: str) -> dict[str, JsonValue]:
    """Return the schema of a form: these names, with their types, and of the others null at most."""
    types = {name: {"type": given.get(name, "null")} for name in _NAMES}
    return {"properties": dict(types), "required": list(needed)}


def _bounds(kind: str) -> dict[str, JsonValue]:
    given: dict[str, JsonValue] = {bound: [kind, "null"] for bound in _BOUNDS}
    one_of_them: list[JsonValue] = [{"properties": {bound: {"type": kind}}, "required": [bound]} for bound in _BOUNDS]
    return _form({"field": "string", **given}, "field") | {"anyOf": one_of_them}


ONE_FORM: dict[str, JsonValue] = {
    "anyOf": [
        *(_form({name: kind}, name) for name, kind in _GROUPS.items()),
        *(_form({"field": "string", name: kind}, "field", name) for name, kind in _TESTS.items()),
        _bounds("number"),
        _bounds("string"),
    ]
}
