"""HTML to a document: headings become sections, lists lines, table rows `a | b`; scripts and page furniture go.

Owns what HTML elements mean. Markdown and DOCX pass through here too, as HTML. Knows no files.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

from byheart.corpus.outline import Outline
from byheart.corpus.source import Source, is_blank, one_line
from byheart.errors import MissingExtraError
from byheart.types import Document

if TYPE_CHECKING:
    from bs4 import BeautifulSoup
    from bs4.element import PageElement, Tag

HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
NEVER_TEXT = ("head", "script", "style", "noscript", "template", "svg", "iframe", "object", "canvas")
FURNITURE = ("nav", "footer", "aside")
LISTS = ("ul", "ol", "menu")
MAX_INDENT = 12  # list levels that are shown: a page of unclosed lists would else be mostly spaces
INLINE = frozenset(
    """a abbr acronym b bdi bdo big br button cite code data dfn del em font i img input ins kbd label mark q rp rt ruby
    s samp small span strike strong sub sup time tt u var wbr""".split()  # noqa: SIM905 - forty names read best as text
)


def load_html(source: Source) -> list[Document]:
    """Return the one document in a web page, without navigation, footers and asides."""
    markup = _parse(source.decoded)
    title = one_line(markup.title.get_text()) if markup.title else ""
    root = _main_part(markup)
    outline = _outline(root, skipped=NEVER_TEXT + FURNITURE if root.name == "body" else (*NEVER_TEXT, "nav"))
    document = outline.document(source.page, title or outline.first_heading or source.name, "text/html")
    if is_blank(document.text):  # a page that is all furniture is better kept than lost
        document = _outline(markup, skipped=NEVER_TEXT).document(source.page, document.title, "text/html")
    return [document]


def outline_of(markup: str) -> Outline:
    """Return the outline of HTML that another loader made; nothing but scripts and styles is left out."""
    return _outline(_parse(markup), skipped=NEVER_TEXT)


def _parse(markup: str) -> BeautifulSoup:
    try:
        from bs4 import BeautifulSoup
        from bs4.exceptions import ParserRejectedMarkup
    except ImportError as error:
        raise MissingExtraError(
            "reading Markdown, HTML and DOCX needs the package beautifulsoup4; run: pip install 'byheart[documents]'"
        ) from error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # text that looks like a URL, or XHTML, is no reason to warn
        try:
            return BeautifulSoup(markup, "html.parser")
        except ParserRejectedMarkup:  # a marked section that is none, such as "<![foo": read it as text
            return BeautifulSoup(markup.replace("<![", "&lt;!["), "html.parser")


def _main_part(markup: BeautifulSoup) -> Tag:
    from bs4.element import Tag

    articles = markup.find_all("article")
    candidates = (
        markup.find("main"),
        markup.find(True, attrs={"role": "main"}),
        articles[0] if len(articles) == 1 else None,
        markup.body,
    )
    return next((part for part in candidates if isinstance(part, Tag) and part.get_text(strip=True)), markup)


def _outline(root: Tag, skipped: tuple[str, ...]) -> Outline:
    walker = _Walker()
    for node, is_entered in _events(root, frozenset(skipped)):
        walker.visit(node, is_entered)
    walker.end_block()
    return walker.outline


def _events(root: Tag, skipped: frozenset[str]) -> Iterator[tuple[PageElement, bool]]:
    """Yield every node when it is entered and every element when it is left, in order, however deep they nest."""
    from bs4.element import Tag

    stack: list[tuple[PageElement, bool]] = [(child, True) for child in reversed(root.contents)]
    while stack:
        node, is_entered = stack.pop()
        if isinstance(node, Tag) and node.name in skipped:
            continue
        yield node, is_entered
        if is_entered and isinstance(node, Tag):
            stack.append((node, False))
            stack.extend((child, True) for child in reversed(node.contents))


class _Walker:
    """Turns a walk over elements into calls of an outline."""

    def __init__(self) -> None:
        self.outline = Outline()
        self._words: list[str] = []
        self._lists: list[int] = []  # number of the current item, 0 throughout where items are not numbered
        self._rows: list[list[str]] = []  # one list of cells per table row that is open
        self._verbatim = 0
        self._marker = ""
        self._is_tight = False

    def visit(self, node: PageElement, is_entered: bool) -> None:
        """Take one step of the walk."""
        from bs4.element import CData, NavigableString, Tag

        if isinstance(node, Tag):
            self._enter(node) if is_entered else self._leave(node)
        elif type(node) in (NavigableString, CData):  # comments and declarations are subclasses
            text = str(node)
            self._words.append(text if self._verbatim else _spaced(text))

    def end_block(self) -> None:
        """Hand what was gathered to the outline as one block, or go on inside the open table cell."""
        if self._rows:
            self._words.append(" ")
            return
        text = self._take()
        if text.strip():
            self.outline.block(self._marker + text, is_tight=self._is_tight)
            self._marker = _indent(len(self._lists))
            self._is_tight = bool(self._lists)

    def _take(self) -> str:
        text = "".join(self._words)
        self._words.clear()
        return text if self._verbatim else "\n".join(" ".join(line.split()) for line in text.split("\n"))

    def _enter(self, tag: Tag) -> None:
        if tag.name == "br":
            self._words.append("\n")
        elif tag.name == "img":
            self._words.append(f" {_spaced(str(tag.get('alt') or ''))} ")
        elif tag.name == "tr" and not _is_layout(tag):
            self.end_block()
            self._rows.append([])
        elif tag.name not in INLINE:
            self.end_block()
            self._open_block(tag)

    def _open_block(self, tag: Tag) -> None:
        if tag.name in LISTS:
            self._is_tight = self._is_tight and bool(self._lists)
            self._lists.append(1 if tag.name == "ol" else 0)
        elif tag.name == "li" and self._lists and not self._rows:
            number = f"{self._lists[-1]}. " if self._lists[-1] else "- "
            self._marker = _indent(len(self._lists) - 1) + number
            self._lists[-1] += bool(self._lists[-1])
        elif tag.name == "pre":
            self._verbatim += 1
        elif tag.name == "table" and not self._rows:
            self._is_tight = False

    def _leave(self, tag: Tag) -> None:
        if tag.name in ("td", "th") and self._rows:
            self._rows[-1].append(one_line(self._take()))
        elif tag.name == "tr" and self._rows and not _is_layout(tag):
            self._end_row()
        elif tag.name in HEADINGS and not self._rows:
            self.outline.heading(int(tag.name[1]), self._take())
            self._is_tight = False
        elif tag.name not in INLINE:
            self.end_block()
            self._close_block(tag)

    def _end_row(self) -> None:
        cells = [*self._rows.pop(), one_line(self._take())]
        row = " | ".join(cell for cell in cells if cell)
        if self._rows:
            self._words.append(f" {row} ")
        elif row:
            self.outline.block(row, is_tight=self._is_tight)
            self._is_tight = True

    def _close_block(self, tag: Tag) -> None:
        if tag.name in LISTS and self._lists:
            self._lists.pop()
            self._marker = _indent(len(self._lists))
            self._is_tight = bool(self._lists)
        elif tag.name == "pre":
            self._verbatim -= 1
        elif tag.name == "table" and not self._rows:
            self._is_tight = False


def _indent(depth: int) -> str:
    return "  " * min(depth, MAX_INDENT)


def _spaced(text: str) -> str:
    """Return `text` with line breaks and tabs as spaces: in HTML they mean no more than that."""
    return text.replace("\n", " ").replace("\r", " ").replace("\t", " ")


def _is_layout(row: Tag) -> bool:
    """Return whether a table row only places parts of a page: it holds headings or further tables."""
    return row.find([*HEADINGS, "table"]) is not None
