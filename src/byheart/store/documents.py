"""Documents and passages in the database.

Owns the tables `documents`, `origins` and `passages`. Every method works inside the caller's transaction. Knows no
vectors: who removes passages here is told their ids, to remove them from the index in the same transaction.
"""

from __future__ import annotations

import json
import re
import sqlite3
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from byheart.errors import PassageError
from byheart.types import Document, Passage

SURROGATES = re.compile("[\ud800-\udfff]")  # SQLite's driver cannot even ask for them
VARIABLES = 500  # per statement; SQLite's own limit is higher


class Documents:
    """The corpus as rows."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Keep the connection.

        Args:
            connection: A knowledge base's connection.
        """
        self.connection = connection

    def put(self, document: Document, passages: Sequence[Passage], origin: str, content_hash: str) -> None:
        """Store a document that is not there, with its passages.

        Args:
            document: The document.
            passages: Its passages.
            origin: The file it came from.
            content_hash: Hash of what defines its passages.
        """
        now = datetime.now(UTC).isoformat(timespec="seconds")
        row = (document.page, origin, document.title, document.media_type, document.text, content_hash, now)
        self.connection.execute("INSERT INTO documents VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        self.connection.executemany(
            'INSERT INTO passages (id, page, headings, start, "end", sheet) VALUES (?, ?, ?, ?, ?, ?)',
            [(p.id, p.page, json.dumps(p.headings, ensure_ascii=False), p.start, p.end, p.sheet) for p in passages],
        )

    def remove(self, pages: Sequence[str]) -> list[str]:
        """Delete documents and return the ids of their passages; pages that are not there are ignored."""
        removed = []
        for page in pages:
            rows = self.connection.execute("SELECT id FROM passages WHERE page = ? ORDER BY number", (page,))
            removed += [row[0] for row in rows]
        self.connection.executemany("DELETE FROM documents WHERE page = ?", [(page,) for page in pages])
        return removed

    def content_hashes(self, pages: Sequence[str]) -> dict[str, tuple[str, str]]:
        """Return origin and content hash of those pages that are there."""
        query = "SELECT page, origin, content_hash FROM documents WHERE page IN"
        return {page: (origin, digest) for page, origin, digest in self._among(query, pages)}

    def pages_of(self, origin: str) -> list[str]:
        """Return the pages that came from a file, ascending."""
        rows = self.connection.execute("SELECT page FROM documents WHERE origin = ? ORDER BY page", (origin,))
        return [row[0] for row in rows]

    def origins(self) -> dict[str, str]:
        """Return each added file's hash."""
        return dict(self.connection.execute("SELECT origin, file_hash FROM origins"))

    def mark_origin(self, origin: str, file_hash: str) -> None:
        """Remember that a file was added whole."""
        self.connection.execute("INSERT OR REPLACE INTO origins VALUES (?, ?)", (origin, file_hash))

    def forget_origins(self, origins: Iterable[str]) -> None:
        """Have files read again when they are added again; one that documents are left of stays known."""
        named = [(origin,) for origin in origins]
        self.connection.executemany("UPDATE origins SET file_hash = '' WHERE origin = ?", named)
        query = "DELETE FROM origins WHERE origin = ?1 AND NOT EXISTS (SELECT 1 FROM documents WHERE origin = ?1)"
        self.connection.executemany(query, named)

    def matching(self, name: str) -> list[str]:
        """Return the pages that a name means: the page itself, all of a file, or all below a folder; ascending."""
        query = "SELECT page FROM documents WHERE {page} = ?1 OR {origin} = ?1 OR {below} ORDER BY page"
        return self._named(query, name)

    def matching_origins(self, name: str) -> list[str]:
        """Return the files that a name means: the file itself, or all below a folder; ascending."""
        return self._named("SELECT origin FROM origins WHERE {origin} = ?1 OR {below} ORDER BY origin", name)

    def _named(self, query: str, name: str) -> list[str]:
        """Return what has this name, letter by letter; if nothing has, what has it in another Unicode form.

        File systems and keyboards differ in how they write an accent: as one character or as two.
        """
        self.connection.create_function("nfc", 1, _nfc, deterministic=True)
        for sought, form in ((name, "{}"), (_nfc(name), "nfc({})")):
            page, origin = form.format("page"), form.format("origin")
            below = f"substr({origin}, 1, length(?2)) = ?2"
            values = (sought, sought.rstrip("/") + "/")
            rows = self.connection.execute(query.format(page=page, origin=origin, below=below), values).fetchall()
            if rows:
                return [row[0] for row in rows]
        return []

    def passages(self, passage_ids: Sequence[str]) -> list[Passage]:
        """Return passages by id, in the order asked for.

        Args:
            passage_ids: Ids.

        Returns:
            One passage per id.

        Raises:
            PassageError: An id is not in the knowledge base, any more or ever.
        """
        query = (
            'SELECT p.id, p.page, d.title, p.headings, substr(d.text, p.start + 1, p."end" - p.start), '
            'p.start, p."end", p.sheet FROM passages p JOIN documents d USING (page) WHERE p.id IN'
        )
        storable = [asked for asked in passage_ids if not SURROGATES.search(asked)]
        found = {row[0]: _passage(*row) for row in self._among(query, storable)}
        for asked in passage_ids:
            if asked not in found:
                raise PassageError(
                    f"there is no passage {asked!r}; it was removed or changed, search again for its new id"
                )
        return [found[asked] for asked in passage_ids]

    def text_of(self, name: str) -> tuple[str, str, list[Passage]] | None:
        """Return page, text and passages of the document that a page or a passage id names; None if there is none."""
        if SURROGATES.search(name):
            return None
        forms = (_nfc(name), unicodedata.normalize("NFD", name))  # some file systems hand out decomposed names
        query = "SELECT page, text FROM documents WHERE page IN (?1, ?2) OR page = "
        query += "(SELECT page FROM passages WHERE id IN (?1, ?2)) ORDER BY page"
        row = self.connection.execute(query, forms).fetchone()
        if row is None:
            return None
        ids = self.connection.execute("SELECT id FROM passages WHERE page = ? ORDER BY number", (row[0],))
        return row[0], row[1], self.passages([found for (found,) in ids])

    def passage_ids(self) -> list[str]:
        """Return the ids of all passages, ascending."""
        return [row[0] for row in self.connection.execute("SELECT id FROM passages ORDER BY id")]

    def pages(self) -> list[tuple[str, str, int]]:
        """Return page, title and number of passages of every document, ascending by page."""
        query = "SELECT d.page, d.title, count(p.id) FROM documents d LEFT JOIN passages p USING (page) GROUP BY d.page"
        return list(self.connection.execute(query + " ORDER BY d.page"))

    def counts(self) -> tuple[int, int]:
        """Return how many documents and passages there are."""
        query = "SELECT (SELECT count(*) FROM documents), (SELECT count(*) FROM passages)"
        documents, passages = self.connection.execute(query).fetchone()
        return documents, passages

    def _among(self, query: str, values: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        for first in range(0, len(values), VARIABLES):
            some = values[first : first + VARIABLES]
            yield from self.connection.execute(f"{query} ({','.join('?' * len(some))})", list(some))


def _nfc(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _passage(
    passage_id: str, page: str, title: str, headings: str, text: str, start: int, end: int, sheet: int | None
) -> Passage:
    return Passage(passage_id, page, title, tuple(json.loads(headings)), text, start, end, sheet)
