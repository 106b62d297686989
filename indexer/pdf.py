"""PDF to the text of its pages, with pypdf; needs the extra `files`. Pictures are not read, so a scan has no text."""

import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from indexer.errors import NoDocumentError
from indexer.paged import Page, PagedFile, Room, cleaned, damage_told

if TYPE_CHECKING:
    from pypdf import PageObject


def read_pdf(content: bytes) -> PagedFile:
    """Return the pages of a PDF file, with its title and author; one that opens without a password is decrypted.

    Raises:
        NoDocumentError: it is damaged, too long or needs a password, or the extra is missing.
    """
    with damage_told("PDF"), _silent_pypdf():
        from pypdf import PdfReader

        reader = PdfReader(io.BytesIO(content))
        if reader.is_encrypted and not reader.decrypt(""):
            raise NoDocumentError("unreadable", "needs a password")
        room = Room()
        pages = [_page(page, room) for page in reader.pages]
        about = reader.metadata
        title, author = (about.title, about.author) if about is not None else (None, None)
        metadata = {"author": cleaned(author)} if author else {}
        return PagedFile("page", cleaned(title or ""), pages, dict(metadata))


def _page(page: "PageObject", room: Room) -> Page:
    try:
        with damage_told("PDF"):
            text = cleaned(page.extract_text())
    except NoDocumentError:
        return Page(None)
    return Page(room.take(text))


@contextmanager
def _silent_pypdf() -> Iterator[None]:
    """Keep pypdf from logging what it repairs meanwhile: it may quote the file."""
    logger = logging.getLogger("pypdf")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)
