"""Sign codes: a key as 256 bits, so that a read can look at very many candidates before it touches a full key.

Owns rotation, packing and distances. Knows no cells. Every bit is the sign of the key along one direction of a
randomised Hadamard basis (Ailon & Chazelle 2006, fast Johnson-Lindenstrauss); the share of bits in which two keys differ
grows with the angle between them (Charikar 2002). Products are of whole numbers below 2 ** 24, hence exact.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from byheart.interfaces import Floats

Words = npt.NDArray[np.uint64]
Distances = npt.NDArray[np.uint8 | np.uint16]
WORDS = 4
COARSE_WORDS = 2
SEED = 20_011


class SignCodes:
    """Turns keys into sign codes, and queries into what compares with them."""

    def __init__(self, width: int) -> None:
        """Draw the directions; they depend on the width alone.

        Args:
            width: Length of a key.
        """
        size = 1 << (width - 1).bit_length()
        hadamard = np.ones((1, 1), np.float32)
        while len(hadamard) < size:
            hadamard = np.block([[hadamard, hadamard], [hadamard, -hadamard]])
        rng = np.random.default_rng(SEED)
        blocks = [
            hadamard[:width, rng.permutation(size)] * rng.choice(np.float32([-1, 1]), (width, 1))
            for _ in range(-(-WORDS * 64 // size))
        ]
        self._directions = np.hstack(blocks)[:, : WORDS * 64].copy()

    def encode(self, whole: Floats) -> Words:
        """Return the codes of keys.

        Args:
            whole: Keys as `whole_numbers` gives them. Shape `batch width`.

        Returns:
            Packed signs. Shape `batch 4`.
        """
        return _packed(whole @ self._directions > 0)

    def query(self, whole: Floats) -> tuple[Words, Words]:
        """Return the code of one query, and the mask of the half of the bits that say most: where it lies far off zero.

        Args:
            whole: The query as `whole_numbers` gives it. Shape `1 width`.

        Returns:
            Code and mask. Shapes `4`.
        """
        along = whole @ self._directions
        far = np.abs(along) > np.median(np.abs(along))
        return _packed(along > 0)[0], _packed(far)[0]


def coarse_distances(first: Words, second: Words, query: Words) -> Distances:
    """Return in how many of the first 128 bits codes differ from the query's.

    Args:
        first: First words of the codes. Shape `candidates`.
        second: Second words. Shape `candidates`.
        query: Code of the query. Shape `4`.

    Returns:
        0 to 128 per candidate. Shape `candidates`.
    """
    apart: Distances = np.bitwise_count(first ^ query[0])
    apart += np.bitwise_count(second ^ query[1])
    return apart


def fine_distances(codes: Words, query: Words, mask: Words) -> Distances:
    """Return in how many of 256 bits codes differ from the query's, the bits that say most counted twice.

    Args:
        codes: Codes, word by word. Shape `4 candidates`.
        query: Code of the query. Shape `4`.
        mask: Bits that count twice. Shape `4`.

    Returns:
        0 to 384 per candidate. Shape `candidates`.
    """
    differing = codes ^ query[:, None]
    counts = np.bitwise_count(differing) + np.bitwise_count(differing & mask[:, None])
    return np.add.reduce(counts, axis=0, dtype=np.uint16)


def _packed(bits: npt.NDArray[np.bool_]) -> Words:
    return np.packbits(bits, axis=1).view(np.uint64)
