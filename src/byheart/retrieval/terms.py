"""The term table: which number a term has, and how many passages hold it.

Owns the SQLite table `terms`. Works inside the caller's transaction and never commits; knows no text analysis and no
weights. A term that no passage holds any more loses its row, and its number is never given out again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from byheart.interfaces import Integers

_CHUNK = 500  # below SQLite's oldest limit of 999 parameters


class TermTable:
    """Numbers and document frequencies of index terms."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Use the table `terms` of an open database.

        Args:
            connection: Database that holds the corpus tables.
        """
        self._connection = connection

    def assign(self, documents: Iterable[Sequence[str]]) -> dict[str, int]:
        """Return a number for every term of these passages; new terms get one, with a document frequency of 0.

        Args:
            documents: The terms of each passage. `count` them afterwards.

        Returns:
            Number of each distinct term.
        """
        terms = sorted({term for document in documents for term in document})
        rows = ((term,) for term in terms)
        self._connection.executemany("INSERT OR IGNORE INTO terms (term, df) VALUES (?, 0)", rows)
        return {term: number for term, (number, _) in self.lookup(terms).items()}

    def count(self, documents: Sequence[Integers], step: int) -> None:
        """Add `step` to the document frequency of every term of each passage; rows that reach 0 are deleted.

        Args:
            documents: Distinct term numbers of each passage, as in its sparse vector.
            step: 1 for passages added, -1 for passages removed.
        """
        if not documents:
            return
        numbers, counts = np.unique(np.concatenate(documents), return_counts=True)
        changes = list(zip((counts * step).tolist(), numbers.tolist(), strict=True))
        self._connection.executemany("UPDATE terms SET df = df + ? WHERE number = ?", changes)
        if step < 0:
            self._connection.executemany(
                "DELETE FROM terms WHERE number = ? AND df <= 0", ((number,) for _, number in changes)
            )

    def lookup(self, terms: Iterable[str]) -> dict[str, tuple[int, int]]:
        """Return number and document frequency of the terms that the table holds.

        Args:
            terms: Index terms; repetition is fine.

        Returns:
            `{term: (number, df)}`, without the unknown ones.
        """
        found: dict[str, tuple[int, int]] = {}
        for chunk in _chunks(list(dict.fromkeys(terms))):
            marks = ",".join("?" * len(chunk))
            rows = self._connection.execute(f"SELECT term, number, df FROM terms WHERE term IN ({marks})", chunk)
            found.update((term, (number, df)) for term, number, df in rows)
        return found

    def n_passages(self) -> int:
        """Return the number of passages: of the table `passages`, or of `vectors` where an index stands alone."""
        for table in ("passages", "vectors"):
            count = int(self._connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
            if count:
                return count
        return 0


def _chunks(terms: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(terms), _CHUNK):
        yield terms[start : start + _CHUNK]
