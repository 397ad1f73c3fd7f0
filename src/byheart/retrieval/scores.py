"""Inner products and top-k, computed so that a question alone and in a batch get the same bits.

Owns the numbers that leave retrieval. Knows no engine. A BLAS product may differ in its last bits with the size of the
batch; it only proposes here. What counts is summed per row in float64 and rounded once, to float32.
"""

from __future__ import annotations

import numpy as np

from byheart.interfaces import Floats, Integers, SparseVector


def dense_products(rows: Floats, query: Floats) -> Floats:
    """Return the inner product of each row with the query, independent of the other rows.

    Args:
        rows: Passage vectors. Shape `passages width`.
        query: Query vector. Shape `width`.

    Returns:
        One product per row. Shape `passages`.
    """
    products = rows.astype(np.float64) * query.astype(np.float64)
    sums: np.ndarray[tuple[int], np.dtype[np.float64]] = np.add.reduce(products, axis=1)
    return sums.astype(np.float32)


def sparse_product(passage: SparseVector, query: SparseVector) -> float:
    """Return the BM25 score of one passage, summed in the order of the terms.

    Args:
        passage: The passage's weights.
        query: The question's inverse document frequencies.

    Returns:
        The score, 0 when no term is shared.
    """
    _, left, right = np.intersect1d(passage.terms, query.terms, assume_unique=True, return_indices=True)
    if not left.size:
        return 0.0
    products = passage.weights[left].astype(np.float64) * query.weights[right].astype(np.float64)
    return float(np.float32(np.cumsum(products)[-1]))


def best_rows(scores: Floats, k: int) -> Integers:
    """Return the rows of the `k` highest scores, falling, ties by row.

    Args:
        scores: One score per row.
        k: Rows wanted, at least 1; more than there are is fine.

    Returns:
        At most `k` rows.
    """
    rows = rows_from(scores, k, 0.0)
    return rows[np.lexsort((rows, -scores[rows]))][:k]


def rows_from(scores: Floats, k: int, margin: float) -> Integers:
    """Return the rows that can be among the best `k` if every score may be wrong by half the margin, ascending.

    Args:
        scores: One score per row.
        k: Rows wanted.
        margin: How far below the k-th best score still counts.

    Returns:
        Rows, at least `min(k, rows)`.
    """
    if k >= len(scores):
        return np.arange(len(scores))
    kth = np.partition(scores, len(scores) - k)[len(scores) - k]
    return np.flatnonzero(scores >= kth - margin)
