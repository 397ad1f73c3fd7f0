"""Word documents (DOCX) to a document, by way of HTML.

Owns what is DOCX's own: the package's limits, its title, its styles. Knows no files.
"""

from __future__ import annotations

import io
import zipfile
from xml.etree import ElementTree

from byheart.corpus.html import outline_of
from byheart.corpus.source import Source, one_line
from byheart.errors import DocumentError, MissingExtraError
from byheart.types import Document

STYLES = "p[style-name='Title'] => h1:fresh\np[style-name='Subtitle'] => p:fresh"
MEDIA_TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
TITLE_ELEMENT = "{http://purl.org/dc/elements/1.1/}title"
MAX_UNPACKED_RATIO = 200  # XML packs about 10 to 1; far beyond that a file is made to fill memory


def load_docx(source: Source) -> list[Document]:
    """Return the one document in a DOCX file; DocumentError when it is broken or unpacks without bounds."""
    title = _title(source)
    outline = outline_of(_to_html(source))
    return [outline.document(source.page, title or outline.first_heading or source.name, MEDIA_TYPE)]


def is_docx(raw: bytes) -> bool:
    """Return whether these bytes are a zip file with a Word document in it."""
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as package:
            return "word/document.xml" in package.namelist()
    except zipfile.BadZipFile:
        return False


def _title(source: Source) -> str:
    with zipfile.ZipFile(io.BytesIO(source.raw)) as package:
        unpacked = sum(entry.file_size for entry in package.infolist())
        if unpacked > MAX_UNPACKED_RATIO * len(source.raw):
            raise DocumentError(
                f"{source.page} unpacks from {len(source.raw):,} to {unpacked:,} bytes; save it anew, then add it again"
            )
        if "docProps/core.xml" not in package.namelist():
            return ""
        try:
            properties = ElementTree.fromstring(package.read("docProps/core.xml"))
        except (ElementTree.ParseError, zipfile.BadZipFile):
            return ""
    return one_line(properties.findtext(TITLE_ELEMENT) or "")


def _to_html(source: Source) -> str:
    try:
        import mammoth
    except ImportError as error:
        raise MissingExtraError(
            "reading DOCX needs the package mammoth; run: pip install 'byheart[documents]'"
        ) from error
    try:
        result = mammoth.convert_to_html(
            io.BytesIO(source.raw),
            style_map=STYLES,
            convert_image=mammoth.images.img_element(lambda image: {"src": ""}),
        )
    except Exception as error:  # mammoth promises no error type: whatever a broken file makes it raise
        raise DocumentError(f"{source.page} is a broken DOCX ({error}); open and save it anew") from error
    return str(result.value)
