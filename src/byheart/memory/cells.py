"""Cells: which slots lie in which cell, beside each other in memory, with their sign codes.

Owns the layout: each cell has one stretch of the arrays, its size a power of two; a cell that outgrows it moves to a larger
one, and the freed stretch is kept for the next cell of that size. Adding and removing cost the same at any number of slots.
What leaves is overwritten. Knows no keys and no scores.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.interfaces import Integers
from byheart.memory.signs import WORDS, Words

ABSENT = -1


class Cells:
    """Slots by cell.

    Attributes:
        counts: Slots in each cell. Shape `cells`.
        starts: First place of each cell's stretch. Shape `cells`.
        slots: Slot at each place, -1 where there is none. Shape `places`.
        codes: Sign codes word by word. Shape `4 places`.
    """

    def __init__(self, n_cells: int) -> None:
        """Make empty cells.

        Args:
            n_cells: How many.
        """
        self.counts = np.zeros(n_cells, np.int64)
        self.starts = np.zeros(n_cells, np.int64)
        self.slots = np.full(64, ABSENT, np.int64)
        self.codes: Words = np.zeros((WORDS, 64), np.uint64)
        self._rooms = np.zeros(n_cells, np.int64)
        self._free: dict[int, list[int]] = {}
        self._end = 0

    def add(self, cells: Integers, slots: Integers, codes: Words) -> None:
        """Put slots into cells; none of them is in a cell yet.

        Args:
            cells: Cell of each slot. Shape `batch`.
            slots: Slots, each once. Shape `batch`.
            codes: Their sign codes. Shape `batch 4`.
        """
        order = np.argsort(cells, kind="stable")
        touched, firsts, added = np.unique(cells[order], return_index=True, return_counts=True)
        self._make_room(touched, self.counts[touched] + added)
        rank = np.arange(len(order)) - np.repeat(firsts, added)
        places = np.repeat(self.starts[touched] + self.counts[touched], added) + rank
        self.slots[places] = slots[order]
        self.codes[:, places] = codes[order].T
        self.counts[touched] += added

    def remove(self, cells: Integers, slots: Integers) -> None:
        """Take slots out of their cells and overwrite what they leave.

        Args:
            cells: Cell of each slot. Shape `batch`.
            slots: Slots, each once, each in its cell. Shape `batch`.
        """
        touched = np.unique(cells)
        places = self.places(touched)
        kept = ~np.isin(self.slots[places], slots)
        owner = np.repeat(np.arange(len(touched)), self.counts[touched])[kept]
        left = np.bincount(owner, minlength=len(touched))
        held, codes = self.slots[places[kept]], self.codes[:, places[kept]]
        self._wipe(places)
        self.counts[touched] = left
        places = self.places(touched)
        self.slots[places], self.codes[:, places] = held, codes
        self._release(touched[left == 0])

    def places(self, cells: Integers) -> Integers:
        """Return the places of all slots of some cells, cell after cell.

        Args:
            cells: Cell numbers. Shape `cells'`.

        Returns:
            Places. Shape `slots'`.
        """
        return ranges(self.starts[cells], self.counts[cells])

    def _make_room(self, cells: Integers, needed: Integers) -> None:
        small = needed > self._rooms[cells]
        cells, needed = cells[small], needed[small]
        if not len(cells):
            return
        rooms = 1 << np.ceil(np.log2(needed)).astype(np.int64)
        old, held = self.places(cells), self.counts[cells]
        slots, codes = self.slots[old], self.codes[:, old]
        self._wipe(old)
        self._release(cells)
        self.starts[cells], self._rooms[cells], self.counts[cells] = self._allocate(rooms), rooms, held
        places = self.places(cells)
        self.slots[places], self.codes[:, places] = slots, codes

    def _allocate(self, rooms: Integers) -> Integers:
        starts = np.empty(len(rooms), np.int64)
        for room in np.unique(rooms):
            wanted = np.flatnonzero(rooms == room)
            free = self._free.get(int(room), [])
            reused = free[max(len(free) - len(wanted), 0) :]
            del free[len(free) - len(reused) :]
            fresh = self._end + int(room) * np.arange(len(wanted) - len(reused))
            self._end += int(room) * len(fresh)
            starts[wanted] = np.concatenate([np.asarray(reused, np.int64), fresh])
        if self._end > len(self.slots):
            size = max(2 * len(self.slots), self._end)
            self.slots = _grown(self.slots, size, ABSENT)
            self.codes = np.stack([_grown(word, size, 0) for word in self.codes])
        return starts

    def _release(self, cells: Integers) -> None:
        """Give the stretches of cells back; they hold nothing any more."""
        owning = cells[self._rooms[cells] > 0]
        for room, start in zip(self._rooms[owning].tolist(), self.starts[owning].tolist(), strict=True):
            self._free.setdefault(room, []).append(start)
        self._rooms[owning] = self.counts[owning] = 0

    def _wipe(self, places: Integers) -> None:
        self.slots[places] = ABSENT
        self.codes[:, places] = 0


def ranges(starts: Integers, counts: Integers) -> Integers:
    """Return `starts[i], starts[i] + 1, …`, `counts[i]` numbers each, one after the other.

    Args:
        starts: First numbers. Shape `cells`.
        counts: How many from each. Shape `cells`.

    Returns:
        The numbers. Shape `sum of counts`.
    """
    before = np.cumsum(counts) - counts
    numbers = np.repeat(starts - before, counts)
    numbers += np.arange(len(numbers))
    return numbers


def _grown(array: npt.NDArray[Any], size: int, blank: int) -> npt.NDArray[Any]:
    larger = np.full(size, blank, array.dtype)
    larger[: len(array)] = array
    return larger
