"""PDF to a document: every printed page a sheet, bookmarks become headings.

Owns what is PDF's own. Recognises no text in pictures. Knows no files.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

from byheart.corpus.outline import Outline
from byheart.corpus.source import Source, clean, is_blank, one_line
from byheart.errors import DocumentError, MissingExtraError
from byheart.types import Document

if TYPE_CHECKING:
    from pypdfium2 import PdfDocument

# PDFium marks a hyphen that only breaks a word at the end of a line with one of these.
BROKEN_WORD = re.compile("[\ufffe\x02]\\s*\n|[\ufffe\x02]")


def load_pdf(source: Source) -> list[Document]:
    """Return the one document in a PDF; DocumentError when it is broken, encrypted or holds no text."""
    pdf = _open(source)
    try:
        sheets = _sheets(pdf, source.page)
        bookmarks = _bookmarks(pdf)
        title = one_line(pdf.get_metadata_value("Title")) or source.name
    finally:
        pdf.close()
    if all(is_blank(sheet) for sheet in sheets):
        raise DocumentError(
            f"{source.page} holds no text on any of its {len(sheets)} pages, it is probably scanned; "
            "run text recognition (OCR) over it and add the result"
        )
    outline = Outline()
    for number, sheet in enumerate(sheets, start=1):
        _add_sheet(outline, number, sheet, bookmarks[number])
    return [outline.document(source.page, title, "application/pdf")]


def _open(source: Source) -> PdfDocument:
    try:
        from pypdfium2 import PdfDocument, PdfiumError
    except ImportError as error:
        raise MissingExtraError(
            "reading PDF needs the package pypdfium2; run: pip install 'byheart[documents]'"
        ) from error
    try:
        return PdfDocument(source.raw)
    except PdfiumError as error:
        if "password" in str(error).lower():
            raise DocumentError(f"{source.page} is encrypted; remove the password and add it again") from error
        raise DocumentError(f"{source.page} is a broken PDF ({error}); open and save it anew") from error


def _sheets(pdf: PdfDocument, page: str) -> list[str]:
    from pypdfium2 import PdfiumError

    sheets = []
    try:
        for sheet in pdf:
            text = sheet.get_textpage().get_text_bounded()
            sheets.append(clean(BROKEN_WORD.sub("", text.replace("\r\n", "\n"))))
            sheet.close()
    except PdfiumError as error:
        raise DocumentError(
            f"{page} is a broken PDF, page {len(sheets) + 1} cannot be read ({error}); open and save it anew"
        ) from error
    return sheets


def _bookmarks(pdf: PdfDocument) -> defaultdict[int, list[tuple[int, str]]]:
    """Return levels and titles of the bookmarks by the sheet they point to, from 1."""
    from pypdfium2 import PdfiumError

    found: defaultdict[int, list[tuple[int, str]]] = defaultdict(list)
    try:
        for bookmark in pdf.get_toc(max_depth=6):
            target = bookmark.get_dest()
            index = target.get_index() if target else None
            if index is not None:
                found[index + 1].append((bookmark.level + 1, one_line(bookmark.get_title())))
    except PdfiumError:
        found.clear()  # text matters, bookmarks are a help
    return found


def _add_sheet(outline: Outline, number: int, text: str, bookmarks: list[tuple[int, str]]) -> None:
    """Add one printed page, cut where the titles of its bookmarks stand in the text."""
    outline.sheet(number)
    at = 0
    for level, title in bookmarks:
        pattern = r"\s+".join(map(re.escape, title.split()))
        found = re.compile(pattern, re.IGNORECASE).search(text, at) if pattern else None
        if found is None:
            continue  # better no heading than one over the wrong words
        outline.block(text[at : found.start()])
        outline.heading(level, title)
        at = found.end()
    outline.block(text[at:])
