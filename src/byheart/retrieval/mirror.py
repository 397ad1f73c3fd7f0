"""A search engine beside the database: the database stays the truth, the engine searches.

Owns the order of writes and the repair of an engine that is behind. Knows both engines only by their Protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from byheart.interfaces import Floats, IndexEntry, SparseVector, VectorIndex
from byheart.reports import Progress, no_progress
from byheart.retrieval.checks import check_k
from byheart.retrieval.transfer import transfer

Ranking = list[list[tuple[str, float]]]


class MirroredIndex:
    """A `VectorIndex` that writes to two engines and searches the second."""

    def __init__(self, truth: VectorIndex, mirror: VectorIndex) -> None:
        """Join the engines; call `repair` before the first search.

        Args:
            truth: Engine whose writes are part of the database's transactions.
            mirror: Engine that searches; it may be ahead of the truth or behind it after a crash.
        """
        self.truth, self.mirror = truth, mirror
        self._known: frozenset[str] = frozenset()

    def repair(self, progress: Progress = no_progress) -> int:
        """Bring the mirror to the truth's state; return how many entries were copied, 0 when it was there already."""
        self._known = frozenset(self.truth.ids())
        return transfer(self.truth, self.mirror, progress) if self._known != set(self.mirror.ids()) else 0

    def refresh(self) -> None:
        """Read anew which entries the truth holds: the epoch has changed."""
        self._known = frozenset(self.truth.ids())

    def add(self, entries: Sequence[IndexEntry]) -> None:
        """Store the entries; the truth first, for it can be rolled back."""
        self.truth.add(entries)
        self.mirror.add(entries)
        self._known |= {entry.passage_id for entry in entries}

    def remove(self, passage_ids: Sequence[str]) -> None:
        """Delete the entries; ids that are not there are ignored."""
        self.truth.remove(passage_ids)
        self.mirror.remove(passage_ids)
        self._known -= frozenset(passage_ids)

    def fetch(self, passage_ids: Sequence[str]) -> list[IndexEntry]:
        """Return the entries with these ids, in this order."""
        return self.truth.fetch(passage_ids)

    def ids(self) -> list[str]:
        """Return all ids, ascending."""
        return self.truth.ids()

    def search_dense(self, queries: Floats, k: int) -> Ranking:
        """Return per query up to `k` ids by falling inner product, ties by id."""
        return self._only_known(lambda n: self.mirror.search_dense(queries, n), k)

    def search_sparse(self, queries: Sequence[SparseVector], k: int) -> Ranking:
        """Return per query up to `k` ids with an inner product above zero, falling, ties by id."""
        return self._only_known(lambda n: self.mirror.search_sparse(queries, n), k)

    def _only_known(self, search: Callable[[int], Ranking], k: int) -> Ranking:
        """Leave out what another process has written to the mirror and not yet committed to the truth."""
        check_k(k)
        return [[hit for hit in hits if hit[0] in self._known][:k] for hits in search(k + 16)]
