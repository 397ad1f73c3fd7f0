"""Files and folders to documents: what is there, what kind it is, who reads it.

Owns the walk, the limits and the choice of a loader. Knows no format's inside.
"""

from __future__ import annotations

import enum
import gzip
import io
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from byheart.config import CorpusConfig
from byheart.corpus.docx import is_docx, load_docx
from byheart.corpus.html import load_html
from byheart.corpus.markdown import load_markdown
from byheart.corpus.passage_records import load_records
from byheart.corpus.pdf import load_pdf
from byheart.corpus.source import Source, is_blank, one_line
from byheart.errors import DocumentError
from byheart.reports import Refusal
from byheart.types import Document

MEBIBYTE = 2**20
GZIP_MAGIC, ZIP_MAGIC, PDF_MAGIC = b"\x1f\x8b", b"PK\x03\x04", b"%PDF-"
COMPOUND_MAGIC = b"\xd0\xcf\x11\xe0"  # Office before 2007, and encrypted Office files


class Kind(enum.Enum):
    """Formats that are read."""

    MARKDOWN = "Markdown"
    TEXT = "text"
    HTML = "HTML"
    PDF = "PDF"
    DOCX = "DOCX"
    JSONL = "JSONL"


SUFFIXES = {
    ".md": Kind.MARKDOWN,
    ".markdown": Kind.MARKDOWN,
    ".txt": Kind.TEXT,
    ".text": Kind.TEXT,
    ".html": Kind.HTML,
    ".htm": Kind.HTML,
    ".xhtml": Kind.HTML,
    ".pdf": Kind.PDF,
    ".docx": Kind.DOCX,
    ".jsonl": Kind.JSONL,
    ".ndjson": Kind.JSONL,
}


def find(paths: Sequence[Path]) -> tuple[list[Path], list[Refusal]]:
    """Return the files to read in and below `paths`, ascending, each file once.

    Args:
        paths: Files and folders. Links are followed; a file reached twice is returned by the path reached first.

    Returns:
        The files, and what was passed over: hidden, of an unknown kind, a second way to the same file, missing. One
        that is named twice, or named beside its folder, counts once.
    """
    files: list[Path] = []
    refusals: list[Refusal] = []
    seen: dict[Path, str] = {}
    for path in paths:
        _visit(path, files, refusals, seen)
    return sorted(files), refusals


def load(path: Path, page: str, config: CorpusConfig) -> list[Document]:
    """Return the documents in one file: one, or for JSONL one per record.

    Args:
        path: The file.
        page: Id of the document; records without an id get `<page>#<line>`.
        config: The largest size that is read.

    Returns:
        The documents, their text NFC.

    Raises:
        DocumentError: The file is missing, unreadable, too large, empty, blank, binary, broken, encrypted, in no known
            encoding or of no known kind.
    """
    kind = kind_of(path)
    if kind is None:
        raise DocumentError(f"{page} {_unknown(path)}")
    raw = _read(path, page, config.max_megabytes * MEBIBYTE)
    name = path.name[: -len("".join(path.suffixes[-2:]))] if path.suffix == ".gz" else path.stem
    source = Source(page, one_line(name), raw)
    documents = _LOADERS[_sniffed(source, kind)](source)
    if all(is_blank(document.text) for document in documents):
        raise DocumentError(f"{page} is empty or blank, {len(raw):,} bytes without a word; write something into it")
    return documents


def kind_of(path: Path) -> Kind | None:
    """Return the kind that a file's name stands for, None when it is not one that is read; `.gz` may follow."""
    name = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    return SUFFIXES.get(name.suffix.lower())


def _visit(path: Path, files: list[Path], refusals: list[Refusal], seen: dict[Path, str]) -> None:
    """Add what is at and below `path`, depth first with a stack: folders may nest deeper than Python calls may."""
    stack = [path]
    while stack:
        current = stack.pop()
        reason = _reason_against(current, seen, is_named=current == path)
        if reason is None:
            continue
        if reason:
            refusals.append(Refusal(str(current), reason))
            continue
        seen[current.resolve()] = os.path.abspath(current)
        if current.is_dir():
            try:
                stack += _children(current)
            except OSError as error:
                refusals.append(Refusal(str(current), f"cannot be listed: {error.strerror}; check its permissions"))
        else:
            files.append(current)


