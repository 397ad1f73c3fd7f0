"""An index in memory: a dense matrix, and postings sorted by term.

Owns the arrays and the exact search over them, ids ascending. Knows no database; once built
it never changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from byheart.interfaces import Floats, Integers, SparseVector
from byheart.retrieval.scores import best_rows, dense_products, rows_from

_BLOCK = 64  # queries multiplied at once: 8 MB of scores at 33,000 passages
_ROUNDING = 2.0**-24


@dataclass(frozen=True, slots=True)
class Postings:
    """Which rows hold a term, and with what weight.

    Attributes:
        terms: Distinct term numbers, ascending. Shape `vocab`.
        starts: Where each term's rows begin, and the end of the last. Shape `vocab + 1`.
        rows: Row numbers, by term, ascending within one.
        weights: BM25 weights, beside `rows`.
    """

    terms: Integers
    starts: Integers
    rows: Integers
    weights: Floats

    @classmethod
    def build(cls, terms: npt.NDArray[np.int32], weights: Floats, lengths: Integers) -> Postings:
        """Return the postings of forward rows laid end to end.

        Args:
            terms: Term numbers of all rows.
            weights: Their weights.
            lengths: Terms per row. Shape `passages`.

        Returns:
            The same, sorted by term.
        """
        order = np.argsort(terms, kind="stable")
        distinct, first = np.unique(terms[order], return_index=True)
        rows = np.repeat(np.arange(len(lengths)), lengths)[order]
        return cls(distinct.astype(np.int64), np.append(first, len(terms)).astype(np.int64), rows, weights[order])

    def scores(self, query: SparseVector, n_rows: int) -> Floats:
        """Return the BM25 score of every row. Shape `passages`."""
        if not len(self.terms) or not len(query.terms):
            return np.zeros(n_rows, np.float32)
        places = np.minimum(np.searchsorted(self.terms, query.terms), len(self.terms) - 1)
        known = np.flatnonzero(self.terms[places] == query.terms)
        spans = [slice(self.starts[place], self.starts[place + 1]) for place in places[known]]
        if not spans:
            return np.zeros(n_rows, np.float32)
        products = [
            np.multiply(self.weights[span], idf, dtype=np.float64)
            for span, idf in zip(spans, query.weights[known], strict=True)
        ]
        rows = np.concatenate([self.rows[span] for span in spans])
        return np.bincount(rows, np.concatenate(products), n_rows).astype(np.float32)


@dataclass(frozen=True, slots=True)
class Matrices:
    """All vectors of an index at one epoch.

    Attributes:
        ids: Passage ids, ascending; the place of an id is its row.
        dense: Unit vectors. Shape `passages width`.
        longest: Largest norm of a dense vector, 1 for unit vectors.
        postings: The sparse vectors, by term.
    """

    ids: tuple[str, ...]
    dense: Floats
    longest: float
    postings: Postings

    def dense_rows(self, queries: Floats, k: int) -> Iterator[tuple[Integers, Floats]]:
        """Yield per query the best rows and their exact scores, falling, ties by id."""
        for start in range(0, len(queries), _BLOCK):
            block = queries[start : start + _BLOCK]
            for query, rough in zip(block, block @ self.dense.T, strict=True):
                # float32 sums of `width` products are off by at most this, so no true hit is missed
                error = len(query) * _ROUNDING * self.longest * float(np.linalg.norm(query))
                rows = rows_from(rough, k, 2 * error)
                exact = dense_products(self.dense[rows], query)
                best = best_rows(exact, k)
                yield rows[best], exact[best]

    def sparse_rows(self, query: SparseVector, k: int) -> tuple[Integers, Floats, Floats]:
        """Return the best rows with a score above zero, their scores, and the scores of all rows."""
        scores = self.postings.scores(query, len(self.ids))
        positive = np.flatnonzero(scores > 0)  # few; partitioning an array that is mostly zeros is slow
        rows = positive[best_rows(scores[positive], k)]
        return rows, scores[rows], scores
