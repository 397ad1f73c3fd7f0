"""The query adapter: a learned low-rank change of the question's vector.

Owns two small matrices, their application and their text. Knows no training and no index. Passage vectors stay as they
are, so training it never forces re-indexing; until it is trained it changes no bit.
Source: Houlsby et al. 2019, Parameter-Efficient Transfer Learning, section 2 (residual, identity at the start).
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass

import numpy as np

from byheart.errors import FormatError, VectorIndexError
from byheart.interfaces import Floats


@dataclass(frozen=True, slots=True)
class QueryAdapter:
    """`normalize(q + (q·A)·B)`.

    Attributes:
        down: A. Shape `width rank`.
        up: B, zero until trained. Shape `rank width`.
    """

    down: Floats
    up: Floats

    def __post_init__(self) -> None:
        """Refuse matrices that do not fit each other.

        Raises:
            VectorIndexError: Shapes disagree, the type is not float32, or a number is not finite.
        """
        down, up = self.down, self.up
        if down.ndim != 2 or up.shape != down.shape[::-1]:
            raise VectorIndexError(
                f"adapter matrices must be (width, rank) and (rank, width), got {down.shape} and {up.shape}; "
                "train it again"
            )
        if down.dtype != np.float32 or up.dtype != np.float32:
            raise VectorIndexError(f"adapter matrices must be float32, got {down.dtype} and {up.dtype}; convert them")
        if not (np.isfinite(down).all() and np.isfinite(up).all()):
            raise VectorIndexError("an adapter matrix holds NaN or infinity; go back to the last good weights")

    @classmethod
    def identity(cls, width: int, rank: int, seed: int) -> QueryAdapter:
        """Return an adapter that changes nothing yet and can be trained.

        Args:
            width: Length of a query vector.
            rank: Inner width.
            seed: Draws A; B is zero.

        Returns:
            The untrained adapter.
        """
        down = np.random.default_rng(seed).normal(0, width**-0.5, (width, rank)).astype(np.float32)
        return cls(down, np.zeros((rank, width), np.float32))

    @property
    def is_trained(self) -> bool:
        """Whether it changes anything."""
        return bool(self.up.any())

    def apply(self, queries: Floats) -> Floats:
        """Return the adapted unit vectors; each is computed apart, so a batch changes nothing.

        Args:
            queries: Query vectors. Shape `batch width`.

        Returns:
            Query vectors. Shape `batch width`.

        Raises:
            VectorIndexError: The queries have another width.
        """
        if queries.ndim != 2 or queries.shape[1] != self.down.shape[0]:
            raise VectorIndexError(
                f"the query adapter is for vectors of length {self.down.shape[0]}, got shape {queries.shape}; "
                "use the adapter trained with this encoder"
            )
        if not self.is_trained:
            return queries
        return np.stack([self._one(query) for query in queries]) if len(queries) else queries

    def _one(self, query: Floats) -> Floats:
        changed = query + (query @ self.down) @ self.up
        norm = np.linalg.norm(changed)
        return np.asarray(changed / norm if norm > 0 else query, np.float32)

    def to_json(self) -> str:
        """Return the matrices as text, bit for bit."""
        held = {name: base64.b64encode(getattr(self, name).tobytes()).decode() for name in ("down", "up")}
        return json.dumps({"width": self.down.shape[0], "rank": self.down.shape[1], **held})

    @classmethod
    def from_json(cls, text: str, width: int) -> QueryAdapter:
        """Return the adapter that `to_json` wrote; FormatError where it is none, or one for another width."""
        try:
            held = json.loads(text)
            down, up = (np.frombuffer(base64.b64decode(held[name]), np.float32) for name in ("down", "up"))
            adapter = cls(down.reshape(held["width"], held["rank"]), up.reshape(held["rank"], held["width"]))
        except (ValueError, KeyError, TypeError, VectorIndexError) as error:
            raise FormatError(f"the query adapter cannot be read ({error}); restore a snapshot") from error
        if adapter.down.shape[0] != width:
            raise FormatError(
                f"the query adapter is for vectors of length {adapter.down.shape[0]}, the encoder gives {width}; "
                "train it again"
            )
        return adapter
