"""The ledger: which facts are held, with their questions, sources, versions and uses.

Owns the tables `facts`, `fact_questions`, `fact_versions`, `fact_evidence` and `fact_uses`: what is written to them,
and how a fact that comes in stands to them. Every method works inside the caller's transaction. Where texts are not
kept, no question, answer or evidence is written; ids, notes, reasons and places in documents are. Knows no slots:
whoever removes facts here erases their slots first, with `Slots.remove`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from byheart.errors import FactError
from byheart.memory.digests import ensure_digests, read_digests
from byheart.memory.held_facts import HeldFacts, marks, parts
from byheart.memory.standing import Holder, Novelty, Standing, judge
from byheart.text.question_keys import distinct_questions, fact_id
from byheart.types import FactState, Kind, NewFact, Source

_HOLDER = "number, id, kind, answer, answer_digest, state"


class Ledger(HeldFacts):
    """The facts of one knowledge base as rows."""

    def __init__(self, connection: sqlite3.Connection, keep_text: bool) -> None:
        """Keep the connection.

        Args:
            connection: A knowledge base's connection.
            keep_text: Whether questions and answers are written as text.
        """
        super().__init__(connection)
        self._keep_text = keep_text

    def standing(self, new: NewFact) -> Standing:
        """Return how a fact stands to those held; nothing is written.

        Args:
            new: A checked fact.

        Returns:
            Whether it is new, known, known in part or in conflict. A fact is found by its id, or by its question among
            the questions of facts of its kind.
        """
        wanted = new.id or fact_id(new.question, new.kind)
        digest = read_digests(self._connection).answer(new.answer)
        holders = self._holders(new.kind, [new.question, *new.paraphrases])
        row = self._connection.execute(f"SELECT {_HOLDER} FROM facts WHERE id = ?", (wanted,)).fetchone()
        return judge(new, wanted, digest, _holder(*row) if row else None, holders)

    def write(self, new: NewFact, source: Source, state: FactState, reason: str) -> int:
        """Write a fact that is new.

        Args:
            new: A checked fact; paraphrases that another fact holds are left to it.
            source: Where it comes from.
            state: Whether memory answers with it.
            reason: Why not; it is kept in either case and must quote neither question nor answer.

        Returns:
            Its number.

        Raises:
            FactError: It is not new.
        """
        standing = self.standing(new)
        if standing.verdict is not Novelty.NEW:
            raise FactError(f"fact {standing.fact_id!r} holds this already or is against it; extend or remove that one")
        digests = ensure_digests(self._connection)
        row = (standing.fact_id, new.kind.value, self._kept(new.answer), digests.answer(new.answer))
        number = self._connection.execute(
            "INSERT INTO facts (id, kind, answer, answer_digest, version, changed_at, state, reason, "
            'note, passage_id, page, start, "end") VALUES (?, ?, ?, ?, 1, ?, ?, ?, ?, ?, ?, ?, ?)',
            (*row, _now(), state.value, reason, *_place(source)),
        ).lastrowid
        if number is None:  # the driver knows no number only where nothing was inserted
            raise FactError(f"fact {standing.fact_id!r} could not be written; learn it again")
        self._append(number, (new.question, *standing.extra))
        self._keep_evidence(number, source, new.evidence)
        return number

    def add_questions(self, number: int, texts: Sequence[str]) -> int:
        """Write further wordings of a fact's question.

        Args:
            number: The fact.
            texts: Wordings; those that a fact of its kind holds already are left out.

        Returns:
            How many were written.

        Raises:
            FactError: There is no such fact.
        """
        row = self._connection.execute("SELECT kind FROM facts WHERE number = ?", (number,)).fetchone()
        if row is None:
            raise _gone(number)
        held = self._holders(Kind(row[0]), texts)
        return self._append(number, [text for text in distinct_questions(texts) if text not in held])

    def asks(self, kind: Kind, texts: Sequence[str]) -> set[str]:
        """Return which of the texts are, but for their form, questions of facts of a kind."""
        return set(self._holders(kind, texts))

    def drop_questions(self, number: int, texts: Sequence[str]) -> int:
        """Delete the wordings of a fact's question that were added last.

        Args:
            number: The fact.
            texts: Wordings; those that it does not hold are passed over.

        Returns:
            How many were deleted.

        Raises:
            FactError: A wording that stays comes after one of them, or none would stay: slots know them by position.
        """
        digest = read_digests(self._connection).question
        query = f"SELECT position FROM fact_questions WHERE fact = {int(number)} AND digest IN ({{}})"
        positions = sorted(row[0] for row in self._among(query, sorted({digest(text) for text in texts})))
        n_left = self.n_questions(number) - len(positions)
        if positions and (n_left < 1 or positions[0] != n_left):
            raise FactError(f"of fact number {number} only wordings that were added last can go; remove the fact")
        self._connection.execute("DELETE FROM fact_questions WHERE fact = ? AND position >= ?", (number, n_left))
        return len(positions)

    def set_state(self, number: int, state: FactState, reason: str) -> None:
        """Write whether memory answers with a fact, and why not; FactError where there is no such fact."""
        values = (state.value, reason, number)
        self._change("UPDATE facts SET state = ?, reason = ? WHERE number = ?", values)

    def set_source(self, number: int, source: Source, evidence: str = "") -> None:
        """Write where a fact comes from; its version stays.

        Args:
            number: The fact.
            source: Where it comes from.
            evidence: The words it rests on; kept where they were not found in a document of the knowledge base.

        Raises:
            FactError: There is no such fact.
        """
        query = 'UPDATE facts SET note = ?, passage_id = ?, page = ?, start = ?, "end" = ? WHERE number = ?'
        self._change(query, (*_place(source), number))
        self._keep_evidence(number, source, evidence)

    def update(self, number: int, answer: str, source: Source) -> int:
        """Write a fact's new answer and put the old one down as a former version; its state stays.

        Args:
            number: The fact.
            answer: The new answer.
            source: Where the new answer comes from.

        Returns:
            The new version's number.

        Raises:
            FactError: There is no such fact.
        """
        self._change(
            "INSERT INTO fact_versions (fact, version, answer, note, passage_id, changed_at) "
            "SELECT number, version, answer, note, passage_id, changed_at FROM facts WHERE number = ?",
            (number,),
        )
        self._connection.execute(
            "UPDATE facts SET answer = ?, answer_digest = ?, version = version + 1, changed_at = ? WHERE number = ?",
            (self._kept(answer), ensure_digests(self._connection).answer(answer), _now(), number),
        )
        self.set_source(number, source)
        row = self._connection.execute("SELECT version FROM facts WHERE number = ?", (number,)).fetchone()
        return int(row[0])

    def remove(self, numbers: Sequence[int]) -> int:
        """Delete facts with their questions, versions and uses, and return how many there were.

        Their slots must be erased first: the database would delete their rows too, but readers that hold an index of
        slots would not be told.
        """
        n_removed = 0
        for part in parts(numbers):
            for table in ("fact_questions", "fact_versions", "fact_evidence", "fact_uses"):
                self._connection.execute(f"DELETE FROM {table} WHERE fact IN ({marks(part)})", part)
            n_removed += self._connection.execute(f"DELETE FROM facts WHERE number IN ({marks(part)})", part).rowcount
        return n_removed

    def count_uses(self, uses: Mapping[str, int]) -> None:
        """Count facts as used, by id, as often as said; those that are gone are passed over."""
        self._connection.executemany(
            "INSERT INTO fact_uses (fact, uses) SELECT number, ?2 FROM facts WHERE id = ?1 "
            "ON CONFLICT (fact) DO UPDATE SET uses = uses + excluded.uses",
            list(uses.items()),
        )

    def _append(self, number: int, texts: Sequence[str]) -> int:
        query = "SELECT coalesce(max(position) + 1, 0) FROM fact_questions WHERE fact = ?"
        first = self._connection.execute(query, (number,)).fetchone()[0]
        digest = ensure_digests(self._connection).question
        self._connection.executemany(
            "INSERT INTO fact_questions (fact, position, text, digest) VALUES (?, ?, ?, ?)",
            [(number, position, self._kept(text), digest(text)) for position, text in enumerate(texts, start=first)],
        )
        return len(texts)

    def _keep_evidence(self, number: int, source: Source, evidence: str) -> None:
        self._connection.execute("DELETE FROM fact_evidence WHERE fact = ?", (number,))
        if self._keep_text and evidence and source.start is None:  # else it stands in the document
            self._connection.execute("INSERT INTO fact_evidence VALUES (?, ?)", (number, evidence))

    def _change(self, query: str, values: tuple[object, ...]) -> None:
        """Run a statement that changes the one fact whose number is the last value."""
        if self._connection.execute(query, values).rowcount != 1:
            raise _gone(values[-1])

    def _holders(self, kind: Kind, texts: Sequence[str]) -> dict[str, Holder]:
        """Return which of the texts are questions of facts of a kind, and whose."""
        of = read_digests(self._connection).question
        digests = {text: of(text) for text in texts}
        query = (
            f"SELECT digest, {_HOLDER} FROM fact_questions JOIN facts ON number = fact "
            f"WHERE kind = '{kind.value}' AND digest IN ({{}}) ORDER BY number"
        )
        found: dict[bytes, Holder] = {}
        for digest, *row in self._among(query, list(digests.values())):
            found.setdefault(digest, _holder(*row))
        return {text: found[digest] for text, digest in digests.items() if digest in found}

    def _kept(self, text: str) -> str | None:
        return text if self._keep_text else None


def _holder(number: int, fact_id: str, kind: str, answer: str | None, answer_digest: bytes, state: str) -> Holder:
    return Holder(number, fact_id, Kind(kind), answer, answer_digest, FactState(state))


def _place(source: Source) -> tuple[object, ...]:
    return source.note, source.passage_id, source.page, source.start, source.end


def _gone(number: object) -> FactError:
    return FactError(f"there is no fact number {number}; it was removed, look its id up again")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
