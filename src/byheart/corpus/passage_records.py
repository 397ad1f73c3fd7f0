"""JSONL of ready passages or pages: one record a line, each a document of its own.

Owns field names. Ids may be integers, UUIDs or any text, and come back as strings. Knows no files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from byheart.corpus.markdown import document_from_markdown
from byheart.corpus.source import SURROGATES, Source, clean, is_blank, one_line
from byheart.errors import DocumentError
from byheart.types import Document, Section

TEXT_FIELDS = ("text", "contents", "body_markdown")
ID_FIELDS = ("id", "page")
MEDIA_TYPE = "application/jsonl"


def load_records(source: Source) -> list[Document]:
    """Return one document per record, in the file's order.

    A record without id gets the page `<page of the file>#<line>`. Two records with one text are two documents.
    A record whose text is blank is a document without passages.

    Args:
        source: The file.

    Returns:
        The documents, pages all different.

    Raises:
        DocumentError: A line is no JSON object, lacks a text, has a field of the wrong type, or repeats an id.
    """
    documents: dict[str, Document] = {}
    lines: dict[str, int] = {}
    for number, line in enumerate(source.decoded.split("\n"), start=1):  # U+2028 may stand inside a JSON string
        if not line.strip():
            continue
        document = _document(_record(line, f"{source.page}, line {number}"), source.page, number)
        if document.page in documents:
            raise DocumentError(
                f"{source.page}, line {number}: id {document.page!r} stands in line {lines[document.page]} too; "
                "give every record its own id"
            )
        documents[document.page], lines[document.page] = document, number
    return list(documents.values())


def _record(line: str, place: str) -> Mapping[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DocumentError(f"{place} is not valid JSON: {error}; each line must be one JSON object") from error
    if not isinstance(record, dict):
        raise DocumentError(f'{place} is {type(record).__name__}, not an object; write {{"id": …, "text": …}}')
    return record


def _document(record: Mapping[str, Any], file_page: str, number: int) -> Document:
    place = f"{file_page}, line {number}"
    field = next((name for name in TEXT_FIELDS if record.get(name) is not None), None)
    if field is None:
        seen = ", ".join(map(repr, list(record)[:12])) or "none"
        raise DocumentError(f"{place} has none of the fields {', '.join(TEXT_FIELDS)}, it has {seen}; add a text")
    text, title = _string(record, field, place), one_line(_string(record, "title", place))
    page = _page(record, place) or f"{file_page}#{number}"
    if field == "body_markdown":
        return document_from_markdown(clean(text), page, title)
    headings = _headings(record, place)
    return Document(page, title, clean(text), (Section(0, headings),) if headings else (), MEDIA_TYPE)


def _string(record: Mapping[str, Any], name: str, place: str) -> str:
    value = record.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise DocumentError(f"{place}: {name} must be a string, got {value!r:.80}; write it in quotation marks")
    return value


def _page(record: Mapping[str, Any], place: str) -> str | None:
    for name in ID_FIELDS:
        value = record.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise DocumentError(f"{place}: {name} must be a string or an integer, got {value!r:.80}; change it")
        page = str(value)
        if is_blank(page) or "\x00" in page or SURROGATES.search(page):
            raise DocumentError(f"{place}: {name} {page!r:.80} is blank, or holds NUL or a lone surrogate; change it")
        return page
    return None


def _headings(record: Mapping[str, Any], place: str) -> tuple[str, ...]:
    value = record.get("headings")
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(heading, str) for heading in value):
        raise DocumentError(f"{place}: headings must be a list of strings, got {value!r:.80}; outermost heading first")
    return tuple(heading for heading in map(one_line, value) if heading)
