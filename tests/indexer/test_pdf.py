import io
import logging

import pytest

from indexer.errors import NoDocumentError
from indexer.pdf import read_pdf
from tests.indexer.small_files import pdf


def test_pages_come_in_order_with_title_and_author() -> None:
    found = read_pdf(pdf(["Boats wait.", "", "The caf\xe9 is open."], title="Harbour"))
    assert (found.unit, found.title, found.metadata) == ("page", "Harbour", {"author": "Ana"})
    assert [page.text for page in found.pages] == ["Boats wait.", "", "The café is open."]


def test_a_damaged_page_leaves_the_others_readable() -> None:
    first, second, third = read_pdf(pdf(["one", "two", "three"], damaged=2)).pages
    assert (first.text, third.text) == ("one", "three")
    assert not second.text


@pytest.mark.parametrize("content", [b"%PDF-1.7", b"%PDF-1.4\ntrailer << /Root 9 0 R >>\n%%EOF", b"\x00" * 999])
def test_what_is_no_pdf_is_damaged_and_nothing_is_logged(content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(NoDocumentError, match="is damaged, or no PDF") as refused:
        read_pdf(content)
    assert refused.value.kind == "damaged"
    assert caplog.records == []
    assert logging.getLogger("pypdf").level == logging.NOTSET


@pytest.mark.parametrize("algorithm", ["RC4-128", "AES-256"])
def test_only_a_file_that_needs_a_password_is_refused(algorithm: str) -> None:
    from pypdf import PdfReader, PdfWriter

    for password in ("", "secret"):
        writer = PdfWriter(PdfReader(io.BytesIO(pdf(["text"]))))
        writer.encrypt(password, owner_password="other", algorithm=algorithm)
        content = io.BytesIO()
        writer.write(content)
        if password:
            with pytest.raises(NoDocumentError, match="needs a password"):
                read_pdf(content.getvalue())
        else:
            assert [page.text for page in read_pdf(content.getvalue()).pages] == ["text"]
