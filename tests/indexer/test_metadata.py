import random
from pathlib import Path

import numpy as np
import pytest

from indexer.documents import Document, MetadataValue
from indexer.errors import SnapshotError
from indexer.metadata import FIELDS_FILE, Metadata
from tests.indexer.columns import columns_of, documents_with
from tests.indexer.work import calls_in


def test_each_kind_of_value_has_a_column_of_its_own(tmp_path: Path) -> None:
    columns = columns_of(documents_with({"x": True}, {"x": 3}, {"x": "a"}, {"x": "B"}, {}, {"x": "a"}), tmp_path)
    assert columns.kinds("x") == {"boolean", "number", "text"}
    assert [(each.storage, each.n_documents) for each in columns.fields["x"].columns] == [
        ("boolean", 1), ("integer", 1), ("text", 3)
    ]  # fmt: skip
    booleans, integers, texts = columns.booleans("x"), columns.integers("x"), columns.texts("x")
    assert booleans is not None
    assert integers is not None
    assert texts is not None
    assert booleans.documents is not None
    assert (booleans.documents.tolist(), booleans.values.tolist()) == ([0], [True])
    assert integers.values.tolist() == [3]
    assert texts.documents is not None
    assert (texts.documents.tolist(), texts.values.tolist()) == ([2, 3, 5], [1, 0, 1])
    assert [texts.texts[i] for i in range(2)] == [b"B", b"a"]
    assert (columns.floats("x"), columns.texts("y")) == (None, None)
    assert columns.kinds("y") == set()


@pytest.mark.parametrize(
    ("values", "storage", "stored"),
    [
        ([1, -(2**63), 2**63 - 1], "integer", [1, -(2**63), 2**63 - 1]),
        ([1, 2.5], "float", [1.0, 2.5]),
        ([2.0, 1], "float", [2.0, 1.0]),
        ([7, 2**63], "float", [7.0, float(2**63)]),
        ([10**400, -(10**400)], "float", [float("inf"), float("-inf")]),
    ],
)
def test_numbers_are_int64_unless_one_is_not_whole_or_does_not_fit(
    tmp_path: Path, values: list[int | float], storage: str, stored: list[float]
) -> None:
    columns = columns_of(documents_with(*({"n": value} for value in values)), tmp_path)
    [record] = columns.fields["n"].columns
    column = columns.integers("n") if storage == "integer" else columns.floats("n")
    assert column is not None
    assert (record.storage, column.documents, column.values.tolist()) == (storage, None, stored)


def test_built_in_fields_are_there_unless_empty_and_hide_metadata_of_their_name(tmp_path: Path) -> None:
    documents = [Document("a", "", "T", "u", {"title": "hidden", "url": 3}), Document("b", "", metadata={"title": "m"})]
    columns = columns_of(documents, tmp_path)
    shown = {}
    for name in columns.fields:
        column = columns.texts(name)
        assert column is not None
        shown[name] = [column.texts[i] for i in range(len(column.texts))]
    assert shown == {"document_id": [b"a", b"b"], "title": [b"T", b"m"], "url": [b"u"]}


def test_documents_and_passages_lead_to_each_other(tmp_path: Path) -> None:
    columns = columns_of(documents_with({}, {}, {}), tmp_path, n_passages=[2, 0, 1])
    assert columns.n_passages == 3
    assert columns.of_documents(np.array([True, True, False])).tolist() == [True, True, False]
    assert columns.of_passages(np.array([False, True, False])).tolist() == [True, False, False]
    assert columns.of_passages(np.array([True, True, True])).tolist() == [True, False, True]


@pytest.mark.parametrize("documents", [[], documents_with({})])
def test_nothing_to_hold_is_held(tmp_path: Path, documents: list[Document]) -> None:
    columns = columns_of(documents, tmp_path, n_passages=[0] * len(documents))
    assert columns.of_documents(np.ones(len(documents), np.bool_)).size == columns.n_passages == 0
    assert columns.of_passages(np.zeros(0, np.bool_)).tolist() == [False] * len(documents)


def test_the_same_documents_give_the_same_bytes_whatever_the_order_of_their_fields(tmp_path: Path) -> None:
    generator = random.Random(0)
    values: list[MetadataValue] = [True, 1, 2.5, "ß", "\0", ""]
    metadata = [{name: generator.choice(values) for name in "cab"} for _ in range(50)]
    written = []
    for number, each in enumerate((metadata, [dict(sorted(fields.items())) for fields in metadata])):
        folder = tmp_path / str(number)
        folder.mkdir()
        columns_of(documents_with(*each), folder)
        assert [path.name for path in folder.iterdir()] == ["metadata"]
        written.append({path.name: path.read_bytes() for path in (folder / "metadata").iterdir()})
    assert written[0] == written[1]
    assert len(written[0]) == 9


def test_twice_as_many_fields_are_twice_the_work(tmp_path: Path) -> None:
    def write(n: int) -> int:
        fields: dict[str, MetadataValue] = {str(i): (i, True, "x")[i % 3] for i in range(n)}
        documents = documents_with(fields, {})
        (tmp_path / str(n)).mkdir()
        return calls_in(lambda: columns_of(documents, tmp_path / str(n)))

    assert write(1200) < 2.2 * write(600)


def test_a_list_of_fields_that_is_none_is_refused(tmp_path: Path) -> None:
    columns_of(documents_with({"x": 1}), tmp_path)
    (tmp_path / "metadata" / FIELDS_FILE).write_text('{"fields": 3}')
    with pytest.raises(SnapshotError, match=r"fields\.json is not a list of fields"):
        Metadata(tmp_path / "metadata", n_documents=1)
