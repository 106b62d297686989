import gzip
from pathlib import Path

import pytest

from indexer.documents import Assumed, Document, Metadata, Skipped
from indexer.errors import NoDocumentError
from indexer.tables import MAX_RECORD_CHARACTERS, cell_type, read_table


def _read(
    path: Path, content: bytes | str, *, limit: int = MAX_RECORD_CHARACTERS
) -> tuple[list[Document], list[tuple[int | None, str]]]:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    records = list(read_table(path, max_record_characters=limit))
    skipped = [(record.line, record.reason) for record in records if isinstance(record, Skipped)]
    return [record for record in records if isinstance(record, Document)], skipped


def test_columns_find_their_parts_by_usual_names_and_the_rest_is_typed_metadata(tmp_path: Path) -> None:
    content = (
        "DocID,Headline,Body,Link,year,price,in_print,zip,note,name\r\n"
        "7,Fog,Over the harbour.,https://x.example/7,1871,2,true,01234,,Ana\r\n"
        "8,,Tide,,-5,2.50,False,99999,seen,\r\n"
    )
    documents, skipped = _read(tmp_path / "a.csv", content)
    assert skipped == []
    more: Metadata = {"year": 1871, "price": 2.0, "in_print": True, "zip": "01234", "name": "Ana"}
    assert documents == [
        Document("7", "Over the harbour.", "Fog", "https://x.example/7", more),
        Document("8", "Tide", "", "", {"year": -5, "price": 2.5, "in_print": False, "zip": "99999", "note": "seen"}),
    ]
    assert [type(value) for value in documents[0].metadata.values()] == [int, float, bool, str, str]


@pytest.mark.parametrize(
    ("cell", "kind"),
    [
        *(("0", "integer"), ("-12", "integer"), ("007", "text"), ("1" * 19, "integer"), ("1" * 20, "text")),
        *((str(2**63 - 1), "integer"), (str(2**63), "text"), (str(-(2**63)), "integer"), (str(-(2**63) - 1), "text")),
        *(("1.50", "float"), ("2e3", "float"), (".5", "text"), ("1,5", "text"), ("nan", "text"), ("1e999", "text")),
        *(("TRUE", "boolean"), ("yes", "text"), (" 1", "text"), ("١", "text"), ("1_000", "text")),
    ],
)
def test_a_cell_is_a_number_only_if_it_is_written_as_one(cell: str, kind: str) -> None:
    assert cell_type(cell) == kind


def test_quoted_fields_hold_separators_quotes_and_line_ends_and_lines_are_true(tmp_path: Path) -> None:
    content = 'id,text\n"a","one\r\n""two"", three\u2028\u0085\nfour"\n\nb,x,y\nc,"z" z\nd,last'
    documents, skipped = _read(tmp_path / "a.csv", content)
    assert [(each.document_id, each.text) for each in documents] == [
        ("a", 'one\r\n"two", three\u2028\u0085\nfour'),
        ("d", "last"),
    ]
    assert skipped == [(6, "has 3 fields; the header has 2"), (7, "has text after a closing quote")]


@pytest.mark.parametrize("name", ["a.tsv", "a.TAB", "a.tsv.gz"])
def test_the_name_says_what_separates_fields(tmp_path: Path, name: str) -> None:
    content = b'id\ttext\na\tone, two\nb\t"x\ty"\n'
    documents, _ = _read(tmp_path / name, gzip.compress(content) if name.endswith("gz") else content)
    assert [each.text for each in documents] == ["one, two", "x\ty"]


@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        ("\n\nkey,words\n1,x\n", 3, "has no column for the id; it may be named id, _id, document_id"),
        ("id;text\n1;x\n", 1, "has no column for the id"),
        ("id,words\n1,x\n", 1, "has no column for the text; it may be named text, body"),
        ("id,text,Text\n1,x,y\n", 1, "gives two of its columns the same name"),
        ('id,"text\n1,x\n', None, "has a quote that is not closed; lines 1 to 2 are lost"),
    ],
)
def test_a_header_that_does_not_do_is_refused_by_what_is_missing(
    tmp_path: Path, content: str, line: int | None, reason: str
) -> None:
    with pytest.raises(NoDocumentError, match=reason) as refused:
        _read(tmp_path / "a.csv", content)
    assert refused.value.line == line


def test_bad_rows_are_skipped_with_their_true_line_and_quote_nothing(tmp_path: Path) -> None:
    rows = [
        *(b"id,text,title", b",secret,", b"a,fog,", b"a,secret,", b"b,sec\x00ret,", b"c,caf\xe9 secret,"),
        *("d,é è ê,".encode(), b"e,sec\rret,", b'f,"secret', b"g,x,"),
    ]
    documents, skipped = _read(tmp_path / "a.csv", b"\n".join(rows))
    assert [each.document_id for each in documents] == ["a", "d"]
    assert [line for line, _ in skipped] == [2, 4, 5, 6, 8, 9]
    assert [reason for _, reason in skipped][1:] == [
        "repeats the id of line 3",
        "holds a NUL character, so it is not text",
        "holds bytes that are no characters in the encoding of the file",
        "has a carriage return that is neither in quotes nor at its end",
        "has a quote that is not closed; lines 9 to 10 are lost",
    ]
    assert not any("secret" in reason for _, reason in skipped)


def test_a_record_that_is_too_long_is_skipped_and_the_next_is_read(tmp_path: Path) -> None:
    content = f'id,text\na,{"x" * 98}\nb,{"x" * 99}\nc,"{"x" * 50}\n{"y" * 60}"\nd,z\n'
    documents, skipped = _read(tmp_path / "a.csv", content, limit=101)
    assert [each.document_id for each in documents] == ["a", "d"]
    assert skipped == [
        (3, "longer than 101 characters, or has a quote that is not closed"),
        (4, "longer than 101 characters, or has a quote that is not closed; lines 4 to 5 are lost"),
    ]


def test_a_field_of_ten_megabytes_is_read(tmp_path: Path) -> None:
    ((document,), _) = _read(tmp_path / "a.csv", b"id,text\n1," + b"x" * 10_000_000)
    assert len(document.text) == 10_000_000


def test_other_encodings_are_read_and_guesses_are_told(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    for content in ("id,text\na,café\n".encode("utf-16"), "id,text\na,café\n".encode("utf-8-sig")):
        assert _read(path, content) == ([Document("a", "café")], [])
    path.write_bytes("id,text\na,café\n".encode("cp1252"))
    assert list(read_table(path)) == [Document("a", "café"), Assumed(str(path), "cp1252")]


def test_a_column_named_metadata_or_without_a_name_is_kept(tmp_path: Path) -> None:
    ((document,), _) = _read(tmp_path / "a.csv", ",id,text,metadata\n0,a,x,m\n")
    assert document.metadata == {"column_1": 0, "metadata": "m"}


def test_a_file_that_breaks_off_says_how_far_it_was_read(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    with pytest.raises(NoDocumentError, match="cannot be read after line 0: Not a gzipped file") as refused:
        _read(path, b"plain")
    assert refused.value.kind == "unreadable"


def test_an_empty_table_gives_nothing(tmp_path: Path) -> None:
    assert _read(tmp_path / "a.csv", b"") == ([], [])
    assert _read(tmp_path / "b.csv", b"id,text\n") == ([], [])
