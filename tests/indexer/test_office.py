import io
import zipfile
from collections.abc import Callable

import pytest

from indexer.errors import NoDocumentError
from indexer.office import MAX_UNPACKED_BYTES, read_sheets, read_slides, read_word
from indexer.paged import Room, cleaned
from indexer.pdf import read_pdf
from tests.indexer.small_files import pdf, sheets, slides, word


def test_word_gives_headings_lists_and_tables_in_their_order() -> None:
    found = read_word(word())
    assert (found.title, found.metadata) == ("Harbour rules", {"author": "Ana"})
    assert found.text.split("\n\n") == [
        *("# Harbour", "Boats wait for the tide.", "## Fees", "- by length", "Fee\nsmall | 7"),
    ]


def test_a_slide_gives_its_title_text_tables_groups_and_notes() -> None:
    found = read_slides(slides())
    assert (found.unit, found.title, found.metadata) == ("slide", "Tide talk", {"author": "Ben"})
    first, blank, grouped = (page.text for page in found.pages)
    assert first == "# High water\n\nTwice a day\nat the harbour\n\nPorto | 3 m\n\nTell of the storm."
    assert (blank, grouped) == ("", "left box\n\nright box")


def test_a_sheet_gives_a_paragraph_a_row_and_its_name() -> None:
    found = read_sheets(sheets())
    assert (found.unit, found.title, found.metadata) == ("sheet", "Fees", {"author": "Cem"})
    prices, empty = found.pages
    assert prices.text == "boat | fee | since | open\n\nsmall boat | 7 | 2024-02-03 | True\n\nlarge | 7.5"
    assert (prices.metadata, empty.text) == ({"sheet_name": "Prices"}, "")


def test_blank_cells_keep_columns_apart_up_to_eight_and_none_stand_at_the_end() -> None:
    import openpyxl

    book = openpyxl.Workbook()
    sheet = book.active
    sheet.append([None, None, "a", "", "b", " ", None])
    for row in (2, 3):
        sheet.cell(row, 16_384, "far")
    sheet.cell(3, 10, "ten")
    content = io.BytesIO()
    book.save(content)
    ((page),) = read_sheets(content.getvalue()).pages
    assert page.text == f" |  | a |  | b\n\n{' | ' * 8}far\n\n{' | ' * 8}ten{' | ' * 9}far"


def test_a_small_file_cannot_stand_for_any_amount_of_text() -> None:
    import openpyxl

    book = openpyxl.Workbook()
    for _ in range(520):
        book.active.append(["x" * 32_767])  # stored once
    content = io.BytesIO()
    book.save(content)
    assert len(content.getvalue()) < 100_000
    with pytest.raises(NoDocumentError, match="has more than 16777216 characters of text") as refused:
        read_sheets(content.getvalue())
    assert refused.value.kind == "too-long"


@pytest.mark.parametrize(
    ("read", "content", "n_characters"),
    [(read_word, word(), 64), (read_slides, slides(), 92), (read_sheets, sheets(), 70), (read_pdf, pdf(["a", "b"]), 2)],
)
def test_all_of_a_file_counts(
    read: Callable[[bytes], object], content: bytes, n_characters: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Room.__init__, "__defaults__", (n_characters,))
    read(content)
    monkeypatch.setattr(Room.__init__, "__defaults__", (n_characters - 1,))
    with pytest.raises(NoDocumentError, match="has more than 16777216 characters of text"):
        read(content)


@pytest.mark.parametrize("read", [read_word, read_slides, read_sheets])
@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\xd0\xcf\x11\xe0 an old file or one with a password"])
def test_broken_files_are_damaged(read: Callable[[bytes], object], content: bytes) -> None:
    with pytest.raises(NoDocumentError, match=r"is damaged, or no \w+ file \(BadZipFile\)"):
        read(content)


def test_an_archive_of_another_kind_is_damaged_and_a_bomb_is_not_unpacked() -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("readme", "x")
    with pytest.raises(NoDocumentError, match="is damaged, or no Word file"):
        read_word(content.getvalue())
    with zipfile.ZipFile(content, "a", zipfile.ZIP_DEFLATED) as archive, archive.open("bomb", "w") as bomb:
        bomb.write(b"x")
    grown = content.getvalue().replace(
        (1).to_bytes(4, "little") + (4).to_bytes(2, "little"), b"\xff\xff\xff\x7f\x04\x00"
    )
    with pytest.raises(NoDocumentError, match=f"at most {MAX_UNPACKED_BYTES} are read") as refused:
        read_word(grown)
    assert refused.value.kind == "too-long"


def test_what_cannot_be_stored_is_replaced() -> None:
    assert cleaned("a\0b\ud800c\ud83d\udc1d") == "a\ufffdb\ufffdc🐝"
