"""How full the memory is, and how sure addressing still is.

Owns the two figures of recall. A fact with paraphrases is asked by one of its keys while that key's slot is hidden: its
fact must be among the candidates for the reader to weigh it. With ten times as many facts there are, at random, ten
times as many rivals nearer than the fact's own slots; with `r` of them now, they are Poisson with mean `10 r`. Part of
the composition root.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from byheart.interfaces import Floats, Integers
from byheart.memory.slot_memory import SlotMemory
from byheart.reports import Capacity

SAMPLE = 1000
SEED = 7
GROWTH = 10


def measured(memory: SlotMemory, connection: sqlite3.Connection) -> Capacity:
    """Return the memory's figures, inside an open transaction.

    Args:
        memory: The memory.
        connection: Connection to the database.

    Returns:
        Counts, bytes, and recall; recall is None where no fact has a paraphrase.
    """
    memory.slots.refresh()
    index = memory.slots.index
    facts, memorised = memory.ledger.counts()
    query = "SELECT count(*), coalesce(sum(length(key) + length(value)), 0) FROM slots"
    n_slots, size = connection.execute(query).fetchone()
    rivals = nearer_rivals(memory, connection)
    return Capacity(
        facts=facts,
        memorised=memorised,
        slots=n_slots,
        cells_used=index.cells_used,
        cells_full=index.cells_full,
        cells=index.n_cells,
        bytes_per_fact=size / memorised if memorised else 0.0,
        recall=share_found(rivals, 1, memory.config.candidates),
        recall_at_ten_times=share_found(rivals, GROWTH, memory.config.candidates),
    )


def nearer_rivals(memory: SlotMemory, connection: sqlite3.Connection) -> list[int]:
    """Return, for a sample of facts with paraphrases, how many other facts are nearer to one of its keys than it is.

    Args:
        memory: The memory.
        connection: Connection to the database.

    Returns:
        One number per fact asked.
    """
    query = (
        "SELECT number, fact, key FROM slots WHERE fact IN (SELECT fact FROM slots GROUP BY fact HAVING count(*) > 1)"
    )
    rows = connection.execute(query + " GROUP BY fact ORDER BY fact").fetchall()  # one slot of each
    rng = np.random.default_rng(SEED)
    chosen = [rows[i] for i in sorted(rng.permutation(len(rows))[:SAMPLE])]
    if not chosen:
        return []
    numbers = memory.slots.index.slots()
    held = _Held(numbers, memory.slots.index.keys_of(numbers), memory.slots.owners(numbers))
    return [_nearer(np.frombuffer(key, "<f2").astype(np.float32), number, fact, held) for number, fact, key in chosen]


def share_found(rivals: Sequence[int], growth: float, candidates: int) -> float | None:
    """Return the expected share of facts that are among the candidates.

    Args:
        rivals: Facts nearer to the question than its own, per question, as things are.
        growth: How many times as many facts there are then.
        candidates: Facts that are weighed.

    Returns:
        0 to 1; None where there is no question.
    """
    if not rivals:
        return None
    if growth == 1:
        return sum(r < candidates for r in rivals) / len(rivals)
    return sum(_poisson_below(growth * r, candidates) for r in rivals) / len(rivals)


@dataclass(frozen=True, slots=True)
class _Held:
    """All slots: their numbers, keys and facts."""

    numbers: Integers
    keys: Floats
    owners: Integers


def _nearer(key: Floats, number: int, fact: int, held: _Held) -> int:
    cosines = held.keys @ key
    own = cosines[(held.owners == fact) & (held.numbers != number)].max()
    return len(np.unique(held.owners[(cosines > own) & (held.owners != fact)]))


def _poisson_below(mean: float, n: int) -> float:
    return sum(math.exp(-mean) * mean**i / math.factorial(i) for i in range(n))
