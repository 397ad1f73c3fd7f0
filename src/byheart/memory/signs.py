"""Sign codes: a key as twice 128 bits, so that a read can look at very many slots before it touches a full key.

Owns rotation, packing and distances. Knows no cells and no slots. A code says what a key has beyond the centre of its
cell: every bit is the sign of that rest along one direction of a randomised Hadamard basis (Ailon & Chazelle 2006, fast
Johnson-Lindenstrauss); the share of bits in which two vectors differ grows with the angle between them (Charikar 2002).
Coding the rest rather than the key makes a short list of the same recall a tenth as long (as in Jégou et al. 2011,
IVFADC, section IV).
Products are of whole numbers and stay below 2 ** 24, hence exact.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from byheart.interfaces import Floats

Words = npt.NDArray[np.uint64]
Bits = npt.NDArray[np.uint16]
HALVES, WORDS = 2, 2
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
        flips, n_bits = np.array([-1, 1], np.float32), HALVES * WORDS * 64
        blocks = [
            hadamard[:width, rng.permutation(size)] * rng.choice(flips, (width, 1)) for _ in range(-(-n_bits // size))
        ]
        self._directions = np.stack(np.hsplit(np.hstack(blocks)[:, :n_bits], HALVES))

    def encode(self, rests: Floats) -> Words:
        """Return the codes of what keys have beyond the centres of their cells.

        Args:
            rests: Differences of whole numbers. Shape `batch width`.

        Returns:
            Packed signs, in two halves that are read one after the other. Shape `2 batch 2`.
        """
        return _packed(rests @ self._directions > 0)

    def query(self, whole: Floats) -> tuple[Words, Words]:
        """Return the code of one query, and the half of its bits that say most: those where it lies far off zero.

        Args:
            whole: The query as `whole_numbers` gives it. Shape `1 width`.

        Returns:
            Code and mask. Shapes `2 2`.
        """
        along = whole @ self._directions
        far = np.abs(along)
        middle = far.shape[2] // 2
        return _packed(along > 0)[:, 0], _packed(far > np.partition(far, middle)[:, :, middle, None])[:, 0]


def differing(codes: Words, query: Words, mask: Words) -> Bits:
    """Return in how many bits one half of codes differs from the query's, those of the mask counted twice.

    Args:
        codes: One half of codes. Shape `candidates 2`.
        query: The same half of the query's code. Shape `2`.
        mask: Bits that count twice. Shape `2`.

    Returns:
        0 to 192 per candidate. Shape `candidates`.
    """
    apart = np.zeros(len(codes), np.uint8)
    for word in range(WORDS):
        bits = codes[:, word] ^ query[word]
        apart += np.bitwise_count(bits)
        apart += np.bitwise_count(bits & mask[word])
    return apart.astype(np.uint16)


def _packed(bits: npt.NDArray[np.bool_]) -> Words:
    return np.packbits(bits, axis=-1).view(np.uint64)
