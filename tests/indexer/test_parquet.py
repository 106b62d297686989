import math
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
