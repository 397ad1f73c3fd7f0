"""Hybrid retrieval: lexical and dense candidates, one fused ranking.

Owns the order of the steps and the fused score. Knows engines only by their Protocol, and no reader. A passage's score
depends on the question and on that passage alone: BM25 is divided by the most the question could reach, never by what
other passages got.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from byheart.config import RetrievalConfig
from byheart.errors import InputError, VectorIndexError
from byheart.interfaces import Floats, SparseVector, VectorIndex
from byheart.retrieval.adapter import QueryAdapter
from byheart.retrieval.analyzer import analyze
from byheart.retrieval.bm25 import best_possible, query_vector
from byheart.retrieval.checks import check_k, check_queries
from byheart.retrieval.scores import dense_products, sparse_product
from byheart.retrieval.terms import TermTable
from byheart.types import Hit, Question

MIN_COSINE = 0.1
"""A passage that shares no term with the question and is no nearer than this is no evidence."""

_Pairs = list[tuple[str, float, float]]


@runtime_checkable
class PairSearch(Protocol):
    """An engine that gives both scores of its candidates at once; the numbers equal those computed from `fetch`."""

    def search_pairs(
        self, queries: Floats, sparse: Sequence[SparseVector], n_dense: int, n_sparse: int
    ) -> list[_Pairs]:
        """Return per question id, inner product and BM25 score of the best of both searches."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A passage with both scores, before fusing.

    Attributes:
        passage_id: Id of the passage.
        dense: Cosine.
        lexical: BM25 score.
        share: BM25 score divided by the most the question could reach, 0 to 1.
    """

    passage_id: str
    dense: float
    lexical: float
    share: float

    def fused(self, dense_weight: float) -> float:
        """Return the weighted mean of cosine and lexical share."""
        return _fuse(self.dense, self.share, dense_weight)


class HybridRetriever:
    """A `Retriever` over any `VectorIndex`."""

    def __init__(
        self,
        index: VectorIndex,
        terms: TermTable,
        config: RetrievalConfig,
        adapter: QueryAdapter | None = None,
        dense_weight: float | None = None,
    ) -> None:
        """Join the pieces; nothing is read yet.

        Args:
            index: Engine that holds the passages' vectors.
            terms: Numbers and document frequencies of the same passages.
            config: Depth, BM25 constants and the default weight.
            adapter: Learned change of the query vectors, none by default.
            dense_weight: Fitted share of the cosine; 0 is BM25 alone, 1 dense alone, None the config's.

        Raises:
            InputError: `dense_weight` is not from 0 to 1.
        """
        self._index, self._terms, self._config, self._adapter = index, terms, config, adapter
        self._weight = config.dense_weight if dense_weight is None else dense_weight
        if not 0 <= self._weight <= 1:
            raise InputError(f"dense_weight must be from 0 to 1, got {self._weight}; 0.9 is a good start")

    def search(self, questions: Sequence[Question], queries: Floats, k: int) -> list[tuple[Hit, ...]]:
        """Return per question up to `k` hits, best first, ties by id; what is no evidence is left out.

        Args:
            questions: What is asked.
            queries: Their vectors. Shape `batch width`.
            k: Hits wanted; more than there are passages is fine.

        Returns:
            One tuple of hits per question.

        Raises:
            InputError: `k` is below 1.
            VectorIndexError: `queries` is no finite float32 matrix with one row per question.
        """
        check_k(k)
        found, most = self._scored(questions, queries, max(k, self._config.depth))
        return [self._ranked(pairs, limit, k) for pairs, limit in zip(found, most, strict=True)]

    def candidates(self, questions: Sequence[Question], queries: Floats, depth: int) -> list[tuple[Candidate, ...]]:
        """Return per question the best of each search that has a weight, with both scores, by id.

        Args:
            questions: What is asked.
            queries: Their vectors. Shape `batch width`.
            depth: Candidates from each search.

        Returns:
            At most `2 · depth` candidates per question.

        Raises:
            InputError: `depth` is below 1.
            VectorIndexError: `queries` is no finite float32 matrix with one row per question.
        """
        check_k(depth)
        found, most = self._scored(questions, queries, depth)
        return [
            tuple(Candidate(i, dense, lexical, _share(lexical, limit)) for i, dense, lexical in pairs)
            for pairs, limit in zip(found, most, strict=True)
        ]

    def _scored(self, questions: Sequence[Question], queries: Floats, depth: int) -> tuple[list[_Pairs], list[float]]:
        """Return the candidates of each question with both scores, and the most its BM25 score could be."""
        check_queries(queries, None)
        if len(questions) != len(queries):
            raise VectorIndexError(f"{len(questions)} questions but {len(queries)} query vectors; encode each once")
        if self._adapter is not None:
            queries = self._adapter.apply(queries)
        sparse = self._sparse(questions)
        n_dense, n_sparse = depth * (self._weight > 0), depth * (self._weight < 1)
        if isinstance(self._index, PairSearch):
            found = self._index.search_pairs(queries, sparse, n_dense, n_sparse)
        else:
            found = _fetched_pairs(self._index, queries, sparse, n_dense, n_sparse)
        return found, [best_possible(terms, self._config) for terms in sparse]

    def _sparse(self, questions: Sequence[Question]) -> list[SparseVector]:
        terms = [analyze(question.text) for question in questions]
        known = self._terms.lookup(term for of_one in terms for term in of_one)
        n_passages = self._terms.n_passages()
        return [query_vector(of_one, known, n_passages) for of_one in terms]

    def _ranked(self, pairs: _Pairs, most: float, k: int) -> tuple[Hit, ...]:
        """Fuse, sort and cut; plain tuples until the end, because this runs for every candidate of every question."""
        weight, least = self._weight, MIN_COSINE if self._weight > 0 else np.inf
        scored = sorted(
            (-_fuse(dense, _share(lexical, most), weight), passage_id, lexical, dense)
            for passage_id, dense, lexical in pairs
            if lexical > 0 or dense >= least
        )
        return tuple(Hit(passage_id, -score, lexical, dense) for score, passage_id, lexical, dense in scored[:k])


def _fuse(dense: float, share: float, dense_weight: float) -> float:
    return dense_weight * dense + (1 - dense_weight) * share


def _share(lexical: float, most: float) -> float:
    return lexical / most if most else 0.0


def _fetched_pairs(
    index: VectorIndex, queries: Floats, sparse: Sequence[SparseVector], n_dense: int, n_sparse: int
) -> list[_Pairs]:
    """Search twice, then compute both scores of every candidate from its own vectors, the same for all engines."""
    near = index.search_dense(queries, n_dense) if n_dense else [[] for _ in queries]
    shared = index.search_sparse(sparse, n_sparse) if n_sparse else [[] for _ in sparse]
    ids = [sorted({passage_id for passage_id, _ in (*left, *right)}) for left, right in zip(near, shared, strict=True)]
    entries = {entry.passage_id: entry for entry in index.fetch(sorted({i for of_one in ids for i in of_one}))}
    results: list[_Pairs] = []
    for query, terms, of_one in zip(queries, sparse, ids, strict=True):
        found = [entries[i] for i in of_one]
        rows = np.stack([entry.dense for entry in found]) if found else np.zeros((0, len(query)), np.float32)
        cosines = dense_products(rows, query).tolist()
        results.append(
            [
                (entry.passage_id, cosine, sparse_product(entry.sparse, terms))
                for entry, cosine in zip(found, cosines, strict=True)
            ]
        )
    return results
