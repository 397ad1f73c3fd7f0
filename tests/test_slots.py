"""Slots: the index in working memory is what the table holds, whoever wrote, and whatever was rolled back."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from byheart.config import MemoryConfig
from byheart.errors import KernelError
from byheart.memory.codebooks import Codebooks
from byheart.memory.codes import Codes
from byheart.memory.slots import Slot, Slots, erase_all, erase_slots
from byheart.store.database import Database, create

WIDTH = 8
RNG = np.random.default_rng(7)
BOOKS = Codebooks(*(0.3 * RNG.normal(size=(16, WIDTH // 2)).astype(np.float32) for _ in range(2)))
VALUE = Codes.of(RNG.normal(size=(2, WIDTH)).astype(np.float32))
FACTS = range(1, 41)


def fresh(database: Database) -> Slots:
    slots = Slots(database.connection, BOOKS, MemoryConfig())
    slots.refresh()
    return slots


def slot(fact: int, position: int) -> Slot:
    key = RNG.normal(size=WIDTH).astype(np.float32)
    return Slot(fact, position, key / np.linalg.norm(key), VALUE, VALUE)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    create(tmp_path / "knowledge.sqlite", "fake", "f" * 16, 1, 4)
    held = Database(tmp_path / "knowledge.sqlite")
    with held.write() as connection:
        connection.executemany(
            "INSERT INTO facts (number, id, kind, answer_digest, note, version, changed_at, state, reason) "
            "VALUES (?, ?, 'question', x'00', '', 1, '', 'memorised', '')",
            [(fact, f"f{fact}") for fact in FACTS],
        )
    yield held
    held.close()


def same(slots: Slots, database: Database) -> None:
    """Assert that an index is what one made anew from the table is."""
    slots.refresh()
    anew = fresh(database)
    numbers = anew.index.slots()
    assert slots.index.slots().tolist() == numbers.tolist()
    assert len(slots) == len(anew) == len(numbers)
    assert slots.owners(numbers).tolist() == anew.owners(numbers).tolist()
    assert np.array_equal(slots.index.keys_of(numbers), anew.index.keys_of(numbers))
    if len(numbers):
        assert slots.search(anew.index.keys_of(numbers[:3]), 5) == anew.search(anew.index.keys_of(numbers[:3]), 5)


def change(slots: Slots, chance: random.Random) -> None:
    """Do one thing that a write transaction does to slots."""
    held = [int(number) for number in fresh_numbers(slots)]
    some = chance.sample(held, min(len(held), chance.randint(1, 4)))
    match chance.randrange(7):
        case 0 | 1 | 2:
            slots.add([slot(chance.choice(FACTS), i) for i in range(chance.randint(0, 5))])
        case 3:
            slots.erase(some)
        case 4:
            slots.remove(chance.sample(FACTS, 3))
        case 5:
            slots.replace_values(dict.fromkeys(some, (VALUE, VALUE)))
        case _ if chance.random() < 0.2:
            erase_all(slots._connection)
        case _:
            erase_slots(slots._connection, chance.sample(FACTS, 2))


def fresh_numbers(slots: Slots) -> list[int]:
    return [row[0] for row in slots._connection.execute("SELECT number FROM slots")]


@pytest.mark.parametrize("seed", range(8))
def test_an_index_is_the_table_after_any_writes_rollbacks_and_others_writes(database: Database, seed: int) -> None:
    chance, mine = random.Random(seed), fresh(database)
    other_database = Database(database.path)
    theirs = fresh(other_database)
    for _ in range(40):
        writer, slots = (database, mine) if chance.random() < 0.7 else (other_database, theirs)
        with suppress(InterruptedError), writer.write():
            for _ in range(chance.randint(1, 4)):
                change(slots, chance)
                if chance.random() < 0.5:
                    same(slots, writer)
            if chance.random() < 0.3:
                raise InterruptedError
        if chance.random() < 0.5:
            with database.read():
                same(mine, database)
    for held, slots in ((database, mine), (other_database, theirs)):
        with held.read():
            same(slots, held)
    other_database.close()


def test_a_rolled_back_write_is_not_taken_for_the_next_one(database: Database) -> None:
    slots = fresh(database)
    for _ in range(2):
        with suppress(InterruptedError), database.write():
            slots.add([slot(1, 0), slot(2, 0)])
            raise InterruptedError
        with database.write():
            slots.add([slot(3, 0)])
            same(slots, database)


def test_own_writes_do_not_read_all_slots_again(database: Database) -> None:
    slots, said = fresh(database), []
    with database.write() as connection:
        slots.add([slot(fact, 0) for fact in FACTS])
        connection.set_trace_callback(said.append)
        numbers = slots.add([slot(1, 1), slot(2, 1)])
        slots.replace_values({numbers[0]: (VALUE, VALUE)})
        slots.erase(numbers[:1])
        slots.remove([2])
        connection.set_trace_callback(None)
        same(slots, database)
    assert said
    assert not [statement for statement in said if statement.startswith("SELECT number, stamp")]


def test_a_key_that_cannot_be_stored_leaves_the_index_right_after_the_rollback(database: Database) -> None:
    slots = fresh(database)
    bad = Slot(2, 0, np.full(WIDTH, np.nan, np.float32), VALUE, VALUE)
    with pytest.raises(KernelError), database.write():
        slots.add([slot(1, 0), bad])
    with database.write():
        slots.add([slot(3, 0)])
        same(slots, database)
