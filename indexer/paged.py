"""Files that are made of pages, slides or sheets: what their readers return, and how each becomes a document.

Every page is a document of its own, see docs/adr/0012: a passage then lies on one page, and says on which.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from indexer.columns import MAX_TEXT_CHARACTERS
from indexer.documents import Document, MetadataValue, Skipped
from indexer.errors import NoDocumentError, installing

Unit: TypeAlias = Literal["page", "slide", "sheet"]

_LISTED = 20


@dataclass(frozen=True, slots=True)
class Page:
    """One page, slide or sheet; text is None where it is damaged."""

    text: str | None
    metadata: dict[str, MetadataValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PagedFile:
    """What such a file says: its pages in order, its title ("" if it names none), and metadata of the whole."""

    unit: Unit
    title: str
    pages: Sequence[Page]
    metadata: dict[str, MetadataValue] = field(default_factory=dict)


def page_documents(paged: PagedFile, *, file: str, document_id: str, title: str) -> Iterator[Document | Skipped]:
    """Yield a document for each page with text, and then what was skipped.

    Pages count from 1. A document's id is `document_id#page=3`, its metadata that of the file and of the page, with
    the number under `page` and how many there are under `pages`; likewise for slides and sheets.
    """
    unit, total = paged.unit, len(paged.pages)
    blank: list[int] = []
    damaged: list[int] = []
    for number, page in enumerate(paged.pages, 1):
        if page.text is None:
            damaged.append(number)
        elif not page.text.strip():
            blank.append(number)
        else:
            metadata = {**paged.metadata, **page.metadata, unit: number, f"{unit}s": total}
            yield Document(f"{document_id}#{unit}={number}", page.text, title, metadata=metadata)
    if damaged:
        yield Skipped(file, None, "damaged", f"{_named(unit, damaged)} of {total} cannot be read")
    if blank or not total:
        reason = f"holds no text on {_named(unit, blank)} of {total}" if total else f"has no {unit}s"
        yield Skipped(file, None, "empty", reason)


def _named(unit: Unit, numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:_LISTED]))
    more = f" and {len(numbers) - _LISTED} more" if len(numbers) > _LISTED else ""
    return f"{unit}{'s' if len(numbers) > 1 else ''} {shown}{more}"


@dataclass(slots=True)
class Room:
    """How many more characters of text a file may have, counted as they are made: a small file can stand for many."""

    left: int = MAX_TEXT_CHARACTERS

    def take(self, text: str) -> str:
        """Return the text, which counts from now on.

        Raises:
            NoDocumentError: there is no room for it.
        """
        self.left -= len(text)
        if self.left < 0:
            raise NoDocumentError("too-long", f"has more than {MAX_TEXT_CHARACTERS} characters of text")
        return text


@contextmanager
def damage_told(kind: str) -> Iterator[None]:
    """Turn whatever a library raises about a file into one sentence; its own words may quote the file.

    Raises:
        NoDocumentError: the library raised something.
    """
    try:
        yield
    except (NoDocumentError, MemoryError):
        raise
    except ImportError as error:
        raise NoDocumentError("missing-extra", f"needs the extra `files`: {installing('files')}") from error
    # A broken file makes these libraries raise anything from KeyError to RecursionError.
    except Exception as error:
        raise NoDocumentError("damaged", f"is damaged, or no {kind} ({type(error).__name__})") from error


def cleaned(text: str) -> str:
    """Return text that a library made with characters that cannot be stored replaced by U+FFFD."""
    return text.replace("\0", "\ufffd").encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
