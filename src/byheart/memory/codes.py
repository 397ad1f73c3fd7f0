"""Codes: token vectors rounded to 8 bits, as a slot keeps them.

Owns the rounding and the byte layout. Knows nothing of what the vectors mean.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from byheart.errors import FormatError
from byheart.interfaces import Floats


@dataclass(frozen=True, slots=True)
class Codes:
    """Token vectors, rounded.

    Attributes:
        codes: Shape `tokens width`.
        scales: What one unit is worth, token by token. Shape `tokens`.
    """

    codes: npt.NDArray[np.int8]
    scales: npt.NDArray[np.float16]

    @classmethod
    def of(cls, vectors: Floats) -> Codes:
        """Return vectors rounded, each on its own scale. `vectors` has shape `tokens width`."""
        scales = np.maximum(np.abs(vectors).max(axis=1) / 127, 1e-6).astype(np.float16)
        codes = np.clip(np.rint(vectors / scales.astype(np.float32)[:, None]), -127, 127).astype(np.int8)
        return cls(codes, scales)

    @classmethod
    def from_bytes(cls, data: bytes, n_tokens: int, width: int) -> Codes:
        """Return what `to_bytes` wrote.

        Args:
            data: The bytes.
            n_tokens: Tokens.
            width: Numbers per token.

        Returns:
            The codes.

        Raises:
            FormatError: The bytes are not as many as that takes.
        """
        if len(data) != n_tokens * (width + 2):
            raise FormatError(
                f"a slot of {n_tokens} tokens has {len(data)} bytes, not {n_tokens * (width + 2)}; "
                "write the slots anew: byheart train memory KB --steps 0"
            )
        codes = np.frombuffer(data, np.int8, n_tokens * width).reshape(n_tokens, width)
        return cls(codes, np.frombuffer(data, "<f2", n_tokens, n_tokens * width))

    def to_bytes(self) -> bytes:
        """Return codes, then scales, little-endian."""
        return self.codes.tobytes() + self.scales.astype("<f2").tobytes()

    @property
    def vectors(self) -> Floats:
        """The vectors. Shape `tokens width`."""
        vectors: Floats = self.codes.astype(np.float32) * self.scales.astype(np.float32)[:, None]
        return vectors
