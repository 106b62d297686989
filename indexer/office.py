"""Word, PowerPoint and Excel files (.docx, .pptx, .xlsx) to text; needs the extra `files`.

Word keeps no pages, so a .docx is one document, with headings and list items marked as in Markdown. Left out: headers
and footers, footnotes, comments, text boxes, charts, pictures; a formula counts as the value that was stored with it.
"""

import io
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime, time
from typing import TYPE_CHECKING

from indexer.documents import MetadataValue
from indexer.errors import NoDocumentError
from indexer.markup import Extracted
from indexer.paged import Page, PagedFile, Room, cleaned, damage_told
from indexer.sections import first_heading

if TYPE_CHECKING:
    from docx.table import Table
    from docx.text.paragraph import Paragraph
    from pptx.shapes.base import BaseShape
    from pptx.slide import Slide

MAX_UNPACKED_BYTES = 512 << 20

_CELL_SEPARATOR = " | "
_MAX_BLANK_CELLS = 8


def read_word(content: bytes) -> Extracted:
    """Return the text of a .docx file; the title is its property, else its first heading.

    Raises:
        NoDocumentError: it is damaged, too long or unpacks to more than MAX_UNPACKED_BYTES, or the extra is missing.
    """
    with _office("Word file", content):
        import docx
        from docx.table import Table

        document = docx.Document(io.BytesIO(content))
        blocks = (
            _table(block) if isinstance(block, Table) else _paragraph(block) for block in document.iter_inner_content()
        )
        room = Room()
        text = cleaned("\n\n".join(room.take(block) for block in blocks if block.strip()))
        about = document.core_properties
        return Extracted(text, cleaned(about.title) or first_heading(text), _authored(about.author))


def read_slides(content: bytes) -> PagedFile:
    """Return the slides of a .pptx file, each with its title as a heading and its notes at the end.

    Raises:
        NoDocumentError: as `read_word`.
    """
    with _office("PowerPoint file", content):
        import pptx

        presentation = pptx.Presentation(io.BytesIO(content))
        room = Room()
        pages = [Page(cleaned(room.take(_slide(slide)))) for slide in presentation.slides]
        about = presentation.core_properties
        return PagedFile("slide", cleaned(about.title), pages, _authored(about.author))


def read_sheets(content: bytes) -> PagedFile:
    """Return the sheets of an .xlsx file, a paragraph for each row that is not blank, with their names as metadata.

    Raises:
        NoDocumentError: as `read_word`.
    """
    with _office("Excel file", content):
        import openpyxl

        book = openpyxl.load_workbook(io.BytesIO(content), read_only=True, data_only=True)
        pages: list[Page] = []
        room = Room()
        for sheet in book.worksheets:
            sheet.reset_dimensions()  # what the file says of them is often wrong
            rows = (_cells(_values(row)) for row in sheet.iter_rows(values_only=True))
            text = cleaned("\n\n".join(room.take(row) for row in rows if row))
            pages.append(Page(text, {"sheet_name": cleaned(sheet.title)}))
        return PagedFile("sheet", cleaned(book.properties.title or ""), pages, _authored(book.properties.creator))


@contextmanager
def _office(kind: str, content: bytes) -> Iterator[None]:
    with damage_told(kind), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about features that are left out
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            n_bytes = sum(entry.file_size for entry in archive.infolist())
        if n_bytes > MAX_UNPACKED_BYTES:
            raise NoDocumentError("too-long", f"unpacks to {n_bytes} bytes; at most {MAX_UNPACKED_BYTES} are read")
        yield


def _authored(author: str | None) -> dict[str, MetadataValue]:
    return {"author": cleaned(author)} if author else {}


def _paragraph(paragraph: "Paragraph") -> str:
    text = paragraph.text.strip()
    style = paragraph.style.name if paragraph.style is not None else None
    words = (style or "").lower().split()
    match words:
        case ["title"]:
            mark = "# "
        case ["heading", level] if level.isdecimal():
            mark = "#" * min(int(level), 6) + " "
        case ["list", *_]:
            mark = "- "
        case _:
            mark = ""
    return f"{mark}{text}" if text else ""


def _table(table: "Table") -> str:
    """Return the rows of a table, one a line; a merged cell counts once."""
    rows: list[str] = []
    for row in table.rows:
        cells = {id(cell._tc): " ".join(cell.text.split()) for cell in row.cells}
        rows.append(_cells(enumerate(cells.values())))
    return "\n".join(row for row in rows if row)


def _slide(slide: "Slide") -> str:
    title = slide.shapes.title
    heading = " ".join(title.text_frame.text.split()) if title is not None else ""
    blocks = [f"# {heading}" if heading else ""]
    blocks += [text for shape in slide.shapes for text in _shape_texts(shape) if title is None or shape != title]
    if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
        blocks.append(slide.notes_slide.notes_text_frame.text)
    return "\n\n".join(block.strip() for block in blocks if block.strip())


def _shape_texts(shape: "BaseShape") -> Iterator[str]:
    """Yield the texts of a shape, of the rows of its table, and of the shapes that it groups."""
    from pptx.shapes.graphfrm import GraphicFrame
    from pptx.shapes.group import GroupShape

    if isinstance(shape, GroupShape):
        for member in shape.shapes:
            yield from _shape_texts(member)
    elif isinstance(shape, GraphicFrame) and shape.has_table:
        rows = (_cells(enumerate(" ".join(cell.text.split()) for cell in row.cells)) for row in shape.table.rows)
        yield "\n".join(row for row in rows if row)
    elif shape.has_text_frame:
        # A line break within a paragraph is a vertical tab here.
        yield str(getattr(shape, "text_frame").text).replace("\v", "\n")  # noqa: B009 - only some shapes have one


def _cells(cells: Iterable[tuple[int, str]]) -> str:
    """Return the cells of a row, given with their places, in one line; "" if all are blank.

    The blank ones at its end are left out, as are all but _MAX_BLANK_CELLS of those side by side.
    """
    kept: list[str] = []
    end = 0
    for place, text in cells:
        if text.strip():
            kept += [*[""] * min(place - end, _MAX_BLANK_CELLS), text]
            end = place + 1
    return _CELL_SEPARATOR.join(kept)


def _values(row: Sequence[object]) -> Iterator[tuple[int, str]]:
    """Yield the places and texts of the cells that have a value; a row can be 16,384 cells wide for the sake of one."""
    return ((place, _shown(value)) for place, value in enumerate(row) if value is not None)


def _shown(value: object) -> str:
    """Return a value as text: a whole float without its zero, dates as in ISO 8601."""
    if isinstance(value, datetime) and value.time() == time():
        return value.date().isoformat()
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return " ".join(str(value).split())
