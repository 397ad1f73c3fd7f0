"""Puts a document together, block by block, and remembers which heading each stretch stands under.

Owns offsets and heading paths. Knows no file format: loaders tell it of headings, blocks and sheets.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from byheart.corpus.source import clean, one_line
from byheart.types import Document, Section


@dataclass(slots=True)
class Outline:
    """A document in the making.

    Headings are not part of the text: they travel as each section's heading path. A heading with nothing below it
    is written as a line of text, so that no word is lost.
    """

    _parts: list[str] = field(default_factory=list, init=False)
    _length: int = field(default=0, init=False)
    _path: list[tuple[int, str]] = field(default_factory=list, init=False)
    _sections: list[Section] = field(default_factory=list, init=False)
    _sheet: int | None = field(default=None, init=False)
    _is_bare: bool = field(default=False, init=False)  # nothing stands below the last heading yet

    @property
    def first_heading(self) -> str:
        """The outermost heading the document begins with, empty when text comes first."""
        first = self._sections[0].headings if self._sections else tuple(heading for _, heading in self._path)
        return first[0] if first else ""

    def heading(self, level: int, text: str) -> None:
        """Begin a section.

        Args:
            level: 1 for the outermost heading.
            text: The heading; a blank one is ignored.
        """
        heading = one_line(text)
        if not heading:
            return
        if self._is_bare and level <= self._path[-1][0]:
            self._write_bare_heading()
        while self._path and self._path[-1][0] >= level:
            self._path.pop()
        self._path.append((level, heading))
        self._is_bare = True

    def sheet(self, number: int) -> None:
        """Begin printed page `number`, from 1; a page without text leaves an empty section as its trace."""
        self._sheet = number
        self._sections.append(Section(self._length, self._headings(), number))

    def block(self, text: str, *, is_tight: bool = False) -> None:
        """Add a paragraph, list item, table row or piece of code.

        Args:
            text: The block; a blank one is ignored.
            is_tight: Whether it follows the block before it without an empty line, as list items do.
        """
        text = clean(text).strip("\n").rstrip()
        if text.strip():
            self._is_bare = False
            self._write(text, "\n" if is_tight else "\n\n")

    def document(self, page: str, title: str, media_type: str) -> Document:
        """Return the finished document.

        Args:
            page: Id of the document.
            title: Its title; a heading path that begins with it loses that first heading.
            media_type: As in `Document`.

        Returns:
            The document.
        """
        if self._is_bare:
            self._write_bare_heading()
            self._is_bare = False
        sections: list[Section] = []
        for section in self._sections:
            headings = section.headings[1:] if section.headings[:1] == (title,) else section.headings
            if not sections or (sections[-1].headings, sections[-1].sheet) != (headings, section.sheet):
                sections.append(Section(section.start, headings, section.sheet))
        return Document(page, title, "".join(self._parts), tuple(sections), media_type)

    def _headings(self) -> tuple[str, ...]:
        return tuple(heading for _, heading in self._path)

    def _write_bare_heading(self) -> None:
        _, heading = self._path.pop()
        self._write(heading, "\n\n")

    def _write(self, text: str, separator: str) -> None:
        if self._parts:
            text = separator + text
        start = self._length + (len(separator) if self._parts else 0)
        self._parts.append(text)
        self._length += len(text)
        here = Section(start, self._headings(), self._sheet)
        if not self._sections or (self._sections[-1].headings, self._sections[-1].sheet) != (here.headings, here.sheet):
            self._sections.append(here)
