"""Product-key addressing: which slots have the keys nearest to a query, at a cost bounded for any number of slots.

Owns the keys by slot, and the order of the three steps of a read; knows no values and no facts.

1. Cells. A read scores `2 * sub_keys` sub-keys, and so every cell of the grid (Lample et al. 2019; the inverted
   multi-index, Babenko & Lempitsky 2012), and visits the best cells that hold anything.
2. Codes. Sign codes, added to how far off the cell is, cut the slots seen to a short list: 128 bits to 6,144, then 256
   bits to 1,536.
3. Keys. The short list is scored exactly.

The sizes of the three, not the number of slots, bound the time. A key lies in its nearest cell or, if that is full, in
the overflow list, which every read scans. Steps 1 and 2 are on whole numbers and break ties by cell and slot number:
the same slots give the same answer, alone and in a batch, whatever was inserted or deleted before. Only where a cell
has been full does the order of insertion decide which keys are in it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from byheart.errors import FactError, KernelError
from byheart.interfaces import Floats, Integers
from byheart.memory.cells import ABSENT, Cells
from byheart.memory.codebooks import Codebooks, Grid, fit_codebooks, whole_numbers
from byheart.memory.signs import Bits, SignCodes, Words, differing

__all__ = ["Codebooks", "ProductKeys", "fit_codebooks"]

CELL_SLOTS = 4_096
CELLS = 8_192
SEEN = 1 << 18  # slots that a read looks at, at most
LONG_LIST = 6_144
SHORT_LIST = 1_536
LEVEL = 1 << 12  # nearness, in units of 1 / 2048 ** 2, is compared in steps of 1 / 1024, which fit 16 bits
BIT = 1 << 15  # what a differing bit of 192 takes off: a 96th of a rest's length, about 0.75 / 96 = 1 / 128
EMPTY = 1 << 14  # above any level of a cell
HIGHEST_SLOT = 1 << 30
CHUNK = 16_384
ROUNDING = 2.0**-22  # of a float32 product, relative to both lengths, per coordinate; a generous bound

Whole = npt.NDArray[np.int32]


class ProductKeys:
    """Keys by slot, found by nearness."""

    def __init__(self, codebooks: Codebooks, cell_slots: int = CELL_SLOTS, cells: int = CELLS) -> None:
        """Make an empty index.

        Args:
            codebooks: Fixed sub-keys.
            cell_slots: Slots that a cell holds.
            cells: Cells that a read visits.

        Raises:
            KernelError: A bound is below 1, or a cell holds more slots than a read looks at.
        """
        if not 1 <= cell_slots <= SEEN // 2 or cells < 1:
            raise KernelError(
                f"cell_slots must be from 1 to {SEEN // 2} and cells at least 1, got {cell_slots} and {cells}; "
                "change them"
            )
        self.width, self.cell_slots = codebooks.width, cell_slots
        self.n_cells = codebooks.sub_keys**2
        self._visits = min(cells, self.n_cells)
        self._grid, self._signs = Grid(codebooks), SignCodes(codebooks.width)
        self._cells = Cells(self.n_cells + 1)  # the last is the overflow list
        self._empty = np.full(self.n_cells, EMPTY, np.int16)  # 0 for a cell that holds a slot
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
        """Slots whose cells were full; every read scans them."""
        return int(self._cells.counts[-1])

    @property
    def n_bytes(self) -> int:
        """Bytes of working memory that the arrays take."""
        return self._cells.n_bytes + sum(array.nbytes for array in (self._keys, self._cell_of, self._empty))

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
            KernelError: Keys have the wrong shape or are not finite, or too many are alike.
        """
        numbers, rows = _slot_numbers(slots), self._checked(keys, "keys")
        if len(numbers) != len(rows):
            raise KernelError(f"one key per slot is needed, got {len(numbers)} slots and {len(rows)} keys; match them")
        self._refuse_known(numbers)
        if not len(numbers):
            return
        whole = whole_numbers(rows)
        cells = self._place(whole)
        codes = [self._signs.encode(whole[part] - self._grid.centres(cells[part])) for part in _parts(len(rows))]
        self._reserve(int(numbers.max()) + 1)
        self._cells.add(cells, numbers, np.concatenate(codes, axis=1))
        self._keys[numbers], self._cell_of[numbers] = rows, cells
        self._note_empty(cells)
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
        cells = self._cell_of[numbers]
        self._cells.remove(cells, numbers)
        self._cell_of[numbers], self._keys[numbers] = ABSENT, 0.0
        self._note_empty(cells)
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
        products = [half[0] for half in self._grid.products(whole)]
        cells = self._visited(products)
        places = self._short_list(cells, self._behind(cells, products), whole, max(SHORT_LIST, 2 * k))
        return self._scored(query, self._cells.slots[places].astype(np.int64), k)

    def _visited(self, products: list[Whole]) -> Integers:
        """Return the nearest cells that hold anything, by number, overflow last."""
        near = [half - offsets for half, offsets in zip(products, self._grid.offsets, strict=True)]
        levels = np.add.outer(*(((half.max() - half) // LEVEL).astype(np.int16) for half in near)).ravel()
        levels += self._empty
        last = min(int(np.partition(levels, self._visits - 1)[self._visits - 1]), EMPTY - 1)
        cells = np.flatnonzero(levels <= last)
        counts = self._cells.counts[cells]
        left = SEEN - self.overflow
        if counts.sum() > left:
            order = np.argsort(levels[cells], kind="stable")
            cells = np.sort(cells[order[np.cumsum(counts[order]) <= left]])
        return np.append(cells, self.n_cells)

    def _behind(self, cells: Integers, products: list[Whole]) -> Bits:
        """Return by how many bits the centres of cells are farther from the query than the best; overflow's is zero."""
        rows, columns = np.divmod(cells[:-1], self._grid.sub_keys)
        of_centres = np.append(products[0][rows] + products[1][columns], 0)
        behind: Bits = ((of_centres.max() - of_centres) // BIT).astype(np.uint16)
        return behind

    def _short_list(self, cells: Integers, behind: Bits, whole: Floats, n: int) -> Integers:
        """Return the `n` places in these cells that look nearest."""
        if self._cells.counts[cells].sum() <= n:
            return self._cells.places(cells)
        code, mask = self._signs.query(whole)
        places, cell_behind, apart = self._seen(cells, behind, code[0], mask[0])
        apart += cell_behind
        near = self._nearest(places, apart, max(LONG_LIST, n))
        places, apart = places[near], apart[near]
        apart += differing(self._cells.codes[1].take(places, axis=0), code[1], mask[1])
        apart += cell_behind[near]  # twice the bits, so twice the cell
        return places[self._nearest(places, apart, n)]

    def _seen(self, cells: Integers, behind: Bits, code: Words, mask: Words) -> tuple[Integers, Bits, Bits]:
        """Return all places in cells, with how far behind their cells are, and with how many bits of code differ.

        It goes in parts that fit the processor's cache.
        """
        counts = self._cells.counts[cells]
        seen = np.cumsum(counts)
        found = []
        for part in np.split(np.arange(len(cells)), np.searchsorted(seen, np.arange(CHUNK, seen[-1], CHUNK))):
            places = self._cells.places(cells[part])
            apart = differing(self._cells.codes[0].take(places, axis=0), code, mask)
            found.append((places, np.repeat(behind[part], counts[part]), apart))
        places, behind, apart = (np.concatenate(column) for column in zip(*found, strict=True))
        return places, behind, apart

    def _nearest(self, places: Integers, apart: Bits, n: int) -> Integers:
        """Return where the `n` smallest numbers are, ties by slot number."""
        if len(apart) <= n:
            return np.arange(len(apart))
        near = np.flatnonzero(apart <= np.partition(apart, n - 1)[n - 1])
        if len(near) > n:
            order = apart[near].astype(np.int64) * HIGHEST_SLOT + self._cells.slots[places[near]]
            near = near[np.argpartition(order, n)[:n]]
        return near

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

    def _place(self, whole: Floats) -> Integers:
        """Return the cell each key goes to: its nearest, or the overflow list where that is full."""
        nearest = np.concatenate([self._grid.nearest_cells(whole[part]) for part in _parts(len(whole))])
        order = np.argsort(nearest, kind="stable")
        _, firsts, sizes = np.unique(nearest[order], return_index=True, return_counts=True)
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order)) - np.repeat(firsts, sizes)
        is_late = self._cells.counts[nearest] + rank >= self.cell_slots
        if self.overflow + np.count_nonzero(is_late) > SEEN // 2:
            raise KernelError(
                f"{np.count_nonzero(is_late)} keys find their cells full ({self.cell_slots} slots each), and the "
                f"overflow list holds {SEEN // 2} at most; raise memory.cell_slots, or write fewer facts asked alike"
            )
        return np.where(is_late, self.n_cells, nearest)

    def _note_empty(self, cells: Integers) -> None:
        touched = cells[cells < self.n_cells]
        self._empty[touched] = np.where(self._cells.counts[touched] > 0, 0, EMPTY)

    def _reserve(self, size: int) -> None:
        held = len(self._cell_of)
        if size > held:
            size = max(size, held + held // 2)
            keys, cell_of = np.zeros((size, self.width), np.float32), np.full(size, ABSENT, np.int64)
            keys[:held], cell_of[:held] = self._keys, self._cell_of
            self._keys, self._cell_of = keys, cell_of

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


def _parts(n: int, size: int = CHUNK) -> list[slice]:
    return [slice(first, first + size) for first in range(0, n, size)]
