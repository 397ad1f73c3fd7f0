"""Sub-keys: the two fixed codebooks that split the space of keys into a grid of cells.

Owns their shape, their fitting, and the arithmetic that finds a key's cell. Knows no slots.
They are fitted once, with the kernel, and never again: a new fact must not move the facts that are there.

The arithmetic is on whole numbers small enough for float32 to hold exactly. So a BLAS product has the same bits
whatever the size of the batch, and a key gets the same cell alone and in bulk.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from byheart.errors import KernelError
from byheart.interfaces import Floats, Integers

# Coordinates are rounded to multiples of 1 / 2048: sums of products of two unit vectors then stay below 2 ** 24.
STEPS = 2048.0
LONGEST = 2.0
ITERATIONS = 12
FITTED_ON = 50_000


@dataclass(frozen=True, slots=True)
class Codebooks:
    """Sub-keys of the first and of the second half of a key; cell `i * sub_keys + j` is sub-key i beside sub-key j.

    Attributes:
        first: Sub-keys of the first half. Shape `sub_keys half_width`.
        second: Sub-keys of the second half. Shape `sub_keys half_width`.

    Raises:
        KernelError: The two differ in shape, are empty, not finite, or hold a sub-key longer than 2.
    """

    first: Floats
    second: Floats

    def __post_init__(self) -> None:
        """Check both."""
        if self.first.ndim != 2 or self.first.shape != self.second.shape or not self.first.size:
            raise KernelError(
                f"codebooks must have one shape, sub_keys half_width, got {self.first.shape} and "
                f"{self.second.shape}; fit them with fit_codebooks"
            )
        longest = max(float(np.linalg.norm(half, axis=1).max()) for half in (self.first, self.second))
        if not longest <= LONGEST:  # also true of NaN
            raise KernelError(f"sub-keys must be finite and at most {LONGEST:g} long, got {longest}; fit unit vectors")

    @property
    def sub_keys(self) -> int:
        """Sub-keys in each codebook."""
        return len(self.first)

    @property
    def width(self) -> int:
        """Length of a key."""
        return int(2 * self.first.shape[1])


def fit_codebooks(keys: Floats, sub_keys: int, seed: int) -> Codebooks:
    """Return codebooks fitted to the halves of keys by k-means, in which no sub-key is nearest to hardly any key.

    A sub-key with under a quarter of its share moves into one with over twice its share: cells fill more evenly.
    Cells are best where the halves carry equal variance; let the projection that makes the keys see to that.

    Args:
        keys: Unit vectors like those to be stored, at least `sub_keys`. Shape `batch width`, the width even.
        sub_keys: Sub-keys per half.
        seed: Seed of the random choices.

    Returns:
        The codebooks.

    Raises:
        KernelError: Too few keys, an odd width, or keys that are not finite.
    """
    if keys.ndim != 2 or keys.shape[1] % 2 or not 1 <= sub_keys <= len(keys):
        raise KernelError(
            f"codebooks need at least {sub_keys} keys of even width, got shape {keys.shape}; "
            "pass more keys or ask for fewer sub-keys"
        )
    if not np.isfinite(keys).all():
        raise KernelError("keys to fit codebooks on hold NaN or infinity; look for the failed encoding")
    rng = np.random.default_rng(seed)
    sample = keys[rng.permutation(len(keys))[:FITTED_ON]].astype(np.float32)
    first, second = np.hsplit(sample, 2)
    return Codebooks(_fit(first, sub_keys, rng), _fit(second, sub_keys, rng))


def _fit(halves: Floats, sub_keys: int, rng: np.random.Generator) -> Floats:
    centres = halves[rng.permutation(len(halves))[:sub_keys]].copy()
    share = len(halves) / sub_keys
    for iteration in range(ITERATIONS):
        nearest = np.argmax(halves @ centres.T - (centres**2).sum(axis=1) / 2, axis=1)
        loads = np.bincount(nearest, minlength=sub_keys)
        sums = np.zeros(centres.shape, np.float64)
        np.add.at(sums, nearest, halves)
        filled = loads > 0
        centres[filled] = (sums[filled] / loads[filled, None]).astype(np.float32)
        if iteration < ITERATIONS - 3:  # the last rounds settle
            crowded = np.flatnonzero(loads[nearest] > 2 * share)
            idle = np.flatnonzero(loads < share / 4)[: len(crowded)]
            centres[idle] = halves[rng.choice(crowded, len(idle), replace=False)] if len(idle) else centres[idle]
    return centres


class Grid:
    """Codebooks as whole numbers: which cell a key is nearest to.

    Nearness is the inner product less half the squared length: the nearest sub-key has the most.

    Attributes:
        sub_keys: Sub-keys in each codebook; a cell's number is `row * sub_keys + column`.
        offsets: Half the squared lengths of the sub-keys, in units of 1 / 2048². Two arrays of shape `sub_keys`.
    """

    def __init__(self, codebooks: Codebooks) -> None:
        """Round the sub-keys.

        Args:
            codebooks: The codebooks.
        """
        self.sub_keys = codebooks.sub_keys
        self._halves = [np.rint(half * STEPS).T.copy() for half in (codebooks.first, codebooks.second)]
        self.offsets = [np.rint((half**2).sum(axis=0) / 2).astype(np.int32) for half in self._halves]

    def products(self, whole: Floats) -> list[npt.NDArray[np.int32]]:
        """Return the inner products of keys with the sub-keys of either half, in units of 1 / 2048².

        Args:
            whole: Keys as `whole_numbers` gives them. Shape `batch width`.

        Returns:
            Two arrays of shape `batch sub_keys`.
        """
        parts = zip(np.hsplit(whole, 2), self._halves, strict=True)
        return [(part @ half).astype(np.int32) for part, half in parts]

    def centres(self, cells: Integers) -> Floats:
        """Return the centres of cells as whole numbers: both sub-keys, one after the other.

        Args:
            cells: Cell numbers; the number after the last cell stands for none, and its centre is zero. Shape `batch`.

        Returns:
            Shape `batch width`.
        """
        inside = cells < self.sub_keys**2
        rows, columns = np.divmod(np.where(inside, cells, 0), self.sub_keys)
        return np.hstack([self._halves[0].T[rows], self._halves[1].T[columns]]) * inside[:, None]

    def nearest_cells(self, whole: Floats) -> Integers:
        """Return the nearest cell of each key, ties by number.

        Args:
            whole: Keys as `whole_numbers` gives them. Shape `batch width`.

        Returns:
            Cell numbers. Shape `batch`.
        """
        parts = zip(self.products(whole), self.offsets, strict=True)
        first, second = (np.argmax(products - offsets, axis=1) for products, offsets in parts)
        cells: Integers = first * self.sub_keys + second
        return cells


def whole_numbers(keys: Floats) -> Floats:
    """Return keys scaled to length 2048 and rounded; the same bits alone and in a batch.

    Args:
        keys: Finite vectors of any length; a zero vector stays one. Shape `batch width`.

    Returns:
        Whole numbers as float32. Shape `batch width`.
    """
    wide = keys.astype(np.float64)
    lengths = np.sqrt(np.add.reduce(wide * wide, axis=1))[:, None]
    return np.rint(wide * (STEPS / np.where(lengths > 0, lengths, 1.0))).astype(np.float32)
