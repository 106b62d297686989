"""Small PDF, Word, PowerPoint and Excel files, made by hand or with the libraries that read them."""

import io
from collections.abc import Sequence


def pdf(pages: Sequence[str], *, title: str = "", damaged: int | None = None) -> bytes:
    """Return a PDF file with a line of text on each page, "" for none; the page `damaged` has a broken stream."""
    streams = [f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET" if text else "" for text in pages]
    kids = " ".join(f"{4 + 2 * i} 0 R" for i in range(len(pages)))
    bodies = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]
    for i, stream in enumerate(streams, 1):
        coded = " /Filter /FlateDecode" if damaged == i else ""
        bodies.append(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >> "
            f"/Contents {3 + 2 * i} 0 R >>"
        )
        bodies.append(f"<< /Length {len(stream)}{coded} >>\nstream\n{stream}\nendstream")
    bodies.append(f"<< /Title ({title}) /Author (Ana) >>")
    written, places = b"%PDF-1.4\n", []
    for number, body in enumerate(bodies, 1):
        places.append(len(written))
        written += f"{number} 0 obj\n{body}\nendobj\n".encode("latin-1")
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    end = f"xref\n0 {len(bodies) + 1}\n0000000000 65535 f \n{table}trailer\n"
    end += f"<< /Size {len(bodies) + 1} /Root 1 0 R /Info {len(bodies)} 0 R >>\nstartxref\n{len(written)}\n%%EOF\n"
    return written + end.encode()


def word() -> bytes:
    """Return a .docx file with headings, a list, a table with a merged cell, and an empty paragraph."""
    import docx

    document = docx.Document()
    document.core_properties.title, document.core_properties.author = "Harbour rules", "Ana"
    document.add_heading("Harbour", 0)
    document.add_paragraph("Boats wait for the tide.")
    document.add_paragraph("")
    document.add_heading("Fees", 2)
    document.add_paragraph("by length", style="List Bullet")
    table = document.add_table(rows=2, cols=2)
    table.cell(0, 0).merge(table.cell(0, 1)).text = "Fee"
    table.cell(1, 0).text, table.cell(1, 1).text = "small", "7"
    return _saved(document)


def slides() -> bytes:
    """Return a .pptx file: a slide with title, text, table and notes; a blank one; one with a group of two boxes."""
    import pptx
    from pptx.util import Inches

    deck = pptx.Presentation()
    deck.core_properties.title, deck.core_properties.author = "Tide talk", "Ben"
    first = deck.slides.add_slide(deck.slide_layouts[1])
    first.shapes.title.text = "High water"
    first.placeholders[1].text = "Twice a day\vat the harbour"
    area = (Inches(1), Inches(1), Inches(4), Inches(1))
    table = first.shapes.add_table(1, 2, *area).table
    table.cell(0, 0).text, table.cell(0, 1).text = "Porto", "3 m"
    first.notes_slide.notes_text_frame.text = "Tell of the storm."
    deck.slides.add_slide(deck.slide_layouts[6])
    group = deck.slides.add_slide(deck.slide_layouts[6]).shapes.add_group_shape()
    for text in ("left box", "right box"):
        group.shapes.add_textbox(*area).text_frame.text = text
    return _saved(deck)


def sheets() -> bytes:
    """Return an .xlsx file: a sheet with a header, a date, numbers and a blank row; and an empty sheet."""
    from datetime import datetime

    import openpyxl

    book = openpyxl.Workbook()
    book.properties.title, book.properties.creator = "Fees", "Cem"
    sheet = book.active
    sheet.title = "Prices"
    sheet.append(["boat", "fee", "since", "open"])
    sheet.append([])
    sheet.append(["small\nboat", 7.0, datetime(2024, 2, 3), True])
    sheet.append(["large", 7.5, None, None])
    book.create_sheet("Empty")
    return _saved(book)


def _saved(file: object) -> bytes:
    content = io.BytesIO()
    file.save(content)  # type: ignore[attr-defined]  # all of them have it
    return content.getvalue()
