"""Markdown to a document: front matter gives the title, Jekyll's and kramdown's marks go, links keep their words.

Owns what is Markdown's own; the rest is HTML's business. Knows no files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from byheart.corpus.html import outline_of
from byheart.corpus.outline import Outline
from byheart.corpus.source import Source, one_line
from byheart.errors import MissingExtraError
from byheart.types import Document

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

FRONT_MATTER = re.compile(
    r"\A---[ \t]*\n(?=[\w.-]+[ \t]*:|#|\n|---)(.*?)^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE
)
TITLE = re.compile(r"^title[ \t]*:[ \t]*(?:[>|][+-]?[ \t]*\n((?:[ \t]+\S.*(?:\n|\Z))+)|(.*))", re.MULTILINE)
FENCE = re.compile(r" {0,3}(?:[-*+] +|> ?)*(`{3,}|~{3,})")
MAX_NESTING = 200  # quotes and lists inside each other; the parser leaves out what is deeper, and says nothing
# Code comes first in the alternation, so that marks inside code are left alone. Lengths are bounded: time stays linear.
CODE_OR_MARK = re.compile(
    r"((?P<tick>`+)(?!`)[^\n]{0,500}?(?<!`)(?P=tick)(?!`))"
    r"|\{%.{0,500}?%\}|\{\{[^{}\n]{0,500}\}\}|\{:[^}\n]{0,500}\}",
    re.DOTALL,
)


def load_markdown(source: Source) -> list[Document]:
    """Return the one document in a Markdown file."""
    title, body = split_front_matter(source.text)
    return [document_from_markdown(body, source.page, title, source.name)]


def document_from_markdown(body: str, page: str, title: str, name: str = "") -> Document:
    """Return the document written in `body`.

    Args:
        body: Markdown without front matter.
        page: Id of the document.
        title: Its title; empty when the first heading is to be taken.
        name: Title of last resort.

    Returns:
        The document, as readable plain text.
    """
    outline = _outline(without_marks(body))
    return outline.document(page, one_line(title) or outline.first_heading or name, "text/markdown")


def _outline(body: str) -> Outline:
    renderer, references = _renderer(), dict[str, Any]()
    tokens = renderer.parse(body, references)
    if all(token.level < MAX_NESTING - 1 for token in tokens):
        return outline_of(str(renderer.renderer.render(tokens, renderer.options, references)))
    outline = Outline()  # so deep is no prose: better its marks kept than its words lost
    outline.block(body)
    return outline


def split_front_matter(text: str) -> tuple[str, str]:
    """Return the title in a YAML front matter, empty where there is none, and the text after it."""
    block = FRONT_MATTER.match(text)
    if block is None:
        return "", text
    found = TITLE.search(block[1])
    title = one_line(found[1] or found[2]) if found else ""
    if title[:1] in ("'", '"') and title[-1:] == title[:1] and len(title) > 1:
        quote = title[0]
        title = title[1:-1].replace("''", "'") if quote == "'" else title[1:-1].replace('\\"', '"')
    return title, text[block.end() :]


def without_marks(text: str) -> str:
    """Return Markdown without `{% … %}`, `{{ … }}` and `{: …}`, except in code."""
    parts = (stretch if is_code else CODE_OR_MARK.sub(_only_code, stretch) for stretch, is_code in _stretches(text))
    return "".join(parts)


def _only_code(found: re.Match[str]) -> str:
    return found[1] or ""


def _stretches(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the text in order, as stretches of whole lines that are fenced code or are not."""
    fence = ""
    lines: list[str] = []
    for line in text.splitlines(keepends=True):
        mark = FENCE.match(line)
        opens = not fence and mark is not None
        if opens:
            yield "".join(lines), False
            lines = []
        lines.append(line)
        closes = fence and line.strip().startswith(fence) and not line.strip().strip(fence[0])
        if opens and mark:
            fence = mark[1]
        elif closes:
            yield "".join(lines), True
            fence, lines = "", []
    yield "".join(lines), bool(fence)


@cache
def _renderer() -> MarkdownIt:
    try:
        from markdown_it import MarkdownIt
    except ImportError as error:
        raise MissingExtraError(
            "reading Markdown needs the package markdown-it-py; run: pip install 'byheart[documents]'"
        ) from error
    return MarkdownIt("commonmark", {"html": True, "maxNesting": MAX_NESTING}).enable(["table", "strikethrough"])
