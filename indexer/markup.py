"""Markdown and reStructuredText to plain text with headings, a title, and metadata.

The text that is stored, and that offsets refer to, is what these functions return: the source without what does not
show. Of Markdown that is front matter, HTML comments and the lines that only steer a site generator (Liquid tags,
attribute lists); of reStructuredText it is the fields at its start, comments, targets, substitutions, tables of
contents, pictures, and the marks of roles. Left out: other directives are kept as they are written.
"""

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field

import yaml

from indexer.columns import flat_metadata
from indexer.documents import MetadataValue
from indexer.errors import NoDocumentError
from indexer.sections import first_heading

_FRONT_MATTER = re.compile(
    r"\A(?P<fence>---|\+\+\+)[ \t]*\r?\n(?P<fields>.*?)^(?P=fence)[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE
)
# A comment ends its search at the next one that begins: a file full of unclosed ones would take hours.
_FENCED_OR_STEERING = re.compile(
    r"(?P<fence>^ {0,3}(?P<marks>`{3,}|~{3,}).*?(?:^ {0,3}(?P=marks)|\Z))"
    r"|<!--(?:(?!<!--).)*?-->"
    r"|^[ \t]*(?:\{%[^\n]*?%\}|\{:[^\n]*?\})[ \t]*$",
    re.DOTALL | re.MULTILINE,
)
_MOST_FRONT_MATTER = 64 << 10  # characters; the parser of TOML takes time that grows as their square
_WEB_ADDRESS = re.compile(r"https?://\S+")

_FIELDS = re.compile(r"\A\s*((?:^:[^:\r\n]+:(?:[ \t][^\n]*)?\r?(?:\n|\Z))+)", re.MULTILINE)
_FIELD = re.compile(r"^:([^:\r\n]+):[ \t]*([^\r\n]*)", re.MULTILINE)
_OVERLINE = re.compile(r"^([=\-~^*#+])\1{2,}[ \t]*\r?\n(?=[^\r\n]++\r?\n\1{3,}[ \t]*\r?$)", re.MULTILINE)
_EXPLICIT = re.compile(r"[ \t]*\.\.(?=\s|\Z)([^\n]*)")
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_UNSHOWN = re.compile(
    r"(?:toctree|image|contents|index|highlight|meta|raw|currentmodule|module|sectionauthor|moduleauthor)::"
)
_DIRECTIVE = re.compile(r"[\w.:+-]+::")
_FOOTNOTE = re.compile(r"\[[^\]]+\]")
_ROLE = re.compile(r"(?<![\w`]):[a-zA-Z][\w.:+-]{0,60}:`[~!]?([^`<\n]{1,500}?)(?:[ \t]{0,9}<[^`>\n]{0,500}>)?`")


@dataclass(frozen=True, slots=True)
class Extracted:
    """What a file says: its text, its title ("" if it names none), its metadata, and its address on the web."""

    text: str
    title: str
    metadata: dict[str, MetadataValue] = field(default_factory=dict)
    url: str | None = None


def read_markdown(source: str) -> Extracted:
    """Return the text of a Markdown file; the title is the front matter's, else the first heading.

    Front matter is a YAML mapping between lines of `---`, or TOML between lines of `+++`; its `url` is the document's
    if it is a whole web address. What is neither, or longer than 65,536 characters, or YAML with aliases, stays in the
    text.
    """
    fields: dict[str, object] = {}
    match = _FRONT_MATTER.match(source)
    is_short = match is not None and len(match["fields"]) <= _MOST_FRONT_MATTER
    parsed = _mapping(match["fields"], is_toml=match["fence"] == "+++") if match and is_short else None
    if match and parsed is not None:
        fields, source = parsed, source[match.end() :]
    text = _FENCED_OR_STEERING.sub(lambda found: found["fence"] or "", source)
    title, address = fields.pop("title", None), fields.get("url")
    url = str(fields.pop("url")) if isinstance(address, str) and _WEB_ADDRESS.fullmatch(address) else None
    return Extracted(text, str(title) if title is not None else first_heading(text), flat_metadata(fields), url)


class _NoAliases(yaml.SafeLoader):
    """Refuses aliases, by which a few lines stand for gigabytes."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not read")
        return super().compose_node(parent, index)


def _mapping(source: str, *, is_toml: bool) -> dict[str, object] | None:
    try:
        # S506: the loader is a SafeLoader
        parsed = tomllib.loads(source.replace("\r\n", "\n")) if is_toml else yaml.load(source, _NoAliases)  # noqa: S506
        named = {str(name): value for name, value in parsed.items()} if isinstance(parsed, dict) else None
        flat_metadata(named or {})
    # Beside its own errors YAML raises these for values that do not fit their tag, such as `!!bool x` or 2024-13-45.
    except (yaml.YAMLError, ValueError, KeyError, AttributeError, IndexError, RecursionError, NoDocumentError):
        return None
    return named


def read_restructured_text(source: str) -> Extracted:
    """Return the text of a reStructuredText file; the title is its field `title`, else its first heading."""
    fields: dict[str, object] = {}
    match = _FIELDS.match(source)
    if match:
        fields = {name.strip().lower(): value.strip() for name, value in _FIELD.findall(match[1])}
        source = source[match.end() :]
    text = _ROLE.sub(r"\1", _OVERLINE.sub("", "".join(_shown_lines(source))))
    title = fields.pop("title", "")
    flags = {name: value if value != "" else True for name, value in fields.items()}
    return Extracted(text, str(title) or first_heading(text), flat_metadata(flags))


def _shown_lines(source: str) -> Iterator[str]:
    """Yield the lines without explicit markup that does not show, and without what is indented under it."""
    hidden_indent: int | None = None
    for line in _LINE.findall(source):
        indent = len(line) - len(line.lstrip(" \t"))
        if hidden_indent is not None and line.strip() and indent <= hidden_indent:
            hidden_indent = None
        if hidden_indent is None and (match := _EXPLICIT.match(line)) and not _shows(match[1].strip()):
            hidden_indent = indent
        if hidden_indent is None or not line.strip():
            yield line


def _shows(rest: str) -> bool:
    """Return whether `.. rest` shows: a directive but for a few, or a footnote; not a comment, target or name."""
    if _UNSHOWN.match(rest):
        return False
    return bool(_DIRECTIVE.match(rest) or _FOOTNOTE.match(rest))
