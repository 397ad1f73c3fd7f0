"""The scale-out index: a Qdrant collection with one dense and one sparse vector per passage.

Owns the translation between our words and Qdrant's. Knows no BM25: the collection has no IDF modifier, so scores are
those of the embedded index. Point ids are UUIDs made from passage ids; the passage id itself is in the payload.
Writes are acknowledged before they return, but are no part of a SQLite transaction.
"""

from __future__ import annotations

import contextlib
import functools
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from byheart.errors import MissingExtraError, PassageError, VectorIndexError
from byheart.interfaces import Floats, IndexEntry, SparseVector
from byheart.retrieval.checks import check_entries, check_k, check_queries, check_sparse

if TYPE_CHECKING:
    from qdrant_client import QdrantClient, models

_NAMESPACE = uuid.UUID("6f1d2a3e-2f5b-5c0e-9a58-b7a0c1e4d911")
_BATCH = 256
_DENSE, _SPARSE, _ID = "dense", "sparse", "passage_id"


class QdrantIndex:
    """A `VectorIndex` in a Qdrant collection."""

    def __init__(self, url: str, collection: str, width: int, api_key: str | None = None) -> None:
        """Connect, and create the collection if it is not there.

        Args:
            url: Address of the cluster, or `:memory:` for a private one inside this process.
            collection: Name of the collection.
            width: Length of the dense vectors.
            api_key: Key of the cluster, if it wants one.

        Raises:
            MissingExtraError: The package qdrant-client is not installed.
            VectorIndexError: The server cannot be reached, or the collection has another shape.
        """
        self._collection, self._width, self._url = collection, width, url
        self._client = _connect(url, api_key)
        with self._reaching():
            if not self._client.collection_exists(collection):
                self._create()
            else:
                self._check_shape()

    @property
    def width(self) -> int:
        """Length of the dense vectors."""
        return self._width

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def add(self, entries: Sequence[IndexEntry]) -> None:
        """Store the entries; an id that is there already is replaced, and of two in one call the last one stays.

        Args:
            entries: What to store.

        Raises:
            InputError: An id is empty or no valid Unicode.
            VectorIndexError: A vector has another type or length, or holds NaN, or the server cannot be reached.
        """
        check_entries(entries, self._width)
        last = list({entry.passage_id: entry for entry in entries}.values())
        for start in range(0, len(last), _BATCH):
            points = [_point(entry) for entry in last[start : start + _BATCH]]
            with self._reaching():
                self._client.upsert(self._collection, points, wait=True)

    def remove(self, passage_ids: Sequence[str]) -> None:
        """Delete the entries; ids that are not there are ignored.

        Args:
            passage_ids: Ids to delete.

        Raises:
            VectorIndexError: The server cannot be reached.
        """
        from qdrant_client import models

        for start in range(0, len(passage_ids), _BATCH):
            points: list[Any] = [_point_id(i) for i in passage_ids[start : start + _BATCH]]
            with self._reaching():
                self._client.delete(self._collection, models.PointIdsList(points=points), wait=True)

    def fetch(self, passage_ids: Sequence[str]) -> list[IndexEntry]:
        """Return the entries with these ids, in this order.

        Args:
            passage_ids: Ids; repetition is fine.

        Returns:
            One entry per id.

        Raises:
            PassageError: An id is not in the index.
            VectorIndexError: The server cannot be reached.
        """
        found: dict[str, IndexEntry] = {}
        wanted = list(dict.fromkeys(passage_ids))
        for start in range(0, len(wanted), _BATCH):
            points = [_point_id(i) for i in wanted[start : start + _BATCH]]
            with self._reaching():
                records = self._client.retrieve(self._collection, points, with_payload=True, with_vectors=True)
            found.update((entry.passage_id, entry) for entry in map(_entry, records))
        missing = next((i for i in wanted if i not in found), None)
        if missing is not None:
            raise PassageError(f"no passage {missing!r} in the index; list the ids with `ids()`, or search again")
        return [found[i] for i in passage_ids]

    def ids(self) -> list[str]:
        """Return all ids, ascending.

        Returns:
            Ids of every entry.

        Raises:
            VectorIndexError: The server cannot be reached.
        """
        found: list[str] = []
        offset: Any = None
        while True:
            with self._reaching():
                records, offset = self._client.scroll(self._collection, limit=1000, offset=offset, with_payload=[_ID])
            found += [_payload_id(record.payload) for record in records]
            if offset is None:
                return sorted(found)

    def search_dense(self, queries: Floats, k: int) -> list[list[tuple[str, float]]]:
        """Return per query up to `k` ids by falling inner product, ties by id.

        Args:
            queries: Query vectors. Shape `batch width`.
            k: Hits wanted.

        Returns:
            Ids and products per query.

        Raises:
            InputError: `k` is below 1.
            VectorIndexError: `queries` is no finite float32 matrix of the index's width, or the server is away.
        """
        check_k(k)
        check_queries(queries, self._width)
        return [_best(k, functools.partial(self._ask, query, _DENSE)) for query in queries.tolist()]

    def search_sparse(self, queries: Sequence[SparseVector], k: int) -> list[list[tuple[str, float]]]:
        """Return per query up to `k` ids with an inner product above zero, falling, ties by id.

        Args:
            queries: Inverse document frequencies per question.
            k: Hits wanted.

        Returns:
            Ids and BM25 scores per query.

        Raises:
            InputError: `k` is below 1.
            VectorIndexError: A sparse vector is malformed, or the server cannot be reached.
        """
        from qdrant_client import models

        check_k(k)
        results = []
        for query in queries:
            check_sparse(query, "a question")
            vector = models.SparseVector(indices=query.terms.tolist(), values=query.weights.tolist())
            found = _best(k, functools.partial(self._ask, vector, _SPARSE)) if query.terms.size else []
            results.append([(passage_id, score) for passage_id, score in found if score > 0])
        return results

    def _ask(self, query: Any, using: str, limit: int) -> list[tuple[str, float]]:
        with self._reaching():
            response = self._client.query_points(self._collection, query, using=using, limit=limit, with_payload=[_ID])
        return [(_payload_id(point.payload), float(point.score)) for point in response.points]

    def _create(self) -> None:
        from qdrant_client import models

        self._client.create_collection(
            self._collection,
            vectors_config={_DENSE: models.VectorParams(size=self._width, distance=models.Distance.DOT)},
            sparse_vectors_config={_SPARSE: models.SparseVectorParams()},
        )

    def _check_shape(self) -> None:
        params = self._client.get_collection(self._collection).config.params
        dense = params.vectors.get(_DENSE) if isinstance(params.vectors, dict) else None
        if dense is None or dense.size != self._width or _SPARSE not in (params.sparse_vectors or {}):
            raise VectorIndexError(
                f"the Qdrant collection {self._collection!r} is not one of ours for vectors of length {self._width}, "
                f"its vectors are {params.vectors}; choose another name with retrieval.collection"
            )

    @contextlib.contextmanager
    def _reaching(self) -> Iterator[None]:
        """Turn what the client raises when the server is away or refuses into our error."""
        from qdrant_client.http.exceptions import ApiException

        try:
            yield
        except (ApiException, OSError, ValueError) as error:
            raise VectorIndexError(
                f"the Qdrant server at {self._url} did not do it: {error}; check that it runs "
                "and that retrieval.url is right"
            ) from error


