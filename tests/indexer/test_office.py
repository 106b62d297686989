import io
import zipfile

import pytest

from indexer.errors import NoDocumentError
from indexer.office import MAX_UNPACKED_BYTES, read_sheets, read_slides, read_word
from indexer.paged import cleaned
from tests.indexer.small_files import sheets, slides, word


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


@pytest.mark.parametrize("read", [read_word, read_slides, read_sheets])
@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\xd0\xcf\x11\xe0 an old file or one with a password"])
def test_broken_files_are_damaged(read: object, content: bytes) -> None:
    with pytest.raises(NoDocumentError, match=r"is damaged, or no \w+ file \(BadZipFile\)"):
        read(content)  # type: ignore[operator]  # three functions of one kind


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
