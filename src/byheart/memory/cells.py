"""Cells: which slots lie in which cell, beside each other in memory, with their sign codes.

Owns the layout: each cell has one stretch of the arrays, with a quarter to spare. A cell that outgrows it moves to the
end; when the end is reached all cells are laid out anew, in order of their numbers, so that a read goes through memory
forwards. Spread over many, adding and removing cost the same at any number of slots. What leaves is overwritten. Knows
no keys and no scores.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from byheart.interfaces import Integers
from byheart.memory.signs import HALVES, WORDS, Words

ABSENT = -1


class Cells:
    """Slots by cell.

    Attributes:
        counts: Slots in each cell. Shape `cells`.
        slots: Slot at each place, -1 where there is none. Shape `places`.
        codes: Sign code at each place, half by half. Shape `2 places 2`.
    """

    def __init__(self, n_cells: int) -> None:
        """Make empty cells.

        Args:
            n_cells: How many.
        """
        self.counts = np.zeros(n_cells, np.int64)
        self.slots: npt.NDArray[np.int32] = np.zeros(0, np.int32)
        self.codes: Words = np.zeros((HALVES, 0, WORDS), np.uint64)
        self._starts = np.zeros(n_cells, np.int64)
        self._rooms = np.zeros(n_cells, np.int64)
        self._end = 0

    @property
    def n_bytes(self) -> int:
        """Bytes of working memory that the arrays take."""
        return sum(array.nbytes for array in (self.counts, self.slots, self.codes, self._starts, self._rooms))

    def add(self, cells: Integers, slots: Integers, codes: Words) -> None:
        """Put slots into cells; none of them is in a cell yet.

        Args:
            cells: Cell of each slot. Shape `batch`.
            slots: Slots, each once. Shape `batch`.
            codes: Their sign codes. Shape `2 batch 2`.
        """
        order = np.argsort(cells, kind="stable")
        touched, firsts, added = np.unique(cells[order], return_index=True, return_counts=True)
        self._make_room(touched, self.counts[touched] + added)
        rank = np.arange(len(order)) - np.repeat(firsts, added)
        places = np.repeat(self._starts[touched] + self.counts[touched], added) + rank
        self._put(places, (slots[order], codes[:, order]))
        self.counts[touched] += added

    def remove(self, cells: Integers, slots: Integers) -> None:
        """Take slots out of their cells and overwrite what they leave.

        Args:
            cells: Cell of each slot. Shape `batch`.
            slots: Slots, each once, each in its cell. Shape `batch`.
        """
        touched = np.unique(cells)
        places = self.places(touched)
        stays = ~np.isin(self.slots[places], slots)
        owner = np.repeat(np.arange(len(touched)), self.counts[touched])
        kept = self._taken(places, stays)
        self.counts[touched] = np.bincount(owner[stays], minlength=len(touched))
        self._put(self.places(touched), kept)

    def places(self, cells: Integers) -> Integers:
        """Return the places of all slots of some cells, cell after cell.

        Args:
            cells: Cell numbers. Shape `cells'`.

        Returns:
            Places. Shape `slots'`.
        """
        return _ranges(self._starts[cells], self.counts[cells])

    def _make_room(self, cells: Integers, needed: Integers) -> None:
        small = needed > self._rooms[cells]
        rooms = _room(needed[small])
        end = self._end + int(rooms.sum())
        if end > len(self.slots):
            self._lay_out(cells, needed)
            return
        cells = cells[small]
        kept = self._taken(self.places(cells))
        self._starts[cells], self._rooms[cells] = self._end + np.cumsum(rooms) - rooms, rooms
        self._end = end
        self._put(self.places(cells), kept)

    def _lay_out(self, cells: Integers, needed: Integers) -> None:
        """Give every cell a stretch of new arrays, these cells as much as they need; half as much again is spare."""
        everyone = np.arange(len(self.counts))
        kept = self._taken(self.places(everyone))
        sizes = self.counts.copy()
        sizes[cells] = needed
        self._rooms = _room(sizes)
        self._starts = np.cumsum(self._rooms) - self._rooms
        self._end = int(self._rooms.sum())
        size = self._end + self._end // 2
        self.slots, self.codes = np.full(size, ABSENT, np.int32), np.zeros((HALVES, size, WORDS), np.uint64)
        self._put(self.places(everyone), kept)

    def _taken(self, places: Integers, stays: npt.NDArray[np.bool_] | None = None) -> tuple[Integers, Words]:
        """Return slots and codes at these places, those that stay, and overwrite the places."""
        chosen = places if stays is None else places[stays]
        found = self.slots[chosen].astype(np.int64), self.codes[:, chosen]
        self.slots[places], self.codes[:, places] = ABSENT, 0
        return found

    def _put(self, places: Integers, kept: tuple[Integers, Words]) -> None:
        self.slots[places], self.codes[:, places] = kept


def _room(sizes: Integers) -> Integers:
    return sizes + (sizes + 3) // 4


def _ranges(starts: Integers, counts: Integers) -> Integers:
    """Return `starts[i], starts[i] + 1, …`, `counts[i]` numbers each, one after the other."""
    before = np.cumsum(counts) - counts
    numbers = np.repeat(starts - before, counts)
    numbers += np.arange(len(numbers))
    return numbers