def _connect(url: str, api_key: str | None) -> QdrantClient:
    try:
        from qdrant_client import QdrantClient
    except ImportError as error:
        raise MissingExtraError("the Qdrant index needs qdrant-client; install byheart[qdrant]") from error
    if not url:
        raise VectorIndexError("retrieval.url is empty; set it to the Qdrant server, such as http://localhost:6333")
    if url == ":memory:":
        return QdrantClient(location=url)
    try:
        return QdrantClient(url=url, api_key=api_key, check_compatibility=False)
    except ValueError as error:
        raise VectorIndexError(f"retrieval.url {url!r} is no address: {error}; write http://host:6333") from error


def _best(k: int, ask: Callable[[int], list[tuple[str, float]]]) -> list[tuple[str, float]]:
    """Ask for more until the k-th score is passed, so that ties at the border are broken by id, not by chance."""
    limit = k + 1
    while True:
        found = sorted(ask(limit), key=lambda hit: (-hit[1], hit[0]))
        if len(found) < limit or found[-1][1] < found[k - 1][1]:
            return found[:k]
        limit *= 2


def _point_id(passage_id: str) -> str:
    return str(uuid.uuid5(_NAMESPACE, passage_id))


def _point(entry: IndexEntry) -> models.PointStruct:
    from qdrant_client import models

    sparse = models.SparseVector(indices=entry.sparse.terms.tolist(), values=entry.sparse.weights.tolist())
    return models.PointStruct(
        id=_point_id(entry.passage_id),
        vector={_DENSE: entry.dense.tolist(), _SPARSE: sparse},
        payload={_ID: entry.passage_id},
    )


def _entry(record: models.Record) -> IndexEntry:
    vectors: Any = record.vector or {}
    sparse = vectors.get(_SPARSE)
    terms = np.array(sparse.indices if sparse else (), np.int64)
    weights = np.array(sparse.values if sparse else (), np.float32)
    order = np.argsort(terms)
    return IndexEntry(
        _payload_id(record.payload), np.array(vectors[_DENSE], np.float32), SparseVector(terms[order], weights[order])
    )


def _payload_id(payload: dict[str, Any] | None) -> str:
    return str((payload or {})[_ID])
