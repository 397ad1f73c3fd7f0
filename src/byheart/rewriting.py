"""All slots anew, with another kernel: what follows when the memory's network is adapted, or a new one is shipped.

Owns the order: write with the networks outside the transaction, erase and read back inside it, one epoch. Needs the
facts' texts. Part of the composition root.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import TypeVar

from byheart.errors import BusyError, FactError
from byheart.interfaces import Floats
from byheart.memory.slot_memory import Learned, SlotMemory
from byheart.reports import LearnReport, Progress, Refusal
from byheart.routing import BEFORE, CALIBRATION, GATE
from byheart.store.database import Database
from byheart.types import Fact, FactState

FACTS_PER_BATCH = 256
T = TypeVar("T")
WEIGHTS = "memory_weights"  # the parameter that names the kernel's file, where the knowledge base has its own


def rewrite(
    database: Database,
    memory: SlotMemory,
    encode: Callable[[Sequence[str]], Floats],
    weights: str | None,
    progress: Progress,
) -> LearnReport:
    """Write the slots of all facts anew, in one epoch; facts that this memory cannot hold are refused.

    Args:
        database: The open database.
        memory: The memory with the networks that are to hold from now on.
        encode: Turns questions into vectors of the memory's base encoder. Shape `batch width`.
        weights: Name of the kernel's file below the knowledge base's folder, None for the shipped one.
        progress: Told of every batch.

    Returns:
        Which facts are memorised now, and which refused.

    Raises:
        FactError: Texts are not kept, so that nothing can be written anew.
        BusyError: Another process wrote meanwhile.
    """
    with database.read():
        seen = database.epoch
        facts = [fact for fact in memory.ledger.facts() if fact.state is not FactState.STALE]
    if any(fact.answer is None or not fact.questions for fact in facts):
        raise FactError(
            f"the texts of {len(facts)} facts are not kept (ledger.text is false), so their slots cannot be written "
            "anew; forget them, and learn them again from their file"
        )
    too_long = _too_long(facts, memory)
    fit = [fact for fact in facts if fact.id not in too_long]
    ready = [one for batch in _batches(fit) for one in _written(batch, memory, encode)]
    with database.write() as connection:
        if database.epoch != seen:
            raise BusyError(
                f"another process wrote to {database.path.parent} while slots were written anew (epoch {seen} became "
                f"{database.epoch}); nothing was changed, run it again"
            )
        numbers = {fact.id: memory.ledger.number(fact.id) for fact in facts}
        memory.begin_anew()
        _name_networks(connection, weights)
        refused = {numbers[fact_id]: reason for fact_id, reason in too_long.items()}
        n_refined = 0
        for done, batch in enumerate(_batches(ready), start=1):
            read_back = memory.memorise([_numbered(one, numbers[fact.id]) for fact, one in batch])
            refused |= dict(read_back.refused)
            n_refined += read_back.refined
            progress(min(done * FACTS_PER_BATCH, len(ready)), len(ready), "facts written anew")
        for fact in facts:
            reason = refused.get(numbers[fact.id], "")  # what other networks could not hold says nothing of these
            memory.ledger.set_state(numbers[fact.id], FactState.REFUSED if reason else FactState.MEMORISED, reason)
    return LearnReport(
        memorised=tuple(fact.id for fact in facts if numbers[fact.id] not in refused),
        refused=tuple(Refusal(f.id, refused[numbers[f.id]]) for f in facts if numbers[f.id] in refused),
        refined=n_refined,
        epoch=database.epoch,
    )


_OF_A_KERNEL = (GATE, CALIBRATION, BEFORE, "memory_calibration")  # what holds for one kernel only


def _name_networks(connection: sqlite3.Connection, weights: str | None) -> None:
    """Put down which kernel holds from now on; what was measured with another promises nothing of it."""
    connection.execute("DELETE FROM parameters WHERE name IN (?, ?, ?, ?)", _OF_A_KERNEL)
    connection.execute("DELETE FROM parameters WHERE name = ?", (WEIGHTS,))
    if weights is not None:
        connection.execute("INSERT INTO parameters VALUES (?, ?)", (WEIGHTS, weights))


def _too_long(facts: Sequence[Fact], memory: SlotMemory) -> dict[str, str]:
    """Return the facts whose answer memory cannot hold, by id, and why."""
    limit = min(memory.config.max_answer_tokens, memory.codec.max_tokens)
    reasons = memory.writer.refusals([str(fact.answer) for fact in facts], limit)
    return {fact.id: reason for fact, reason in zip(facts, reasons, strict=True) if reason}


def _written(
    facts: Sequence[Fact], memory: SlotMemory, encode: Callable[[Sequence[str]], Floats]
) -> list[tuple[Fact, Learned]]:
    """Return facts with their slots, not yet numbered."""
    questions = [question for fact in facts for question in fact.questions]
    answers = [str(fact.answer) for fact in facts for _ in fact.questions]
    slots = iter(memory.writer.write(questions, answers, encode(questions)))
    return [
        (fact, Learned(0, fact.kind, fact.questions, str(fact.answer), tuple(next(slots) for _ in fact.questions)))
        for fact in facts
    ]


def _numbered(learned: Learned, number: int) -> Learned:
    return Learned(number, learned.kind, learned.questions, learned.answer, learned.slots)


def _batches(items: Sequence[T]) -> list[Sequence[T]]:
    return [items[first : first + FACTS_PER_BATCH] for first in range(0, len(items), FACTS_PER_BATCH)]
