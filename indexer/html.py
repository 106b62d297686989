"""HTML to its main text with headings, a title, metadata and its address.

The text that is stored, and that offsets refer to, is what `read_html` returns: blocks separated by blank lines,
headings and list items marked as in Markdown, cells of a table by ` | `. Navigation, asides, footers, instruments,
scripts and what is hidden are left out. The words of a link stay in the text and its target goes: who searches reads
the words, and follows the page's own address, which its canonical link gives.
"""

import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from bs4 import BeautifulSoup, MarkupResemblesLocatorWarning, Tag, XMLParsedAsHTMLWarning
from bs4.element import NavigableString, PageElement
from bs4.exceptions import ParserRejectedMarkup

from indexer.columns import flat_metadata
from indexer.markup import Extracted
from indexer.paged import damage_told
from indexer.sections import first_heading

_SKIPPED_NAMES = "aside button footer head iframe nav noscript script select style svg template textarea"
_SKIPPED = frozenset(_SKIPPED_NAMES.split())
_BLOCK_NAMES = (
    "address article blockquote body dd details div dl fieldset figcaption figure header hr main ol p pre section"
    " summary table ul"
)
_BLOCKS = frozenset(_BLOCK_NAMES.split())
_LINES = frozenset(["br", "dt", "li", "tr"])
_HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_MARKS = {**_HEADINGS, "li": "- "}
_SKIPPED_ROLES = frozenset(["banner", "complementary", "contentinfo", "navigation", "search"])
_WEB_ADDRESS = re.compile(r"https?://\S+")
_DECLARED = re.compile(
    rb"""<\?xml[^>]{0,200}?encoding\s*=\s*["']([\w.:-]+)|<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w.:-]+)""",
    re.IGNORECASE,
)
_DECLARED_WITHIN_BYTES = 4096


def declared_charset(content: bytes) -> str | None:
    """Return the charset that the beginning of a page declares, None if it declares none."""
    match = _DECLARED.search(content[:_DECLARED_WITHIN_BYTES])
    return (match[1] or match[2]).decode("ascii") if match else None


def read_html(source: str) -> Extracted:
    """Return the main text of a page; the title is the page's, else its first heading.

    Raises:
        NoDocumentError: the parser cannot read it.
    """
    with damage_told("HTML"), warnings.catch_warnings():
        warnings.simplefilter("ignore", XMLParsedAsHTMLWarning)
        warnings.simplefilter("ignore", MarkupResemblesLocatorWarning)
        try:
            soup = BeautifulSoup(source, "html.parser")
        except ParserRejectedMarkup:  # its only reason is a marked section of a kind that it does not know
            soup = BeautifulSoup(source.replace("<![", "&lt;!["), "html.parser")
    text = _text_of(_main(soup))
    title = _squeezed(soup.title.get_text()) if soup.title else ""
    return Extracted(text, title if title else first_heading(text), flat_metadata(_page_fields(soup)), _address(soup))


def _main(soup: BeautifulSoup) -> Tag:
    articles = soup.find_all("article")
    marked = [soup.find("main"), soup.find(True, attrs={"role": "main"}), articles[0] if len(articles) == 1 else None]
    for tag in (*marked, soup.body):
        if isinstance(tag, Tag) and next(tag.stripped_strings, None) is not None:
            return tag
    return soup


def _page_fields(soup: BeautifulSoup) -> dict[str, object]:
    html, description = soup.find("html"), soup.find("meta", attrs={"name": "description"})
    return {
        "language": html.get("lang") if isinstance(html, Tag) else None,
        "description": description.get("content") if isinstance(description, Tag) else None,
    }


def _address(soup: BeautifulSoup) -> str | None:
    link = soup.find("link", rel="canonical")
    address = str(link.get("href", "")).strip() if isinstance(link, Tag) else ""
    return address if _WEB_ADDRESS.fullmatch(address) else None


@dataclass(slots=True)
class _Text:
    """Collects text; what comes before the next words is only remembered, so that without words there is nothing.

    That is a break, then the marks of what they stand in, such as a list item; between those and them is no break.
    """

    parts: list[str] = field(default_factory=list)
    pending: str = ""
    marks: list[str] = field(default_factory=list)

    def separate(self, separator: str) -> None:
        """Ask for a break; the stronger of two stays."""
        if not self.marks:
            self.pending = max(self.pending, separator, key=_strength)

    def enter(self, mark: str) -> None:
        """Begin something with a mark."""
        self.marks.append(mark)

    def leave(self) -> None:
        """End it; if it had no words, it has no mark."""
        if self.marks:
            self.marks.pop()

    def add(self, words: str) -> None:
        """Add words."""
        self.parts += [self.pending, *self.marks, words] if self.parts else [*self.marks, words]
        self.pending = ""
        self.marks.clear()


def _strength(separator: str) -> int:
    return 4 * separator.count("\n") + len(separator)


def _text_of(root: Tag) -> str:
    text = _Text()
    n_pre = 0
    for event, node in _walk(root):
        name = node.name if isinstance(node, Tag) else ""
        n_pre += {"enter": 1, "leave": -1}.get(event, 0) if name == "pre" else 0
        if isinstance(node, Tag):
            _separate(text, node, event)
        elif type(node) is NavigableString:  # comments and declarations are subclasses
            _add_string(text, str(node), is_verbatim=n_pre > 0)
    return "".join(text.parts)


def _separate(text: _Text, tag: Tag, event: str) -> None:
    mark = _MARKS.get(tag.name)
    if event == "leave" and mark is not None:
        text.leave()
    if tag.name in _BLOCKS or tag.name in _HEADINGS:
        text.separate("\n\n")
    elif tag.name in _LINES:
        text.separate("\n")
    elif tag.name in ("td", "th"):
        text.separate(" | ")
    if event == "enter" and mark is not None:
        text.enter(mark)


def _add_string(text: _Text, string: str, *, is_verbatim: bool) -> None:
    words = string.strip("\n") if is_verbatim else _squeezed(string)
    if string[:1].isspace():
        text.separate(" ")
    if words:
        text.add(words)
    if string[-1:].isspace():
        text.separate(" ")


def _walk(root: Tag) -> Iterator[tuple[Literal["enter", "leave", "string"], PageElement]]:
    """Yield the events of a depth-first walk, without recursion: pages nest as deep as they like."""
    outstanding: list[tuple[Literal["enter", "leave"], PageElement]] = [("enter", root)]
    while outstanding:
        event, node = outstanding.pop()
        if not isinstance(node, Tag):
            yield "string", node
        elif event == "leave":
            yield event, node
        elif not _is_skipped(node):
            yield event, node
            outstanding.append(("leave", node))
            outstanding.extend(("enter", child) for child in reversed(node.contents))


def _is_skipped(tag: Tag) -> bool:
    """Return whether a tag is navigation, an instrument, or not shown."""
    is_hidden = tag.has_attr("hidden") or tag.get("aria-hidden") == "true"
    is_hidden = is_hidden or "display:none" in str(tag.get("style", "")).replace(" ", "").lower()
    return tag.name in _SKIPPED or tag.get("role") in _SKIPPED_ROLES or is_hidden


def _squeezed(string: str) -> str:
    return " ".join(string.split())