def _children(folder: Path) -> Iterator[Path]:
    """Yield a folder's entries so that the last is to be visited first: plain entries by name, then links by name."""
    return iter(sorted(folder.iterdir(), key=lambda entry: (entry.is_symlink(), entry.name), reverse=True))


def _reason_against(path: Path, seen: dict[Path, str], is_named: bool) -> str | None:
    """Return why a path is passed over, empty when it is not; None where it was here before under the same name."""
    if path.name.startswith(".") and not is_named:
        return "is hidden; name it outright to add it"
    try:
        place = path.resolve(strict=True)
    except (OSError, RuntimeError, ValueError):  # links in a circle: RuntimeError before Python 3.13; NUL: ValueError
        return "does not exist, or is a link that leads nowhere; check the path"
    if seen.get(place) == os.path.abspath(path):
        return None
    if place in seen:
        return f"is a second way to {place}, which is added already"
    if path.is_dir():
        return ""
    if not path.is_file():
        return "is neither a file nor a folder; save its content in a file"
    return "" if kind_of(path) else _unknown(path)


def _unknown(path: Path) -> str:
    seen = path.suffix or "no suffix"
    return f"is of a kind that is not read, {seen}; read are {', '.join(SUFFIXES)}, each also with .gz"


def _read(path: Path, page: str, limit: int) -> bytes:
    """Return a file's content, unpacked."""
    if not path.exists():
        raise DocumentError(f"{page} does not exist at {path}; check the path")
    if not path.is_file():
        raise DocumentError(f"{page} is no file; pass a file, or add the folder")
    if path.stat().st_size > limit:
        raise DocumentError(_too_large(page, path.stat().st_size, limit))
    if not os.access(path, os.R_OK):
        raise DocumentError(f"{page} may not be read; check its permissions")
    raw = path.read_bytes()
    if raw.startswith(GZIP_MAGIC):
        raw = _unpacked(raw, page, limit)
    if not raw.strip():
        raise DocumentError(f"{page} is empty or blank, {len(raw):,} bytes without a word; write something into it")
    return raw


def _unpacked(raw: bytes, page: str, limit: int) -> bytes:
    try:
        with gzip.open(io.BytesIO(raw)) as stream:
            content = stream.read(limit + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DocumentError(f"{page} is broken gzip ({error}); fetch or pack it anew") from error
    if len(content) > limit:
        raise DocumentError(_too_large(page, len(content), limit))
    return content


def _too_large(page: str, size: int, limit: int) -> str:
    return (
        f"{page} has {size / MEBIBYTE:,.1f} MiB or more, at most {limit / MEBIBYTE:,.0f} MiB are read; "
        "split it, or raise corpus.max_megabytes"
    )


def _sniffed(source: Source, kind: Kind) -> Kind:
    """Return what the content is, which counts more than the file's name."""
    raw = source.raw
    if PDF_MAGIC in raw[:1024] and (kind is Kind.PDF or raw.startswith(PDF_MAGIC)):
        return Kind.PDF
    if raw.startswith(COMPOUND_MAGIC):
        raise DocumentError(f"{source.page} is an old or encrypted Office file; save it as .docx without a password")
    if raw.startswith(ZIP_MAGIC) and is_docx(raw):
        return Kind.DOCX
    if kind in (Kind.PDF, Kind.DOCX):
        raise DocumentError(
            f"{source.page} is no {kind.value} or is broken, it begins with {raw[:8]!r}; open and save it anew"
        )
    beginning = raw[:1024].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if kind is Kind.TEXT and beginning.startswith((b"<!doctype html", b"<html")):
        return Kind.HTML
    return kind


def _load_text(source: Source) -> list[Document]:
    return [Document(source.page, source.name, source.text, media_type="text/plain")]


_LOADERS: dict[Kind, Callable[[Source], list[Document]]] = {
    Kind.MARKDOWN: load_markdown,
    Kind.TEXT: _load_text,
    Kind.HTML: load_html,
    Kind.PDF: load_pdf,
    Kind.DOCX: load_docx,
    Kind.JSONL: load_records,
}
