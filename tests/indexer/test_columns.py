import math
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from indexer.columns import NAMES, Part, document_of, flat_metadata, parts_of
from indexer.documents import Document
from indexer.errors import NoDocumentError


def test_the_first_usual_name_in_its_list_wins_whatever_the_order_of_columns() -> None:
    assert parts_of(["description", "Body", "name", " ID "]) == {
        **{"id": " ID ", "text": "Body", "title": "name"},
    }
    assert parts_of(["x"]) == {}


@pytest.mark.parametrize(("part", "name"), [(part, name) for part, names in NAMES.items() for name in names])
def test_every_name_serves_alone(part: Part, name: str) -> None:
    assert parts_of([name.upper()]) == {part: name.upper()}


def test_what_is_no_part_is_metadata_and_an_object_named_so_is_taken_apart() -> None:
    record = {"_id": 7, "text": "t", "body": "b", "metadata": {"year": 1871, "lang": "en"}, "lang": "de"}
    assert document_of(record, parts_of(record)) == Document(
        "7", "t", "", None, {"body": "b", "lang": "en", "year": 1871}
    )


def test_metadata_keeps_what_filters_can_use_and_drops_what_nobody_can() -> None:
    fields = {
        **{"text": "x", "flag": False, "x": 1.5, "decimal": Decimal("2.50")},
        **{"n": 2**63 - 1, "big": 2**63, "least": -(2**63), "less": -(2**63) - 1},
        **{"day": date(2024, 2, 3), "then": datetime(2024, 2, 3, 4, 5, tzinfo=UTC), "tags": ["a", 1]},
        **{"none": None, "nan": math.nan, "infinite": -math.inf, "bytes": b"x"},
    }
    assert flat_metadata(fields) == {
        **{"text": "x", "flag": False, "x": 1.5, "decimal": 2.5},
        **{"n": 2**63 - 1, "big": str(2**63), "least": -(2**63), "less": str(-(2**63) - 1)},
        **{"day": "2024-02-03", "then": "2024-02-03T04:05:00+00:00", "tags": '["a",1]'},
    }


def test_metadata_that_nests_too_deep_is_no_fault_of_ours() -> None:
    nested: list[object] = []
    for _ in range(1000):
        nested = [nested]
    with pytest.raises(NoDocumentError, match="cannot be written as JSON"):
        flat_metadata({"deep": nested})
