"""The facts of the ledger as they are read: by id, number, place, or part of their text.

Owns how rows become a `Fact`, and what a search takes for equal. Every method works inside the caller's transaction.
Writes nothing.
"""

from __future__ import annotations

import difflib
import re
import sqlite3
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from byheart.errors import FactError
from byheart.types import Fact, FactState, Kind, Source

VARIABLES = 500  # per statement; SQLite's own limit is higher
NEIGHBOURS = 500  # ids before and after a missing one that are compared with it
_SURROGATES = re.compile("[\ud800-\udfff]")  # SQLite's driver cannot even ask for them
_ACCENTS = re.compile("[\u0300-\u036f]")
_FACT = (
    "SELECT number, id, kind, answer, version, changed_at, state, reason, coalesce(uses, 0), "
    "coalesce(text, ''), note, passage_id, page, start, \"end\" FROM facts "
    "LEFT JOIN fact_uses ON fact_uses.fact = number LEFT JOIN fact_evidence ON fact_evidence.fact = number"
)


@dataclass(frozen=True, slots=True)
class FormerAnswer:
    """What a fact said before an update.

    Attributes:
        version: From 1.
        answer: The answer, None where texts are not kept.
        note: Who said so.
        passage_id: Passage that held the answer.
        changed_at: When this version was written, UTC, ISO 8601.
    """

    version: int
    answer: str | None
    note: str
    passage_id: str | None
    changed_at: str


