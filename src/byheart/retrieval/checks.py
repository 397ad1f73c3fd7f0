"""What every engine refuses: wrong shapes, wrong types, not-a-number, k below one.

Owns the refusals and their words, so that all engines agree. Knows no engine.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from byheart.errors import InputError, VectorIndexError
from byheart.interfaces import Floats, IndexEntry, SparseVector

_LARGEST_TERM = 2**31 - 1


def check_k(k: int) -> None:
    """Refuse a number of hits below one.

    Args:
        k: Hits wanted.

    Raises:
        InputError: `k` is below 1.
    """
    if k < 1:
        raise InputError(f"k must be at least 1, got {k}; ask for one passage or more")


def check_queries(queries: Floats, width: int | None) -> None:
    """Refuse query vectors that no index can multiply.

    Args:
        queries: Query vectors, wanted in shape `batch width`.
        width: Length of the index's vectors; None accepts any.

    Raises:
        VectorIndexError: They are no finite float32 matrix of that width.
    """
    if not isinstance(queries, np.ndarray) or queries.dtype != np.float32:
        kind = queries.dtype if isinstance(queries, np.ndarray) else type(queries).__name__
        raise VectorIndexError(f"queries must be a float32 array, got {kind}; convert with .astype(np.float32)")
    if queries.ndim != 2 or (width is not None and queries.shape[1] != width):
        raise VectorIndexError(
            f"queries must have shape (batch, {width or 'width'}), got {queries.shape}; "
            "encode them with the encoder the index was built with"
        )
    if not np.isfinite(queries).all():
        row = int(np.flatnonzero(~np.isfinite(queries).all(axis=1))[0])
        raise VectorIndexError(f"query {row} holds NaN or infinity; check the encoder's output")


def check_sparse(vector: SparseVector, owner: str) -> None:
    """Refuse a sparse vector that breaks its own promises.

    Args:
        vector: BM25 weights or inverse document frequencies.
        owner: Whose it is, for the message.

    Raises:
        VectorIndexError: Terms are not ascending whole numbers, or weights not finite and positive, or not one each.
    """
    terms, weights = vector.terms, vector.weights
    if terms.dtype != np.int64 or weights.dtype != np.float32 or terms.ndim != 1 or terms.shape != weights.shape:
        raise VectorIndexError(
            f"sparse vector of {owner}: wanted one float32 weight per int64 term, got {weights.dtype} {weights.shape} "
            f"and {terms.dtype} {terms.shape}; build it with bm25.passage_vector or bm25.query_vector"
        )
    if terms.size and (terms[0] < 0 or terms[-1] > _LARGEST_TERM or (np.diff(terms) <= 0).any()):
        raise VectorIndexError(f"sparse vector of {owner}: terms must ascend from 0 below 2³¹; sort and merge them")
    if not (np.isfinite(weights) & (weights > 0)).all():
        raise VectorIndexError(f"sparse vector of {owner}: weights must be finite and positive; drop the others")


def check_entries(entries: Sequence[IndexEntry], width: int) -> None:
    """Refuse entries that an index must not store.

    Args:
        entries: What is to be stored.
        width: Length of the index's vectors.

    Raises:
        InputError: An id is empty or cannot be encoded as UTF-8.
        VectorIndexError: A vector has another type or length, or holds NaN.
    """
    for entry in entries:
        _check_id(entry.passage_id)
        owner, dense = repr(entry.passage_id), entry.dense
        if not isinstance(dense, np.ndarray) or dense.dtype != np.float32 or dense.shape != (width,):
            seen = f"{dense.dtype} {dense.shape}" if isinstance(dense, np.ndarray) else type(dense).__name__
            raise VectorIndexError(
                f"dense vector of {owner} must be float32 of shape ({width},), got {seen}; "
                "encode it with the encoder the index was built with"
            )
        if not np.isfinite(dense).all():
            raise VectorIndexError(f"dense vector of {owner} holds NaN or infinity; check the encoder's output")
        check_sparse(entry.sparse, owner)


def _check_id(passage_id: str) -> None:
    if not isinstance(passage_id, str) or not passage_id:
        raise InputError(f"a passage id must be a non-empty string, got {passage_id!r}; use Passage.id")
    try:
        passage_id.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(f"the passage id {passage_id!r} is no valid Unicode; decode file names first") from error
