"""Markdown and HTML to plain text with headings, a title, and metadata.

The text that is stored, and that offsets refer to, is what these functions return. Of Markdown it is the source
without its front matter, its HTML comments and the lines that only steer a site generator (Liquid tags, attribute
lists); of HTML it is the main text, blocks separated by blank lines, headings marked as in Markdown.
"""

import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import yaml
from bs4 import BeautifulSoup, Tag, XMLParsedAsHTMLWarning
from bs4.element import NavigableString, PageElement

from indexer.documents import MetadataValue
from indexer.records import flat_metadata
from indexer.sections import first_heading

_FRONT_MATTER = re.compile(r"\A---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_FENCED_OR_STEERING = re.compile(
    r"(?P<fence>^ {0,3}(?P<marks>`{3,}|~{3,}).*?(?:^ {0,3}(?P=marks)|\Z))"
    r"|<!--.*?-->"
    r"|^[ \t]*(?:\{%[^\n]*?%\}|\{:[^\n]*?\})[ \t]*$",
    re.DOTALL | re.MULTILINE,
)

_SKIPPED = frozenset(
    ["aside", "button", "footer", "form", "head", "iframe", "nav", "noscript", "script", "style", "svg", "template"]
)
_BLOCK_NAMES = (
    "address article blockquote body dd details div dl fieldset figcaption figure header hr main ol p pre section"
    " summary table ul"
)
_BLOCKS = frozenset(_BLOCK_NAMES.split())
_LINES = frozenset(["br", "dt", "li", "tr"])
_HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}


@dataclass(frozen=True, slots=True)
class Extracted:
    """What a file says: its text, its title ("" if it names none), and its metadata."""

    text: str
    title: str
    metadata: dict[str, MetadataValue] = field(default_factory=dict)


def read_markdown(source: str) -> Extracted:
    """Return the text of a Markdown file; the title is the front matter's, else the first heading.

    Front matter that is no YAML mapping stays in the text.
    """
    fields: dict[str, object] = {}
    match = _FRONT_MATTER.match(source)
    if match and (parsed := _mapping(match[1])) is not None:
        fields, source = parsed, source[match.end() :]
    text = _FENCED_OR_STEERING.sub(lambda found: found["fence"] or "", source)
    title = fields.pop("title", None)
    return Extracted(text, str(title) if title is not None else first_heading(text), flat_metadata(fields))


def _mapping(source: str) -> dict[str, object] | None:
    try:
        parsed = yaml.safe_load(source)
    except (yaml.YAMLError, ValueError):  # ValueError: a date such as 2024-13-45
        return None
    return {str(name): value for name, value in parsed.items()} if isinstance(parsed, dict) else None


def read_html(content: bytes) -> Extracted:
    """Return the main text of an HTML page; its encoding is the one it declares, else UTF-8 or the nearest fit."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", XMLParsedAsHTMLWarning)
        soup = BeautifulSoup(content, "html.parser")
    text = _text_of(_main(soup))
    title = _squeezed(soup.title.get_text()) if soup.title else ""
    return Extracted(text, title if title else first_heading(text), flat_metadata(_page_fields(soup)))


def _main(soup: BeautifulSoup) -> Tag:
    articles = soup.find_all("article")
    marked = [soup.find("main"), soup.find(True, attrs={"role": "main"}), articles[0] if len(articles) == 1 else None]
    for tag in (*marked, soup.body):
        if isinstance(tag, Tag) and tag.get_text(strip=True):
            return tag
    return soup


def _page_fields(soup: BeautifulSoup) -> dict[str, object]:
    html, description = soup.find("html"), soup.find("meta", attrs={"name": "description"})
    return {
        "language": html.get("lang") if isinstance(html, Tag) else None,
        "description": description.get("content") if isinstance(description, Tag) else None,
    }


@dataclass(slots=True)
class _Text:
    """Collects text; a break before the next words is only remembered, so breaks never pile up.

    Between a mark, such as that of a list item, and the next words there is none.
    """

    parts: list[str] = field(default_factory=list)
    pending: str = ""
    is_marked: bool = False

    def separate(self, separator: str) -> None:
        """Ask for a break; the stronger of two stays."""
        if not self.is_marked:
            self.pending = max(self.pending, separator, key=_strength)

    def add(self, words: str, *, is_mark: bool = False) -> None:
        """Add words, or a mark, after the break that was asked for."""
        self.parts += [self.pending, words] if self.parts else [words]
        self.pending = ""
        self.is_marked = is_mark


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
    if tag.name in _BLOCKS or tag.name in _HEADINGS:
        text.separate("\n\n")
    elif tag.name in _LINES:
        text.separate("\n")
    elif tag.name in ("td", "th"):
        text.separate(" | ")
    if event == "enter" and tag.name in _HEADINGS and tag.get_text(strip=True):
        text.add(_HEADINGS[tag.name], is_mark=True)
    elif event == "enter" and tag.name == "li" and tag.get_text(strip=True):
        text.add("- ", is_mark=True)


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
        elif node.name not in _SKIPPED:
            yield event, node
            outstanding.append(("leave", node))
            outstanding.extend(("enter", child) for child in reversed(node.contents))


def _squeezed(string: str) -> str:
    return " ".join(string.split())
