"""Find headings, paragraphs and sentences in a text, each as a slice [start, end) in code points.

Headings are those of Markdown (`## Title`, not inside a code fence) and of reStructuredText (a line underlined by a
run of one sign, at least as long as the line). What looks like code (fenced, indented, or a `>>>` session) is divided
by line, everything else by sentence. Left out: abbreviations are not recognised, which costs an early boundary only.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from indexer.documents import HEADING_SEPARATOR

Slice: TypeAlias = tuple[int, int]

_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_MARKDOWN_HEADING = re.compile(r"(#{1,6})[ \t]+(\S[^\n]*)\n?")
_UNDERLINE = re.compile(r"([=\-~^*#\"'`+])\1{2,}[ \t]*\r?\n?")
_BLANK_LINES = re.compile(r"\n[^\S\n]*\n\s*")
# Tried once for each run of signs and without going back: dotted lines of a table of contents would take hours.
_SENTENCE_END = re.compile(r"(?:(?<![.!?…])[.!?…]++[\"'”’)\]]*+(?=\s)|[。！？｡]++[」』”’）]*+)\s*+")
_CODE_LINE = re.compile(r"(?:\t| {3,}|>>> |\.\.\. )", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Section:
    """A heading line with all that stands under it, up to the next heading; heading is its path, "A > B"."""

    slice: Slice
    heading: str


@dataclass(frozen=True, slots=True)
class _Heading:
    start: int
    level: int
    title: str
    end: int


def sections(text: str) -> list[Section]:
    """Return the sections of a text, in order; together they hold every character that is not blank.

    A heading with nothing under it before the next one belongs to the next one's section.
    """
    found: list[Section] = []
    path: list[_Heading] = []
    start = 0
    headings = list(_headings(text))
    for i, heading in enumerate(headings):
        is_bare = i > 0 and not text[headings[i - 1].end : heading.start].strip()
        if not is_bare:
            found.extend(_section(text, (start, heading.start), path))
            start = heading.start
        path = [*(above for above in path if above.level < heading.level), heading]
    found.extend(_section(text, (start, len(text)), path))
    return found


def paragraphs(text: str, within: Slice) -> Iterator[Slice]:
    """Yield the parts of a slice that blank lines separate, without the blanks around them."""
    yield from _split(text, within, _BLANK_LINES)


def sentences(text: str, paragraph: Slice) -> Iterator[Slice]:
    """Yield the sentences of a paragraph, or its lines if it looks like code, without the blanks around them."""
    is_code = _CODE_LINE.match(text, _line_start(text, paragraph[0])) or "```" in text[slice(*paragraph)]
    if is_code or "\n>>> " in text[slice(*paragraph)]:
        yield from _split(text, paragraph, re.compile(r"\n"))
    else:
        yield from _split(text, paragraph, _SENTENCE_END)


def trimmed(text: str, piece: Slice) -> Iterator[Slice]:
    """Yield the slice without the blanks around it, or nothing if it is blank."""
    part = text[slice(*piece)]
    if part.strip():
        start = piece[0] + len(part) - len(part.lstrip())
        yield start, start + len(part.strip())


def _section(text: str, piece: Slice, path: list[_Heading]) -> Iterator[Section]:
    heading = HEADING_SEPARATOR.join(step.title for step in path)
    for kept in trimmed(text, piece):
        yield Section(kept, heading)


def _split(text: str, within: Slice, boundary: re.Pattern[str]) -> Iterator[Slice]:
    start, end = within
    for match in boundary.finditer(text, start, end):
        yield from trimmed(text, (start, match.end()))
        start = match.end()
    yield from trimmed(text, (start, end))


def _line_start(text: str, place: int) -> int:
    return text.rfind("\n", 0, place) + 1


def _headings(text: str) -> Iterator[_Heading]:
    """Yield the headings in order; the signs of reStructuredText give levels 1, 2, … as they first appear."""
    fence = ""
    signs: list[str] = []
    previous = re.match("", text)
    for line in _LINE.finditer(text):
        content = line[0]
        opened = _FENCE.match(content)
        if fence:
            fence = "" if opened and opened[1].startswith(fence) else fence
        elif opened:
            fence = opened[1]
        elif match := _MARKDOWN_HEADING.fullmatch(content):
            yield _Heading(line.start(), len(match[1]), _title(_unclosed(match[2])), line.end())
        elif previous and (match := _UNDERLINE.fullmatch(content)) and _is_underlined(previous[0], content):
            signs += [match[1]] if match[1] not in signs else []
            yield _Heading(previous.start(), 1 + signs.index(match[1]), _title(previous[0]), line.end())
        previous = line


def _is_underlined(line: str, underline: str) -> bool:
    title = line.strip()
    return (
        bool(title)
        and not line[0].isspace()
        and any(character.isalnum() for character in title)
        and len(title) <= max(len(underline.strip()), 1)
    )


def _unclosed(title: str) -> str:
    """Return a title without the `##` that may close it, at least its first character."""
    return title.removesuffix("\r").rstrip(" \t").rstrip("#").rstrip(" \t") or title[0]


def _title(line: str) -> str:
    """Return a heading without the marks that Markdown and pydoc put around words."""
    return re.sub(r"[*`\"]|\{#[^{}]*\}", "", line).strip()


def first_heading(text: str) -> str:
    """Return the title of the first heading, "" if there is none."""
    return next((heading.title for heading in _headings(text)), "")
