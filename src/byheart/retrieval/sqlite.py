"""The embedded index: vectors in a SQLite table, exact search in memory.

Owns the table `vectors` and its blobs. Works inside the caller's transaction and never commits. What was read stays in
memory until `refresh` says that there is a new epoch, or this connection wrote itself.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import numpy as np

from byheart.errors import FormatError, PassageError
from byheart.interfaces import Floats, IndexEntry, Integers, SparseVector
from byheart.retrieval.checks import check_entries, check_k, check_queries, check_sparse
from byheart.retrieval.matrices import Matrices, Postings
from byheart.retrieval.scores import dense_products

_FLOAT, _INTEGER = np.dtype("<f4"), np.dtype("<i4")
_CHUNK = 500
_PAGE = 4096

_Row = tuple[str, bytes, bytes, bytes]


class SqliteIndex:
    """A `VectorIndex` over the table `vectors`."""

    def __init__(self, connection: sqlite3.Connection, width: int) -> None:
        """Use the table of an open database; nothing is read yet.

        Args:
            connection: Database that holds the corpus tables.
            width: Length of the dense vectors.
        """
        self._connection = connection
        self._width = width
        self._matrices: Matrices | None = None
        self._epoch: int | None = None
        self._wrote = False

    @property
    def width(self) -> int:
        """Length of the dense vectors."""
        return self._width

    def refresh(self, epoch: int) -> None:
        """Forget what was read if the epoch is another one, or if this connection wrote since the last call.

        Args:
            epoch: Number of the last committed transaction. Call this at the start of every read and after a rollback.
        """
        if epoch != self._epoch or self._wrote:
            self._matrices = None
        self._epoch, self._wrote = epoch, False

    def add(self, entries: Sequence[IndexEntry]) -> None:
        """Store the entries; an id that is there already is replaced, and of two in one call the last one stays.

        Args:
            entries: What to store.

        Raises:
            InputError: An id is empty or no valid Unicode.
            VectorIndexError: A vector has another type or length, or holds NaN.
        """
        check_entries(entries, self._width)
        self._connection.executemany(
            "INSERT OR REPLACE INTO vectors (passage_id, dense, terms, weights) VALUES (?, ?, ?, ?)",
            (
                (
                    e.passage_id,
                    e.dense.astype(_FLOAT).tobytes(),
                    e.sparse.terms.astype(_INTEGER).tobytes(),
                    e.sparse.weights.astype(_FLOAT).tobytes(),
                )
                for e in entries
            ),
        )
        self._forget()

    def remove(self, passage_ids: Sequence[str]) -> None:
        """Delete the entries; ids that are not there are ignored.

        Args:
            passage_ids: Ids to delete.
        """
        self._connection.executemany("DELETE FROM vectors WHERE passage_id = ?", ((i,) for i in passage_ids))
        self._forget()

    def fetch(self, passage_ids: Sequence[str]) -> list[IndexEntry]:
        """Return the entries with these ids, in this order.

        Args:
            passage_ids: Ids; repetition is fine.

        Returns:
            One entry per id.

        Raises:
            PassageError: An id is not in the index.
            FormatError: A row is damaged.
        """
        found: dict[str, IndexEntry] = {}
        wanted = list(dict.fromkeys(passage_ids))
        for start in range(0, len(wanted), _CHUNK):
            chunk = wanted[start : start + _CHUNK]
            rows = self._connection.execute(
                "SELECT passage_id, dense, terms, weights FROM vectors "
                f"WHERE passage_id IN ({','.join('?' * len(chunk))})",
                chunk,
            )
            found.update((row[0], self._entry(tuple(row))) for row in rows)
        missing = next((i for i in wanted if i not in found), None)
        if missing is not None:
            raise PassageError(f"no passage {missing!r} in the index; list the ids with `ids()`, or search again")
        return [found[i] for i in passage_ids]

    def ids(self) -> list[str]:
        """Return all ids, ascending."""
        return [row[0] for row in self._connection.execute("SELECT passage_id FROM vectors ORDER BY passage_id")]

    def search_dense(self, queries: Floats, k: int) -> list[list[tuple[str, float]]]:
        """Return per query up to `k` ids by falling inner product, ties by id.

        Args:
            queries: Query vectors. Shape `batch width`.
            k: Hits wanted.

        Returns:
            Ids and products per query.

        Raises:
            InputError: `k` is below 1.
            VectorIndexError: `queries` is no finite float32 matrix of the index's width.
            FormatError: A row is damaged.
        """
        check_k(k)
        check_queries(queries, self._width)
        matrices = self._current()
        return [
            [(matrices.ids[row], score) for row, score in zip(rows.tolist(), scores.tolist(), strict=True)]
            for rows, scores in matrices.dense_rows(queries, k)
        ]

    def search_sparse(self, queries: Sequence[SparseVector], k: int) -> list[list[tuple[str, float]]]:
        """Return per query up to `k` ids with an inner product above zero, falling, ties by id.

        Args:
            queries: Inverse document frequencies per question.
            k: Hits wanted.

        Returns:
            Ids and BM25 scores per query.

        Raises:
            InputError: `k` is below 1.
            VectorIndexError: A sparse vector is malformed.
            FormatError: A row is damaged.
        """
        check_k(k)
        for query in queries:
            check_sparse(query, "a question")
        matrices = self._current()
        found = (matrices.sparse_rows(query, k) for query in queries)
        return [
            [(matrices.ids[row], score) for row, score in zip(rows.tolist(), scores.tolist(), strict=True)]
            for rows, scores, _ in found
        ]

    def search_pairs(
        self, queries: Floats, sparse: Sequence[SparseVector], n_dense: int, n_sparse: int
    ) -> list[list[tuple[str, float, float]]]:
        """Return per question the best of both searches, each with both scores, in one pass over the matrices.

        Args:
            queries: Query vectors. Shape `batch width`.
            sparse: Inverse document frequencies per question.
            n_dense: Hits of the dense search, 0 for none.
            n_sparse: Hits of the sparse search, 0 for none.

        Returns:
            Id, inner product and BM25 score; in the order of ids.

        Raises:
            VectorIndexError: A vector is malformed.
            FormatError: A row is damaged.
        """
        check_queries(queries, self._width)
        matrices = self._current()
        dense = matrices.dense_rows(queries, n_dense) if n_dense else ((np.zeros(0, np.int64), None) for _ in queries)
        results = []
        for query, terms, (near, _) in zip(queries, sparse, dense, strict=True):
            shared, _, lexical = matrices.sparse_rows(terms, max(n_sparse, 1))
            rows = np.union1d(near, shared[:n_sparse])
            cosines = dense_products(matrices.dense[rows], query)
            results.append(
                [
                    (matrices.ids[row], cosine, score)
                    for row, cosine, score in zip(rows.tolist(), cosines.tolist(), lexical[rows].tolist(), strict=True)
                ]
            )
        return results

    def _forget(self) -> None:
        self._matrices, self._wrote = None, True

    def _current(self) -> Matrices:
        if self._wrote and not self._connection.in_transaction:
            # the transaction whose rows were read has ended, perhaps in a rollback
            self._matrices, self._wrote = None, False
        if self._matrices is None:
            self._matrices = self._load()
        return self._matrices

    def _load(self) -> Matrices:
        """Read the whole table, a few thousand rows at a time, straight into the arrays."""
        n_rows = self._connection.execute("SELECT count(*) FROM vectors").fetchone()[0]
        dense = np.empty((n_rows, self._width), np.float32)
        ids: list[str] = []
        lengths: list[int] = []
        terms: list[bytes] = []
        weights: list[bytes] = []
        cursor = self._connection.execute("SELECT passage_id, dense, terms, weights FROM vectors ORDER BY passage_id")
        while page := cursor.fetchmany(_PAGE):
            self._check_lengths(page)
            end = len(ids) + len(page)
            dense[len(ids) : end] = np.frombuffer(b"".join(row[1] for row in page), _FLOAT).reshape(-1, self._width)
            ids += [row[0] for row in page]
            lengths += [len(row[2]) // 4 for row in page]
            terms += [row[2] for row in page]
            weights += [row[3] for row in page]
        return _matrices(ids, dense, np.array(lengths, np.int64), b"".join(terms), b"".join(weights))

    def _check_lengths(self, rows: Sequence[_Row]) -> None:
        for passage_id, dense, terms, weights in rows:
            if not type(dense) is type(terms) is type(weights) is bytes:
                raise _damaged(passage_id, "they are no blobs")
            if len(dense) != 4 * self._width or len(terms) != len(weights) or len(terms) % 4:
                raise _damaged(
                    passage_id,
                    f"its blobs have {len(dense)}, {len(terms)} and {len(weights)} bytes, "
                    f"wanted {4 * self._width} and two equal multiples of 4",
                )

    def _entry(self, row: _Row) -> IndexEntry:
        self._check_lengths([row])
        dense = np.frombuffer(row[1], _FLOAT).astype(np.float32)
        weights = np.frombuffer(row[3], _FLOAT).astype(np.float32)
        if not (np.isfinite(dense).all() and np.isfinite(weights).all()):
            raise _damaged(row[0], "it holds NaN or infinity")
        return IndexEntry(row[0], dense, SparseVector(np.frombuffer(row[2], _INTEGER).astype(np.int64), weights))


def _matrices(ids: list[str], dense: Floats, lengths: Integers, terms: bytes, weights: bytes) -> Matrices:
    """Check the numbers once, on the whole arrays, and sort the postings."""
    values = np.frombuffer(weights, _FLOAT).astype(np.float32)
    norms = np.sqrt(np.einsum("ij,ij->i", dense, dense))
    bad = ~np.isfinite(norms)
    bad[np.repeat(np.arange(len(ids)), lengths)[~np.isfinite(values)]] = True
    if bad.any():
        raise _damaged(ids[int(np.flatnonzero(bad)[0])], "it holds NaN or infinity")
    postings = Postings.build(np.frombuffer(terms, _INTEGER), values, lengths)
    return Matrices(tuple(ids), dense, float(norms.max(initial=0.0)), postings)


def _damaged(passage_id: str, what: str) -> FormatError:
    return FormatError(f"the vectors of passage {passage_id!r} are damaged: {what}; restore a snapshot or add it again")
