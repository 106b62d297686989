import gzip
from pathlib import Path

import pytest

from indexer.documents import Document, Skipped
from indexer.errors import NoDocumentError
from indexer.records import read_json_lines


def _read(path: Path, content: bytes, *, max_line_bytes: int = 1 << 20) -> tuple[list[Document], list[Skipped]]:
    path.write_bytes(content)
    records = list(read_json_lines(path, max_line_bytes=max_line_bytes))
    documents = [record for record in records if isinstance(record, Document)]
    return documents, [record for record in records if isinstance(record, Skipped)]


def _line(document_id: str, text: str) -> bytes:
    return f'{{"id": "{document_id}", "text": "{text}"}}'.encode()


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_lines_end_at_newlines_only_and_unicode_separators_stay_in_the_text(tmp_path: Path, end: bytes) -> None:
    texts = ["one\u2028two", "one\u0085two", "three"]
    lines = end.join(_line(str(i), text) for i, text in enumerate(texts))
    documents, bad = _read(tmp_path / "a.jsonl", lines)
    assert [document.text for document in documents] == texts
    assert not bad


def test_bad_lines_are_reported_with_their_true_number_and_the_rest_is_read(tmp_path: Path) -> None:
    lines = [
        b"\xef\xbb\xbf" + _line("a", "with a byte order mark"),
        b"",
        b"not json",
        _line("b", "?").replace(b"?", b"caf\xe9"),
        _line("c", "?").replace(b"?", b"\x00"),
        b"[1, 2]",
        b'{"id": "d"}',
        b'{"text": "without id"}',
        b'{"id": true, "text": ""}',
        _line("a", "again"),
        b'{"id": "e", "text": "\\ud800"}',
        b'{"id": "f", "text": "", "title": 3}',
        b'{"id": "g", "text": "", "metadata": []}',
        b'{"id": "h", "text": NaN}',
        _line("z", "last, without a newline"),
    ]
    path = tmp_path / "a.jsonl"
    documents, bad = _read(path, b"\n".join(lines))
    assert [document.document_id for document in documents] == ["a", "z"]
    assert [record.line for record in bad] == list(range(3, 15))
    assert {record.file for record in bad} == {str(path)}
    assert bad[1].reason == "byte 25 of the line is not UTF-8"
    assert bad[7].reason == "repeats the id of line 1"
    assert str(bad[0]) == f"{path}:3: not JSON, at character 1"


def test_reasons_quote_nothing_of_the_text(tmp_path: Path) -> None:
    _, bad = _read(tmp_path / "a.jsonl", b'{"id": "a", "text": secret}\n{"id": ["secret"], "text": "secret"}')
    assert len(bad) == 2
    assert not any("secret" in record.reason for record in bad)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b""])
def test_a_line_of_the_greatest_length_is_read_and_a_longer_one_is_not(tmp_path: Path, end: bytes) -> None:
    longest, longer = _line("a", "x" * 100), _line("b", "x" * 101)
    documents, bad = _read(
        tmp_path / "a.jsonl",
        longest + b"\n" + longer + b"\n" + longest.replace(b"a", b"c") + end,
        max_line_bytes=len(longest),
    )
    assert [document.document_id for document in documents] == ["a", "c"]
    assert [(record.line, record.reason) for record in bad] == [(2, f"longer than {len(longest)} bytes")]


def test_a_ten_megabyte_line_is_read_by_default(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(_line("a", "x" * 10_000_000) + b"\n" + _line("b", "y" * 17_000_000) + b"\n" + _line("c", "z"))
    kinds = [type(record) for record in read_json_lines(path)]
    assert kinds == [Document, Skipped, Document]


def test_escaped_nul_beir_ids_numbers_and_other_fields_are_kept(tmp_path: Path) -> None:
    line = b'{"_id": 7, "text": "a\\u0000b", "title": null, "url": "u", "year": 1999, "tags": ["x"], "gone": null}'
    (document,), _ = _read(tmp_path / "a.jsonl", line)
    assert document == Document("7", "a\0b", "", "u", {"year": 1999, "tags": '["x"]'})


def test_compressed_files_are_read_and_broken_ones_are_an_error_that_says_how_far(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    documents, _ = _read(path, gzip.compress(_line("a", "x") + b"\n" + _line("b", "y")))
    assert [document.document_id for document in documents] == ["a", "b"]
    path.write_bytes(b"plain")
    with pytest.raises(NoDocumentError, match="cannot be read after line 0: Not a gzipped file"):
        list(read_json_lines(path))
    path.write_bytes(gzip.compress(b"\n" * 50_000)[:-9])
    with pytest.raises(NoDocumentError, match=r"cannot be read after line \d+: Compressed file ended"):
        list(read_json_lines(path))


def test_other_usual_names_serve_as_fields(tmp_path: Path) -> None:
    line = b'{"docid": "a", "Headline": "T", "content": "x", "link": "https://x.example", "name": "n"}'
    documents, _ = _read(tmp_path / "a.jsonl", line)
    assert documents == [Document("a", "x", "T", "https://x.example", {"name": "n"})]


def test_utf_16_is_said_to_be_the_matter(tmp_path: Path) -> None:
    with pytest.raises(NoDocumentError, match="is UTF-16; JSON Lines is read as UTF-8"):
        _read(tmp_path / "a.jsonl", '{"id": "a", "text": "x"}'.encode("utf-16"))


def test_a_record_that_nests_too_deep_is_skipped(tmp_path: Path) -> None:
    deep = b'{"id": "a", "text": "x", "tree": ' + b"[" * 300 + b"]" * 300 + b"}"
    documents, skipped = _read(tmp_path / "a.jsonl", deep + b"\n" + _line("b", "y"))
    assert [each.document_id for each in documents] == ["b"]
    assert [(each.line, each.kind) for each in skipped] == [(1, "bad-record")]
