"""Product-key addressing: which slots have the keys nearest to a query, at a cost that is bounded for any number of slots.

Owns the keys by slot, and the order of the three steps of a read; knows no values and no facts.

1. Cells. A read scores `2 * sub_keys` sub-keys, and so every cell of the grid (Lample et al. 2019; the inverted
   multi-index, Babenko & Lempitsky 2012), and visits the best cells that hold anything, until it has seen as many slots
   as `cells` full cells hold. That budget, not the number of slots, bounds the time.
2. Codes. Sign codes cut the slots seen to a short list: 128 bits to 16,384, then 256 weighted bits to 1,024.
3. Keys. The short list is scored exactly.

A key lies in its nearest cell; if that is full, in the nearest of seven more with room; if none has, in the overflow
list, which every read scans. Steps 1 and 2 are on whole numbers and break ties by cell and slot number: the same slots give
the same answer, alone and in a batch, whatever was inserted or deleted before. Only where cells have been full may the
order of insertion decide which cell a key is in.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from byheart.errors import FactError, KernelError
from byheart.interfaces import Floats, Integers
from byheart.memory.cells import ABSENT, Cells
from byheart.memory.codebooks import Codebooks, Grid, fit_codebooks, whole_numbers
from byheart.memory.signs import COARSE_WORDS, Distances, SignCodes, Words, coarse_distances, fine_distances

__all__ = ["Codebooks", "ProductKeys", "fit_codebooks"]

CELL_SLOTS = 512
CELLS = 512
TRIES = 8
COARSE_LIST = 16_384
SHORT_LIST = 1_024
LEVEL = 1 << 12  # nearness is compared in steps of 1 / 1024: fine enough, and few enough to count
HIGHEST_SLOT = 1 << 30
CHUNK = 16_384
ROUNDING = 2.0**-22  # of a float32 product, relative to both lengths, per coordinate; a generous bound


class ProductKeys:
    """Keys by slot, found by nearness."""

    def __init__(self, codebooks: Codebooks, cell_slots: int = CELL_SLOTS, cells: int = CELLS) -> None:
        """Make an empty index.

        Args:
            codebooks: Fixed sub-keys.
            cell_slots: Slots that a cell holds.
            cells: A read sees as many slots as this many full cells hold, spread over however many cells that takes.

        Raises:
            KernelError: A bound is below 1.
        """
        if cell_slots < 1 or cells < 1:
            raise KernelError(f"cell_slots and cells must be at least 1, got {cell_slots} and {cells}; raise them")
        self.width, self.cell_slots = codebooks.width, cell_slots
        self.n_cells = codebooks.sub_keys**2
        self._budget = cells * cell_slots
        self._grid, self._signs = Grid(codebooks), SignCodes(codebooks.width)
        self._cells = Cells(self.n_cells + 1)  # the last is the overflow list
        self._keys: Floats = np.zeros((0, self.width), np.float32)
        self._cell_of: Integers = np.zeros(0, np.int64)
        self._n = 0
        self._longest = 0.0

    def __len__(self) -> int:
        """Return how many slots there are."""
        return self._n

    @property
    def cells_used(self) -> int:
        """Cells that hold a slot."""
        return int(np.count_nonzero(self._cells.counts[:-1]))

    @property
    def cells_full(self) -> int:
        """Cells that hold as many slots as they may."""
        return int(np.count_nonzero(self._cells.counts[:-1] >= self.cell_slots))

    @property
    def overflow(self) -> int:
        """Slots for which all of the nearest cells were full; every read scans them."""
        return int(self._cells.counts[-1])

    @property
    def n_bytes(self) -> int:
        """Bytes of working memory that the arrays take."""
        cells = self._cells
        arrays = (self._keys, self._cell_of, cells.slots, cells.codes, cells.counts, cells.starts)
        return sum(array.nbytes for array in arrays)

    def slots(self) -> Integers:
        """Return the numbers of all slots, ascending."""
        return np.flatnonzero(self._cell_of != ABSENT)

    def keys_of(self, slots: npt.ArrayLike) -> Floats:
        """Return a copy of the keys of slots.

        Args:
            slots: Slot numbers.

        Returns:
            Their keys, in this order. Shape `slots width`.

        Raises:
            FactError: A slot is not there.
        """
        return self._keys[self._stored(slots)]

    def insert(self, slots: npt.ArrayLike, keys: Floats) -> None:
        """Store keys; at the first thing wrong nothing is.

        Args:
            slots: Slot numbers from 0, each once; memory is taken up to the highest. Shape `batch`.
            keys: Their keys, unit vectors. Other lengths are scored right, but found less surely. Shape `batch width`.

        Raises:
            FactError: A slot is there already, is given twice, or is no slot number.
            KernelError: Keys have the wrong shape or are not finite, or too many are too alike for cells and overflow.
        """
        numbers, rows = _slot_numbers(slots), self._checked(keys, "keys")
        if len(numbers) != len(rows):
            raise KernelError(f"one key per slot is needed, got {len(numbers)} slots and {len(rows)} keys; match them")
        self._refuse_known(numbers)
        parts = [rows[first : first + CHUNK] for first in range(0, len(rows), CHUNK)]
        if not parts:
            return
        whole = [whole_numbers(part) for part in parts]
        cells = self._place(np.concatenate([self._grid.best_cells(part, 1)[:, 0] for part in whole]), whole)
        self._reserve(int(numbers.max()) + 1)
        self._cells.add(cells, numbers, np.concatenate([self._signs.encode(part) for part in whole]))
        self._keys[numbers], self._cell_of[numbers] = rows, cells
        self._n += len(numbers)
        self._longest = max(self._longest, float(np.linalg.norm(rows.astype(np.float64), axis=1).max()))

    def delete(self, slots: npt.ArrayLike) -> None:
        """Erase slots and overwrite their keys; if one is not there nothing is erased.

        Args:
            slots: Slot numbers, each once.

        Raises:
            FactError: A slot is not there, or is given twice.
        """
        numbers = self._stored(slots)
        _refuse_repeated(numbers)
        if not len(numbers):
            return
        self._cells.remove(self._cell_of[numbers], numbers)
        self._cell_of[numbers], self._keys[numbers] = ABSENT, 0.0
        self._n -= len(numbers)

    def search(self, queries: Floats, k: int) -> list[tuple[Integers, Floats]]:
        """Return per query the slots with the highest inner products, falling, ties by slot number.

        Args:
            queries: Unit vectors. Shape `batch width`.
            k: Slots wanted; fewer come where fewer are stored or seen.

        Returns:
            Slot numbers and inner products, summed in float64 and rounded once. Shapes `k'`.

        Raises:
            KernelError: Queries have the wrong shape or are not finite, or `k` is below 1.
        """
        rows = self._checked(queries, "queries")
        if k < 1:
            raise KernelError(f"k must be at least 1, got {k}; ask for one slot or more")
        return [self._search(row, whole[None], k) for row, whole in zip(rows, whole_numbers(rows), strict=True)]

    def _search(self, query: Floats, whole: Floats, k: int) -> tuple[Integers, Floats]:
        """Return the best slots of one query: cells, codes, keys. Nothing here depends on other queries."""
        code, mask = self._signs.query(whole)
        length = max(SHORT_LIST, 2 * k)
        places = self._coarse_list(self._visited(whole), code, max(COARSE_LIST, length))
        if len(places) > length:
            distances = fine_distances(self._cells.codes.take(places, axis=1), code, mask)
            places = self._nearest([places], [distances], length)
        return self._scored(query, self._cells.slots[places], k)

    def _visited(self, whole: Floats) -> Integers:
        """Return the best cells that hold anything, overflow included, with no more slots than the budget."""
        counts = self._cells.counts
        first, second = (half[0] // LEVEL for half in self._grid.nearness(whole))
        first, second = first.max() - first, second.max() - second
        levels = np.add.outer(first, second).ravel()
        seen = np.cumsum(np.bincount(levels, weights=counts[:-1]))
        budget = self._budget - self.overflow
        last = int(np.searchsorted(seen, budget, side="right"))
        cells = np.flatnonzero((levels < last) & (counts[:-1] > 0))
        if last < len(seen):  # what is left of the budget goes to cells of the next level, by number
            level = np.flatnonzero((levels == last) & (counts[:-1] > 0))
            left = budget - (seen[last - 1] if last else 0)
            cells = np.concatenate([cells, level[np.cumsum(counts[level]) <= left]])
        return np.append(cells, self.n_cells)

    def _coarse_list(self, cells: Integers, code: Words, n: int) -> Integers:
        """Return the `n` places in these cells whose codes are nearest; in parts, for the processor's cache."""
        seen = np.cumsum(self._cells.counts[cells])
        if seen[-1] <= n:
            return self._cells.places(cells)
        cuts = np.searchsorted(seen, np.arange(CHUNK, seen[-1], CHUNK))
        parts = [self._cells.places(part) for part in np.split(cells, cuts)]
        first, second = self._cells.codes[:COARSE_WORDS]
        distances = [coarse_distances(first.take(part), second.take(part), code) for part in parts]
        return self._nearest(parts, distances, n)

    def _nearest(self, parts: list[Integers], distances: list[Distances], n: int) -> Integers:
        """Return the `n` places at the smallest distances, ties by slot number."""
        last = _level(np.concatenate(distances), n)
        pairs = list(zip(parts, distances, strict=True))
        sure = np.concatenate([places[np.flatnonzero(apart < last)] for places, apart in pairs])
        tied = np.concatenate([places[np.flatnonzero(apart == last)] for places, apart in pairs])
        left = n - len(sure)
        if left < len(tied):
            tied = tied[np.argpartition(self._cells.slots[tied], left)[:left]]
        return np.concatenate([sure, tied])

    def _scored(self, query: Floats, slots: Integers, k: int) -> tuple[Integers, Floats]:
        rows = self._keys.take(slots, axis=0)
        if len(slots) > k:
            # The float32 product proposes all that can be among the best; the float64 sum, row by row, decides.
            proposed = rows @ query
            margin = ROUNDING * self.width * self._longest * float(np.linalg.norm(query))
            near = np.flatnonzero(proposed >= np.partition(proposed, -k)[-k] - margin)
            rows, slots = rows[near], slots[near]
        exact = np.add.reduce(rows.astype(np.float64) * query.astype(np.float64), axis=1).astype(np.float32)
        order = np.lexsort((slots, -exact))[:k]
        return slots[order], exact[order]

    def _place(self, cells: Integers, whole: list[Floats]) -> Integers:
        """Return the cell each key goes to, given its nearest cell."""
        counts = self._cells.counts.copy()
        placed = _accept(cells, counts, self.cell_slots)
        late = np.flatnonzero(placed == ABSENT)
        if not len(late):
            return placed
        choices = np.concatenate(
            [
                self._grid.best_cells(part, TRIES)
                for part in np.array_split(np.concatenate(whole)[late], 1 + len(late) // 2048)
            ]
        )
        for choice in choices.T[1:]:
            waiting = np.flatnonzero(placed[late] == ABSENT)
            placed[late[waiting]] = _accept(choice[waiting], counts, self.cell_slots)
        left = placed == ABSENT
        most = self._budget // 2
        if self.overflow + np.count_nonzero(left) > most:
            raise KernelError(
                f"{np.count_nonzero(left)} keys find their {TRIES} nearest cells full ({self.cell_slots} slots each), "
                f"and the overflow list holds {most} at most; raise memory.cell_slots"
            )
        placed[left] = self.n_cells
        return placed

    def _reserve(self, size: int) -> None:
        held = len(self._cell_of)
        if size > held:
            more = max(size, 2 * held, 64) - held
            self._keys = np.concatenate([self._keys, np.zeros((more, self.width), np.float32)])
            self._cell_of = np.concatenate([self._cell_of, np.full(more, ABSENT, np.int64)])

    def _checked(self, rows: Floats, name: str) -> Floats:
        if rows.ndim != 2 or rows.shape[1] != self.width:
            raise KernelError(
                f"{name} must have shape batch {self.width}, got {rows.shape}; use this memory's projection"
            )
        if not np.isfinite(rows).all():
            bad = int(np.flatnonzero(~np.isfinite(rows).all(axis=1))[0])
            raise KernelError(f"row {bad} of the {name} holds NaN or infinity; look for the failed encoding")
        return np.ascontiguousarray(rows, np.float32)

    def _refuse_known(self, numbers: Integers) -> None:
        _refuse_repeated(numbers)
        inside = numbers[numbers < len(self._cell_of)]
        known = inside[self._cell_of[inside] != ABSENT]
        if len(known):
            raise FactError(f"slot {known[0]} is there already; delete it first, or take a free number")

    def _stored(self, slots: npt.ArrayLike) -> Integers:
        numbers = _slot_numbers(slots)
        inside = numbers < len(self._cell_of)
        absent = numbers[~inside].tolist() + numbers[inside][self._cell_of[numbers[inside]] == ABSENT].tolist()
        if absent:
            raise FactError(f"slot {absent[0]} is not in the memory; it was deleted or never written, look it up anew")
        return numbers


def _slot_numbers(slots: npt.ArrayLike) -> Integers:
    numbers = np.asarray(slots)
    if not numbers.size:
        return np.zeros(0, np.int64)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise FactError(
            f"slots must be a row of whole numbers, got {numbers.dtype} of shape {numbers.shape}; pass ints"
        )
    if numbers.min() < 0 or numbers.max() >= HIGHEST_SLOT:
        raise FactError(f"slots are from 0 to {HIGHEST_SLOT - 1}, got {numbers.min()} to {numbers.max()}; renumber")
    return numbers.astype(np.int64)


def _refuse_repeated(numbers: Integers) -> None:
    unique, counts = np.unique(numbers, return_counts=True)
    if len(unique) < len(numbers):
        raise FactError(f"slot {unique[counts > 1][0]} is given twice; name each slot once")


def _level(distances: Distances, n: int) -> int:
    """Return the distance below which `n` or fewer lie, and not above which; counting by halves beats a histogram."""
    low, high = 0, int(distances.max())
    while low < high:
        middle = (low + high) // 2
        if np.count_nonzero(distances <= middle) > n:
            high = middle
        else:
            low = middle + 1
    return low


def _accept(wanted: Integers, counts: Integers, most: int) -> Integers:
    """Return the wanted cells, -1 where a cell is full by then, and add what is accepted to `counts`."""
    order = np.argsort(wanted, kind="stable")
    cells, firsts, sizes = np.unique(wanted[order], return_index=True, return_counts=True)
    rank = np.empty(len(wanted), np.int64)
    rank[order] = np.arange(len(wanted)) - np.repeat(firsts, sizes)
    accepted = np.where(counts[wanted] + rank < most, wanted, ABSENT)
    counts[cells] = np.minimum(counts[cells] + sizes, np.maximum(most, counts[cells]))
    return accepted
