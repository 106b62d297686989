"""Named fields to a document: which of them are its id, text, title and url, and what the others become.

The names are the usual ones, upper or lower case; of several for one part the first in its list is taken. A field
`metadata` that is an object is taken apart; every other field is metadata under its own name.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Literal, TypeAlias

import orjson

from indexer.documents import INT64, Document, MetadataValue
from indexer.errors import NoDocumentError

Part: TypeAlias = Literal["id", "text", "title", "url"]

NAMES: Mapping[Part, tuple[str, ...]] = {
    "id": ("id", "_id", "document_id", "doc_id", "docid", "docno", "uuid"),
    "text": ("text", "body", "content", "contents", "passage", "abstract", "description"),
    "title": ("title", "headline", "heading", "name"),
    "url": ("url", "uri", "link", "href"),
}
MAX_TEXT_CHARACTERS = 16 << 20
_REQUIRED: tuple[Part, ...] = ("id", "text")
_OBJECT = "metadata"


def parts_of(names: Iterable[str]) -> dict[Part, str]:
    """Return which name stands for which part of a document; parts that no name stands for are left out."""
    by_lower: dict[str, str] = {}
    for name in names:
        by_lower.setdefault(name.strip().lower(), name)
    found = {part: next((by_lower[each] for each in known if each in by_lower), None) for part, known in NAMES.items()}
    return {part: name for part, name in found.items() if name is not None}


def require_columns(names: Sequence[str]) -> None:
    """Return if a table with these columns has what every document needs, and no name twice in whatever case.

    Raises:
        NoDocumentError: it has no column for the id or for the text, for which it names those that would do, or two
            columns of one name.
    """
    parts = parts_of(names)
    for part in _REQUIRED:
        if part not in parts:
            reason = f"has no column for the {part}; it may be named {', '.join(NAMES[part])}"
            raise NoDocumentError("missing-column", reason)
    if len({name.strip().lower() for name in names}) < len(names):
        raise NoDocumentError("missing-column", "gives two of its columns the same name")


def document_of(record: Mapping[str, object], parts: Mapping[Part, str]) -> Document:
    """Return the document that a record is.

    Raises:
        NoDocumentError: a part is missing, of a wrong type or too long.
    """
    document_id, text, title, url = (record.get(parts.get(part, "")) for part in ("id", "text", "title", "url"))
    if isinstance(document_id, int) and not isinstance(document_id, bool):
        document_id = str(document_id)
    if not isinstance(document_id, str) or not document_id.strip():
        raise NoDocumentError("bad-record", '"id" (or "_id") must be a string that is not blank, or a whole number')
    if not isinstance(text, str):
        raise NoDocumentError("bad-record", '"text" must be a string')
    if len(text) > MAX_TEXT_CHARACTERS:
        raise NoDocumentError("too-long", f"has {len(text)} characters of text; at most {MAX_TEXT_CHARACTERS} are read")
    if not (title is None or isinstance(title, str)):
        raise NoDocumentError("bad-record", '"title" must be a string')
    if not (url is None or isinstance(url, str)):
        raise NoDocumentError("bad-record", '"url" must be a string')
    others = {name: value for name, value in record.items() if name not in parts.values()}
    own = others.pop(_OBJECT, None)
    if isinstance(own, list):
        raise NoDocumentError("bad-record", f'"{_OBJECT}" must be an object')
    others |= own if isinstance(own, dict) else {_OBJECT: own}
    return Document(document_id, text, "" if title is None else title, url, flat_metadata(others))


class Ids:
    """The ids of one file with the number of the line or row that each stands in."""

    def __init__(self, place: Literal["line", "row"]) -> None:
        self._place = place
        self._numbers: dict[str, int] = {}

    def require_new(self, document_id: str, number: int) -> None:
        """Return if the id was not there, and keep it.

        Raises:
            NoDocumentError: it was; says where.
        """
        first = self._numbers.setdefault(document_id, number)
        if first != number:
            raise NoDocumentError("repeated-id", f"repeats the id of {self._place} {first}")


def flat_metadata(fields: Mapping[str, object]) -> dict[str, MetadataValue]:
    """Return fields as metadata: strings, booleans, 64-bit integers and finite numbers as they are.

    Greater integers become strings, decimals become floats, dates and times are written as in ISO 8601, lists and
    objects as JSON text. Null, bytes, NaN and infinities are left out.

    Raises:
        NoDocumentError: a list or an object cannot be written as JSON, mostly because it nests too deep.
    """
    flat = {str(name): _flat(value) for name, value in fields.items()}
    return {name: value for name, value in flat.items() if value is not None}


def _flat(value: object) -> MetadataValue | None:
    if isinstance(value, Decimal):
        value = float(value)
    match value:
        case None | bytes():
            return None
        case bool() | str():
            return value
        case int():
            return value if value in INT64 else str(value)
        case float():
            return value if math.isfinite(value) else None
        case datetime() | date() | time():
            return value.isoformat()
        case _:
            return _json(value)


def _json(value: object) -> str:
    try:
        return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError as error:  # orjson.JSONEncodeError is one
        raise NoDocumentError("bad-record", "its metadata cannot be written as JSON") from error