class HeldFacts:
    """The facts of one knowledge base, for reading."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Keep the connection.

        Args:
            connection: A knowledge base's connection.
        """
        self._connection = connection

    def number(self, fact_id: str) -> int:
        """Return a fact's number.

        Args:
            fact_id: Its id.

        Returns:
            The number, which is never reused.

        Raises:
            FactError: There is no such fact; the message names ids that look alike.
        """
        found = self._numbers("id = ?", fact_id)
        if not found:
            nearest = difflib.get_close_matches(fact_id, self._neighbours(fact_id))
            hint = f"nearest are {', '.join(map(repr, nearest))}" if nearest else "list the facts to see their ids"
            raise FactError(f"there is no fact {fact_id!r:.200}; {hint}")
        return found[0]

    def fact(self, fact_id: str) -> Fact:
        """Return a fact by id; FactError as in `number`."""
        number = self.number(fact_id)
        return self.by_numbers([number])[number]

    def by_numbers(self, numbers: Sequence[int]) -> dict[int, Fact]:
        """Return facts by number, ascending; those that are gone are left out."""
        wanted = sorted(set(numbers))
        questions: defaultdict[int, list[str]] = defaultdict(list)
        query = "SELECT fact, text FROM fact_questions WHERE text IS NOT NULL AND fact IN ({}) ORDER BY fact, position"
        for number, text in self._among(query, wanted):
            questions[number].append(text)
        rows = self._among(f"{_FACT} WHERE number IN ({{}}) ORDER BY number", wanted)
        return {row[0]: _fact(questions[row[0]], *row[1:]) for row in rows}

    def facts(self, search: str = "", limit: int | None = None) -> list[Fact]:
        """Return facts in the order they were written.

        Args:
            search: Part of an id, question, answer, note or page, whatever its accents and case; where texts are not
                kept, of an id, note or page. Blank is every fact.
            limit: How many at most; None is all.

        Returns:
            The facts.
        """
        sought = _plain(search.strip())
        if _SURROGATES.search(sought):
            return []
        self._connection.create_function("plain", 1, _plain, deterministic=True)
        held = " OR ".join(f"instr(plain({column}), ?1)" for column in ("id", "answer", "note", "page"))
        asked = "EXISTS (SELECT 1 FROM fact_questions WHERE fact = number AND instr(plain(text), ?1))"
        query = f"SELECT number FROM facts WHERE ?1 = '' OR {held} OR {asked} ORDER BY number LIMIT ?2"
        rows = self._connection.execute(query, (sought, -1 if limit is None else limit))
        return list(self.by_numbers([row[0] for row in rows]).values())

    def questions_of(self, number: int) -> tuple[str, ...]:
        """Return a fact's question and its paraphrases; none where texts are not kept."""
        query = "SELECT text FROM fact_questions WHERE fact = ? AND text IS NOT NULL ORDER BY position"
        return tuple(row[0] for row in self._connection.execute(query, (number,)))

    def n_questions(self, number: int) -> int:
        """Return how many wordings of a fact's question are held, as text or not."""
        query = "SELECT count(*) FROM fact_questions WHERE fact = ?"
        return int(self._connection.execute(query, (number,)).fetchone()[0])

    def versions(self, number: int) -> tuple[FormerAnswer, ...]:
        """Return what a fact said before, the oldest first."""
        columns = "version, answer, note, passage_id, changed_at"
        rows = self._connection.execute(
            f"SELECT {columns} FROM fact_versions WHERE fact = ? ORDER BY version", (number,)
        )
        return tuple(FormerAnswer(*row) for row in rows)

    def numbers_of_page(self, page: str) -> tuple[int, ...]:
        """Return the facts that come from a document, ascending."""
        return self._numbers("page = ?", page)

    def numbers_of_passage(self, passage_id: str) -> tuple[int, ...]:
        """Return the facts whose answer stands in a passage, ascending."""
        return self._numbers("passage_id = ?", passage_id)

    def numbers_waiting(self, names: Sequence[str]) -> tuple[int, ...]:
        """Return the facts whose source has one of these names and is no document yet, ascending."""
        query = "SELECT number FROM facts WHERE page IS NULL AND note IN ({})"
        return tuple(sorted(row[0] for row in self._among(query, sorted(set(names)))))

    def sourced_numbers(self) -> tuple[int, ...]:
        """Return the facts that come from a document, ascending."""
        return self._numbers("page >= ?", "")

    def counts(self) -> tuple[int, int]:
        """Return how many facts there are, and how many of them memory answers with."""
        query = "SELECT count(*), count(*) FILTER (WHERE state = ?) FROM facts"
        facts, memorised = self._connection.execute(query, (FactState.MEMORISED.value,)).fetchone()
        return facts, memorised

    def _neighbours(self, fact_id: str) -> list[str]:
        """Return ids near one in their order: a whole ledger is too much to compare with."""
        sought = _SURROGATES.sub("", fact_id)
        found = []
        for query in ("id >= ? ORDER BY id", "id < ? ORDER BY id DESC"):
            rows = self._connection.execute(f"SELECT id FROM facts WHERE {query} LIMIT ?", (sought, NEIGHBOURS))
            found += [row[0] for row in rows]
        return found

    def _numbers(self, condition: str, value: str) -> tuple[int, ...]:
        if _SURROGATES.search(value):
            return ()
        rows = self._connection.execute(f"SELECT number FROM facts WHERE {condition} ORDER BY number", (value,))
        return tuple(row[0] for row in rows)

    def _among(self, query: str, values: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query with a list of values, a part of the list at a time."""
        for part in parts(values):
            yield from self._connection.execute(query.format(marks(part)), part)


def parts(values: Sequence[Any]) -> Iterator[list[Any]]:
    """Yield the values in parts that one statement takes."""
    for first in range(0, len(values), VARIABLES):
        yield list(values[first : first + VARIABLES])


def marks(values: Sequence[object]) -> str:
    """Return a statement's place holders for a list of values."""
    return ",".join("?" * len(values))


def _fact(
    questions: Sequence[str],
    fact_id: str,
    kind: str,
    answer: str | None,
    version: int,
    changed_at: str,
    state: str,
    reason: str,
    uses: int,
    evidence: str,
    *place: Any,
) -> Fact:
    said = (Kind(kind), tuple(questions), answer, Source(*place))
    return Fact(fact_id, *said, version, changed_at, FactState(state), reason, uses, evidence)


def _plain(text: str | None) -> str:
    """Return a text as a search compares it: without accents, case and width."""
    bare = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text or "").casefold())
    return unicodedata.normalize("NFKC", _ACCENTS.sub("", bare))
