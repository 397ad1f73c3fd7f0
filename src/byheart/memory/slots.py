"""Slots: the rows in which memory keeps a fact's key and value, and the index that finds them.

Owns the table `slots`, the reuse of freed numbers, and when the index in working memory is behind the table. What is
written here goes into both, at the same cost however full memory is; after somebody else's write, and after one that
was rolled back, the stamps of all slots are compared. A slot belongs to one fact; deleting a fact erases its rows and
nobody else's. Knows no network and no text.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np

from byheart.config import MemoryConfig
from byheart.interfaces import Floats, Integers
from byheart.memory.codebooks import Codebooks
from byheart.memory.codes import Codes
from byheart.memory.product_keys import ProductKeys
from byheart.types import Kind

_STAMP = "memory_stamp"


@dataclass(frozen=True, slots=True)
class Slot:
    """What memory holds of one question of a fact.

    Attributes:
        fact: The fact's number in the ledger.
        position: Which of the fact's questions it stands for.
        key: Unit vector. Shape `key_width`.
        meaning: Value tokens that the upper half reads against a question.
        spelling: Value tokens from which the answer is decoded.
    """

    fact: int
    position: int
    key: Floats
    meaning: Codes
    spelling: Codes


@dataclass(frozen=True, slots=True)
class Found:
    """A slot that addressing found.

    Attributes:
        number: The slot's number.
        fact: The fact's number.
        kind: Whether it is a question's or a claim's.
        cosine: Between the question's key and the slot's.
    """

    number: int
    fact: int
    kind: Kind
    cosine: float


class Slots:
    """The slots of one knowledge base."""

    def __init__(self, connection: sqlite3.Connection, codebooks: Codebooks, config: MemoryConfig) -> None:
        """Keep the connection; slots are read when `refresh` is first called.

        Args:
            connection: Connection to the database.
            codebooks: Fixed sub-keys.
            config: Cells visited, and slots per cell.
        """
        self._connection, self._codebooks, self._config = connection, codebooks, config
        self._forget_index()

    def _forget_index(self) -> None:
        self.index = ProductKeys(self._codebooks, self._config.cell_slots, self._config.cells)
        self._stamps: dict[int, int] = {}
        self._facts: dict[int, tuple[int, Kind]] = {}
        self._seen: int | None = None

    def __len__(self) -> int:
        """Return how many slots there are, as of the last refresh."""
        return len(self._facts)

    def refresh(self) -> None:
        """Bring the index to what the open transaction sees; costs one small read where nothing has changed."""
        stamp = _stamp(self._connection)
        if stamp == self._seen:
            return
        self._seen = None  # until all is done: what fails in between is looked for again
        held = dict(self._connection.execute("SELECT number, stamp FROM slots"))
        self._drop([number for number, known in self._stamps.items() if held.get(number) != known])
        self._take({number: stamp for number, stamp in held.items() if number not in self._stamps})
        self._seen = stamp

    def search(self, keys: Floats, k: int) -> list[list[Found]]:
        """Return per question up to `k` slots by falling cosine. `keys` has shape `batch key_width`."""
        return [
            [
                Found(int(number), *self._facts[int(number)], float(cosine))
                for number, cosine in zip(*found, strict=True)
            ]
            for found in self.index.search(keys, k)
        ]

    def owners(self, numbers: Integers) -> Integers:
        """Return the facts of slots. Shapes `slots`."""
        return np.array([self._facts[int(number)][0] for number in numbers], np.int64)

    def values(self, numbers: Sequence[int], width: int, spelling_width: int) -> dict[int, tuple[Codes, Codes]]:
        """Return meaning and spelling of slots, by number.

        Args:
            numbers: Slots.
            width: Numbers per token of a meaning.
            spelling_width: Numbers per token of a spelling.

        Returns:
            What was asked for; a number that is not there is left out.
        """
        found = {}
        for part in _parts(sorted(set(numbers))):
            rows = self._connection.execute(
                f"SELECT number, value, n_question, n_answer FROM slots WHERE number IN ({','.join('?' * len(part))})",
                part,
            )
            for number, value, n_question, n_answer in rows:
                middle = n_question * (width + 2)
                found[number] = (
                    Codes.from_bytes(value[:middle], n_question, width),
                    Codes.from_bytes(value[middle:], n_answer, spelling_width),
                )
        return found

    def add(self, slots: Sequence[Slot]) -> list[int]:
        """Write slots inside the open write transaction, freed numbers first.

        Args:
            slots: What to write.

        Returns:
            Their numbers.
        """
        self.refresh()
        stamp = _new_stamp(self._connection)
        free = self._free()
        numbers = [next(free) for _ in slots]
        self._connection.executemany(
            "INSERT INTO slots (number, fact, position, key, value, n_question, n_answer, stamp) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    number,
                    slot.fact,
                    slot.position,
                    slot.key.astype("<f2").tobytes(),
                    slot.meaning.to_bytes() + slot.spelling.to_bytes(),
                    len(slot.meaning.scales),
                    len(slot.spelling.scales),
                    stamp,
                )
                for number, slot in zip(numbers, slots, strict=True)
            ],
        )
        self._seen = None
        self._take(dict.fromkeys(numbers, stamp))
        self._seen = stamp
        return numbers

    def of_facts(self, facts: Sequence[int]) -> dict[int, list[tuple[int, Floats]]]:
        """Return the slots of facts, by the fact's number.

        Args:
            facts: Numbers of facts.

        Returns:
            Position and key of every slot, ascending by position; a fact without slots is left out.
        """
        held: dict[int, list[tuple[int, Floats]]] = {}
        for part in _parts(sorted(set(facts))):
            query = f"SELECT fact, position, key FROM slots WHERE fact IN ({','.join('?' * len(part))})"
            for fact, position, key in self._connection.execute(query + " ORDER BY fact, position", part):
                held.setdefault(fact, []).append((position, np.frombuffer(key, "<f2").astype(np.float32)))
        return held

    def replace_values(self, values: Mapping[int, tuple[Codes, Codes]]) -> None:
        """Write the meanings and spellings of slots anew, by number; their keys and all other slots stay."""
        self._connection.executemany(  # no stamp: indexes hold keys
            "UPDATE slots SET value = ?, n_question = ?, n_answer = ? WHERE number = ?",
            [(m.to_bytes() + s.to_bytes(), len(m.scales), len(s.scales), n) for n, (m, s) in values.items()],
        )

    def remove(self, facts: Sequence[int]) -> int:
        """Erase all slots of facts, and return how many there were."""
        return self._delete("fact", facts)

    def erase(self, numbers: Sequence[int]) -> int:
        """Erase single slots, and return how many there were."""
        return self._delete("number", numbers)

    def _delete(self, column: str, values: Sequence[int]) -> int:
        self.refresh()
        doomed = []
        for part in _parts(sorted(set(values))):
            query = f"SELECT number FROM slots WHERE {column} IN ({','.join('?' * len(part))})"
            doomed += [row[0] for row in self._connection.execute(query, part)]
        if doomed:
            _erase(self._connection, "number", doomed)
            self._seen = None
            self._drop(doomed)
            self._seen = _stamp(self._connection)
        return len(doomed)

    def _free(self) -> Iterator[int]:
        return (number for number in count(1) if number not in self._facts)

    def _drop(self, numbers: Sequence[int]) -> None:
        if len(numbers) and len(numbers) == len(self._facts):
            self._forget_index()
        elif numbers:
            self.index.delete(np.array(numbers, np.int64))
            for number in numbers:
                del self._stamps[number], self._facts[number]

    def _take(self, stamps: Mapping[int, int]) -> None:
        for part in _parts(sorted(stamps)):
            marks = ",".join("?" * len(part))
            found = self._connection.execute(
                "SELECT slots.number, fact, kind, key FROM slots JOIN facts ON facts.number = fact "
                f"WHERE slots.number IN ({marks})",
                part,
            ).fetchall()
            keys = np.stack([np.frombuffer(row[3], "<f2") for row in found]).astype(np.float32)
            self.index.insert(np.array([row[0] for row in found], np.int64), keys)
            for number, fact, kind, _ in found:
                self._stamps[number], self._facts[number] = stamps[number], (fact, Kind(kind))


def erase_slots(connection: sqlite3.Connection, facts: Sequence[int]) -> int:
    """Erase the slots of facts inside the open write transaction, without an index; return how many there were.

    Args:
        connection: Connection to the database.
        facts: Numbers of facts.

    Returns:
        Slots erased; every index notices at its next refresh.
    """
    return _erase(connection, "fact", facts)


def erase_all(connection: sqlite3.Connection) -> None:
    """Erase every slot inside the open write transaction."""
    connection.execute("DELETE FROM slots")
    _new_stamp(connection)


def _erase(connection: sqlite3.Connection, column: str, values: Sequence[int]) -> int:
    n_erased = 0
    for part in _parts(sorted(set(values))):
        marks = ",".join("?" * len(part))
        n_erased += connection.execute(f"DELETE FROM slots WHERE {column} IN ({marks})", part).rowcount
    if n_erased:
        _new_stamp(connection)
    return n_erased


def _stamp(connection: sqlite3.Connection) -> int:
    row = connection.execute("SELECT value FROM parameters WHERE name = ?", (_STAMP,)).fetchone()
    return int(row[0]) if row else 0


def _new_stamp(connection: sqlite3.Connection) -> int:
    # Random, so that a transaction that was rolled back is never taken for a later one.
    stamp = secrets.randbits(62) + 1
    connection.execute("INSERT OR REPLACE INTO parameters VALUES (?, ?)", (_STAMP, str(stamp)))
    return stamp


def _parts(numbers: Sequence[int], size: int = 10_000) -> Iterator[Sequence[int]]:
    for first in range(0, len(numbers), size):
        yield numbers[first : first + size]
