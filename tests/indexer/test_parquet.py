import math
import tracemalloc
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from indexer.documents import Document, Skipped
from indexer.errors import NoDocumentError
from indexer.parquet import read_parquet


def _written(path: Path, columns: Mapping[str, Sequence[object]]) -> Path:
    parquet.write_table(pa.table(dict(columns)), path, row_group_size=2)
    return path


def test_rows_are_documents_with_typed_metadata(tmp_path: Path) -> None:
    columns: dict[str, Sequence[object]] = {
        **{"ID": [1, 2], "body": ["Fog", "Tide"], "title": ["T", None], "year": [1871, None]},
        **{"share": [0.5, math.nan], "open": [True, False], "day": [date(2024, 2, 3), None]},
        "metadata": [{"lang": "en"}, None],
    }
    path = _written(tmp_path / "a.parquet", columns)
    assert list(read_parquet(path)) == [
        Document("1", "Fog", "T", None, {"year": 1871, "share": 0.5, "open": True, "day": "2024-02-03", "lang": "en"}),
        Document("2", "Tide", "", None, {"open": False}),
    ]


def test_bad_rows_are_skipped_by_number_across_batches(tmp_path: Path) -> None:
    ids: list[object] = [*(str(i) for i in range(600)), None, "599", "last"]
    path = _written(tmp_path / "a.parquet", {"id": ids, "text": ["x"] * 602 + [None]})
    records = list(read_parquet(path))
    assert sum(isinstance(record, Document) for record in records) == 600
    skipped = [record for record in records if isinstance(record, Skipped)]
    assert [(record.kind, record.reason.split(":")[0]) for record in skipped] == [
        ("bad-record", "row 601"),
        ("repeated-id", "row 602"),
        ("bad-record", "row 603"),
    ]


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoDocumentError, match="has no column for the text; it may be named text, body") as refused:
        list(read_parquet(_written(tmp_path / "a.parquet", {"id": ["1"], "words": ["x"]})))
    assert refused.value.kind == "missing-column"


@pytest.mark.parametrize(
    ("numbers", "kind", "shown"),
    [
        ([2**31 - 1, 0], pa.date32(), ["5881580-07-11", "1970-01-01"]),
        ([-(2**31), None], pa.date32(), ["-5877641-06-23", None]),
        ([2**62, 1], pa.timestamp("us"), ["148108-07-06T14:00:27.387904", "1970-01-01T00:00:00.000001"]),
        ([2**62, -(2**63)], pa.timestamp("ms"), ["146140482-04-24T15:36:27.904", None]),
        ([1_001, 2_000], pa.timestamp("ns"), ["1970-01-01T00:00:00.000001", "1970-01-01T00:00:00.000002"]),
        ([1_001, 0], pa.timestamp("ns", "+01:00"), ["1970-01-01T01:00:00.000001+01:00", "1970-01-01T01:00:00+01:00"]),
        ([1, None], pa.timestamp("us", "+99:99"), ["1970-01-01T00:00:00.000001+00:00", None]),
        ([1, None], pa.timestamp("us", "Mars/Phobos"), ["1970-01-01T00:00:00.000001+00:00", None]),
        ([1_001, 0], pa.time64("ns"), ["00:00:00.000001", "00:00:00"]),
    ],
)
def test_a_date_or_time_that_python_has_none_for_is_kept(
    tmp_path: Path, numbers: list[int | None], kind: pa.DataType, shown: list[str | None]
) -> None:
    width = pa.int32() if kind == pa.date32() else pa.int64()
    columns = {"id": ["a", "b"], "text": ["x", "y"], "day": pa.array(numbers, width).cast(kind)}
    documents = list(read_parquet(_written(tmp_path / "a.parquet", columns)))
    assert all(isinstance(document, Document) for document in documents)
    assert [document.metadata.get("day") for document in documents if isinstance(document, Document)] == shown


def _not_utf8() -> pa.Array:
    ends = pa.array([0, 1, 2], pa.int32()).buffers()[1]
    return pa.Array.from_buffers(pa.string(), 2, [None, ends, pa.py_buffer(b"\xffa")])


@pytest.mark.parametrize(
    ("odd", "kind", "reason"),
    [
        (_not_utf8(), "not-text", "row 1: column 3 holds bytes that are no characters"),
        (
            pa.array([2**62, 0]).cast(pa.duration("s")),
            "bad-record",
            "row 1: column 3 holds a value that cannot be read",
        ),
        (
            *(pa.array([[1], []], pa.list_(pa.timestamp("ns"))), "bad-record"),
            "row 1: column 3 holds a value that cannot be read",
        ),
    ],
)
def test_a_value_that_cannot_be_read_costs_its_row_alone(tmp_path: Path, odd: pa.Array, kind: str, reason: str) -> None:
    path = _written(tmp_path / "a.parquet", {"id": ["a", "b"], "text": ["x", "y"], "odd": odd})
    skipped, document = read_parquet(path)
    assert isinstance(skipped, Skipped)
    assert (skipped.kind, skipped.reason) == (kind, reason)
    assert isinstance(document, Document)
    assert document.document_id == "b"


def test_long_texts_are_not_all_held_at_once(tmp_path: Path) -> None:
    texts = pa.array(["x" * 1_000_000] * 256).dictionary_encode()  # a small file
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"id": range(256), "text": texts}), path)
    tracemalloc.start()
    try:
        assert sum(isinstance(record, Document) for record in read_parquet(path)) == 256
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 40_000_000


@pytest.mark.parametrize("names", [["id", "text", "text"], ["id", "text", "year", "Year"], ["ID", "text", "id "]])
def test_two_columns_of_one_name_are_refused_as_in_a_table(tmp_path: Path, names: list[str]) -> None:
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table([pa.array(["1"])] * len(names), names=names), path)
    with pytest.raises(NoDocumentError, match="gives two of its columns the same name") as refused:
        list(read_parquet(path))
    assert refused.value.kind == "missing-column"


def test_a_broken_file_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(b"PAR1 and then nothing")
    with pytest.raises(NoDocumentError, match="is damaged, or no Parquet, after row 0"):
        list(read_parquet(path))
