"""The knowledge base's passages, seen one epoch at a time: what the engine calls retriever and passages.

Owns the index engine, and when what is cached of it must be read anew. Part of the composition root.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from byheart.config import RetrievalConfig
from byheart.interfaces import Floats, VectorIndex
from byheart.retrieval.adapter import QueryAdapter
from byheart.retrieval.fusion import Candidate, HybridRetriever
from byheart.retrieval.mirror import MirroredIndex
from byheart.retrieval.sqlite import SqliteIndex
from byheart.retrieval.terms import TermTable
from byheart.retrieval.transfer import transfer
from byheart.store.database import Database
from byheart.store.documents import Documents
from byheart.types import Hit, Passage, Question

API_KEY_VARIABLE = "QDRANT_API_KEY"
ADAPTER = "query_adapter"


class Library:
    """Passages and their index over one database."""

    def __init__(self, database: Database, config: RetrievalConfig, width: int) -> None:
        """Set the embedded index up; a Qdrant mirror is connected to when first needed.

        Args:
            database: The open database.
            config: Engine and retrieval settings.
            width: Length of a vector.
        """
        self._database, self._config, self.width = database, config, width
        self._embedded = SqliteIndex(database.connection, width)
        self._mirrored: MirroredIndex | None = None
        self._mirror_epoch = -1
        self._is_mirror_suspect = False
        self._adapter: tuple[str, QueryAdapter] | None = None

    @property
    def index(self) -> VectorIndex:
        """Where vectors are written and searched."""
        if self._config.index == "sqlite":
            return self._embedded
        if self._mirrored is None:
            from byheart.retrieval.qdrant import QdrantIndex

            mirror = QdrantIndex(
                self._config.url, self._config.collection, self.width, os.environ.get(API_KEY_VARIABLE)
            )
            self._mirrored = MirroredIndex(self._embedded, mirror)
            self._mirrored.repair()
        return self._mirrored

    @contextmanager
    def hold(self) -> Iterator[int]:
        """Hold one epoch still while searching and looking passages up.

        Yields:
            The epoch's number.
        """
        with self._database.read():
            epoch = self._database.epoch
            self._embedded.refresh(epoch)
            if self._is_mirror_suspect:
                self.rebuild_mirror()
            if self._mirrored is not None and self._mirror_epoch != epoch:
                self._mirrored.refresh()
                self._mirror_epoch = epoch
            yield epoch

    def suspect_mirror(self) -> None:
        """Have the mirror rebuilt before the next search: a write to it was rolled back in the database only."""
        self._is_mirror_suspect = True

    def rebuild_mirror(self) -> None:
        """Copy every vector to the mirror, if there is one: its ids may be right and its vectors still old."""
        index = self.index
        if isinstance(index, MirroredIndex):
            transfer(index.truth, index.mirror)
            index.refresh()
        self._is_mirror_suspect = False

    def search(
        self, questions: Sequence[Question], queries: Floats, k: int, dense_weight: float | None = None
    ) -> list[tuple[Hit, ...]]:
        """Return per question up to `k` hits, best first; call it inside `hold`.

        Args:
            questions: What is asked.
            queries: Their vectors. Shape `batch width`.
            k: Hits per question.
            dense_weight: Share of the cosine, the fitted one if None.

        Returns:
            Hits per question.
        """
        return self._retriever(self._fitted_weight() if dense_weight is None else dense_weight).search(
            questions, queries, k
        )

    def candidates(self, questions: Sequence[Question], queries: Floats) -> list[tuple[Candidate, ...]]:
        """Return per question what fusion chooses from, for fitting its weight; call it inside `hold`."""
        return self._retriever(0.5).candidates(questions, queries, self._config.depth)

    def passages(self, passage_ids: Sequence[str]) -> list[Passage]:
        """Return passages by id, in order; PassageError names one that is not there."""
        return Documents(self._database.connection).passages(passage_ids)

    def dense_weight(self) -> float:
        """Return the share of the cosine in the fused score: the fitted one, else the configured one."""
        fitted = self._fitted_weight()
        return self._config.dense_weight if fitted is None else fitted

    def _retriever(self, dense_weight: float | None) -> HybridRetriever:
        terms = TermTable(self._database.connection)
        return HybridRetriever(self.index, terms, self._config, self.adapter(), dense_weight)

    def adapter(self) -> QueryAdapter | None:
        """Return the jointly trained change of the query vectors, None where there is none."""
        query = "SELECT value FROM parameters WHERE name = ?"
        row = self._database.connection.execute(query, (ADAPTER,)).fetchone()
        if row is None:
            return None
        if self._adapter is None or self._adapter[0] != row[0]:
            self._adapter = row[0], QueryAdapter.from_json(row[0], self.width)
        return self._adapter[1]

    def _fitted_weight(self) -> float | None:
        row = self._database.connection.execute("SELECT value FROM parameters WHERE name = 'dense_weight'").fetchone()
        return None if row is None else float(json.loads(row[0]))
