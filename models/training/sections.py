"""Learn from documents without labels: a heading of a Markdown page asks for the section under it.

It is how a cross-encoder gets to see the vocabulary of a corpus; what it learns is weaker than from real queries.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from models.errors import DataError
from models.training.data import Triple

_HEADING = re.compile(r"^(#{1,4})\s+(.+?)\s*#*$", re.MULTILINE)
_FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
_MARKUP = re.compile(r"(?s:<!--.*?-->)|<[^>\n]*>|\{[%{:].*?[}%]\}|!?\[([^\]]*)\]\([^)]*\)|[`*|]+|-{3,}")
_MIN_WORDS, _MAX_WORDS = 15, 180
_MAX_HEADING_WORDS = 12


def pairs_from_documents(folder: Path) -> list[Triple]:
    """Return a pair (no negatives) for each section of the Markdown files under folder, by path.

    The query is the page's first heading and the section's own, the passage its first 180 words without markup.
    Sections of under 15 words are left out.

    Raises:
        DataError: the folder holds no Markdown file.
    """
    paths = sorted(path for path in folder.rglob("*.md") if path.is_file())
    if not paths:
        raise DataError(f"{folder} holds no Markdown file (*.md)")
    return [pair for path in paths for pair in _pairs(path.read_text(encoding="utf-8", errors="replace"))]


def _pairs(page: str) -> Iterator[Triple]:
    text = _FRONT_MATTER.sub("", page)
    title = next(iter(re.findall(r"^title:\s*[\"']?(.+?)[\"']?\s*$", page, re.MULTILINE)), "")
    headings = list(_HEADING.finditer(text))
    for number, heading in enumerate(headings):
        end = headings[number + 1].start() if number + 1 < len(headings) else len(text)
        words = _plain(text[heading.end() : end]).split()[:_MAX_WORDS]
        name = _plain(heading[2])
        title = title or name
        asked = name if name.casefold() in title.casefold() else f"{title} {name}"
        if len(words) >= _MIN_WORDS and 0 < len(asked.split()) <= _MAX_HEADING_WORDS:
            yield Triple(asked, " ".join(words), ())


def _plain(markdown: str) -> str:
    """Return Markdown on one line, without its most common markup."""
    return " ".join(_MARKUP.sub(lambda match: match[1] or " ", markdown).split())
