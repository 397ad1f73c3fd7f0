"""One contract for every engine: what `VectorIndex` promises, run over SQLite, Qdrant and one mirroring the other."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from importlib import resources

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byheart.errors import FormatError, InputError, PassageError, VectorIndexError
from byheart.fakes import FakeIndex
from byheart.interfaces import Floats, IndexEntry, SparseVector, VectorIndex
from byheart.retrieval.mirror import MirroredIndex
from byheart.retrieval.qdrant import QdrantIndex
from byheart.retrieval.scores import best_rows, dense_products
from byheart.retrieval.sqlite import SqliteIndex
from byheart.retrieval.transfer import transfer

WIDTH = 8
Engine = Callable[[], VectorIndex]


def database() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.executescript((resources.files("byheart.store") / "migrations" / "0001_corpus.sql").read_text())
    return connection


@pytest.fixture(params=["sqlite", "qdrant", "mirrored"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    opened: list[QdrantIndex] = []

    def build() -> VectorIndex:
        if request.param == "sqlite":
            return SqliteIndex(database(), WIDTH)
        if request.param == "mirrored":
            return MirroredIndex(SqliteIndex(database(), WIDTH), SqliteIndex(database(), WIDTH))
        pytest.importorskip("qdrant_client")
        opened.append(QdrantIndex(":memory:", "test", WIDTH))
        return opened[-1]

    yield build
    for index in opened:
        index.close()


def unit(*values: float) -> Floats:
    vector = np.zeros(WIDTH, np.float32)
    vector[: len(values)] = values
    return vector / np.float32(np.linalg.norm(vector))


def sparse(**weights: float) -> SparseVector:
    terms = sorted((int(name[1:]), weight) for name, weight in weights.items())
    return SparseVector(np.array([t for t, _ in terms], np.int64), np.array([w for _, w in terms], np.float32))


def random_entries(n: int, seed: int = 0) -> list[IndexEntry]:
    generator = np.random.default_rng(seed)
    entries = []
    for number in range(n):
        terms = np.sort(generator.choice(30, generator.integers(0, 8), replace=False)).astype(np.int64)
        weights = generator.uniform(0.1, 2, len(terms)).astype(np.float32)
        dense = unit(*generator.normal(size=WIDTH))
        entries.append(IndexEntry(f"d{number:03d}:0-9", dense, SparseVector(terms, weights)))
    return entries


ENTRIES = [
    IndexEntry("a:0-5", unit(1), sparse(t1=1.0, t2=0.5)),
    IndexEntry("b:0-5", unit(1, 1), sparse(t2=1.5)),
    IndexEntry("c:0-5", unit(0, 1), sparse()),
]


def test_an_added_entry_comes_back_bit_for_bit(engine: Engine) -> None:
    index = engine()
    index.add(ENTRIES)
    for entry, found in zip(reversed(ENTRIES), index.fetch(["c:0-5", "b:0-5", "a:0-5"]), strict=True):
        assert found.passage_id == entry.passage_id
        np.testing.assert_array_equal(found.dense, entry.dense)
        np.testing.assert_array_equal(found.sparse.terms, entry.sparse.terms)
        np.testing.assert_array_equal(found.sparse.weights, entry.sparse.weights)


def test_ids_survive_whatever_they_look_like(engine: Engine) -> None:
    index, odd = engine(), ["7:0-1", "a/b c.md:0-9", "naïve'%_:1-2", "文書:0-4", "x\x00y:0-1"]
    index.add([IndexEntry(passage_id, unit(1), sparse(t1=1.0)) for passage_id in odd])
    assert index.ids() == sorted(odd)
    assert [e.passage_id for e in index.fetch(odd)] == odd


def test_dense_search_ranks_by_inner_product(engine: Engine) -> None:
    index = engine()
    index.add(ENTRIES)
    found = index.search_dense(unit(1)[None], 2)[0]
    assert [passage_id for passage_id, _ in found] == ["a:0-5", "b:0-5"]
    assert [score for _, score in found] == pytest.approx([1, 2**-0.5], abs=1e-6)


def test_sparse_search_never_returns_a_passage_without_a_shared_term(engine: Engine) -> None:
    index = engine()
    index.add(ENTRIES)
    found = index.search_sparse([sparse(t2=2.0), sparse(t1=1.0, t9=5.0), sparse(t9=1.0), sparse()], 5)
    assert found[0] == [("b:0-5", pytest.approx(3.0)), ("a:0-5", pytest.approx(1.0))]
    assert found[1] == [("a:0-5", pytest.approx(1.0))]
    assert found[2:] == [[], []]


def test_adding_an_id_again_replaces_it(engine: Engine) -> None:
    index = engine()
    index.add(ENTRIES)
    assert index.search_dense(unit(0, 0, 1)[None], 1)[0][0][1] == pytest.approx(0)
    index.add([IndexEntry("a:0-5", unit(0, 0, 1), sparse(t7=1.0)), IndexEntry("z", unit(1), sparse())])
    index.add([IndexEntry("z", unit(1), sparse()), IndexEntry("z", unit(0, 0, 0, 1), sparse())])
    assert index.ids() == ["a:0-5", "b:0-5", "c:0-5", "z"]
    assert index.search_dense(unit(0, 0, 1)[None], 1)[0] == [("a:0-5", pytest.approx(1))]
    assert index.search_dense(unit(0, 0, 0, 1)[None], 1)[0] == [("z", pytest.approx(1))]
    assert index.search_sparse([sparse(t1=1.0)], 5) == [[]]


def test_a_removed_entry_is_gone_at_once_and_unknown_ids_are_ignored(engine: Engine) -> None:
    index = engine()
    index.add(ENTRIES)
    index.search_dense(unit(1)[None], 3)
    index.remove(["a:0-5", "never there"])
    index.remove([])
    assert index.ids() == ["b:0-5", "c:0-5"]
    assert "a:0-5" not in [i for i, _ in index.search_dense(unit(1)[None], 9)[0]]
    assert index.search_sparse([sparse(t1=1.0)], 9) == [[]]
    with pytest.raises(PassageError, match="a:0-5"):
        index.fetch(["b:0-5", "a:0-5"])


@pytest.mark.parametrize("n", [0, 1, 2])
def test_k_may_exceed_the_corpus(engine: Engine, n: int) -> None:
    index = engine()
    index.add(ENTRIES[:n])
    assert len(index.search_dense(unit(1)[None], 5)[0]) == n
    assert len(index.search_sparse([sparse(t2=1.0)], 5)[0]) == n
    assert index.fetch([]) == []
    assert index.search_dense(np.zeros((0, WIDTH), np.float32), 5) == []
    assert index.search_sparse([], 5) == []


def test_ties_fall_to_the_smaller_id_also_at_the_border(engine: Engine) -> None:
    index = engine()
    same = [IndexEntry(f"p{n}", unit(1), sparse(t1=1.0)) for n in (5, 3, 9, 1, 7, 2)]
    index.add([*same, IndexEntry("p0", unit(0, 1), sparse(t1=0.5))])
    assert [i for i, _ in index.search_dense(unit(1)[None], 3)[0]] == ["p1", "p2", "p3"]
    assert [i for i, _ in index.search_sparse([sparse(t1=1.0)], 3)[0]] == ["p1", "p2", "p3"]


@pytest.mark.parametrize(
    ("queries", "message"),
    [
        (np.full((1, WIDTH), np.nan, np.float32), "query 0 holds NaN"),
        (np.zeros((1, WIDTH + 1), np.float32), "shape"),
        (np.zeros(WIDTH, np.float32), "shape"),
        (np.zeros((1, WIDTH)), "float64"),
        ([[0.0] * WIDTH], "list"),
    ],
)
def test_a_malformed_query_is_refused(engine: Engine, queries: Floats, message: str) -> None:
    with pytest.raises(VectorIndexError, match=message):
        engine().search_dense(queries, 3)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (IndexEntry("x", unit(1)[:3], sparse()), "shape"),
        (IndexEntry("x", unit(1).astype(np.float64), sparse()), "float64"),
        (IndexEntry("x", np.full(WIDTH, np.inf, np.float32), sparse()), "NaN"),
        (IndexEntry("x", unit(1), sparse(t1=float("nan"))), "finite"),
        (IndexEntry("x", unit(1), sparse(t1=0.0)), "positive"),
        (IndexEntry("x", unit(1), SparseVector(np.array([2, 1]), np.ones(2, np.float32))), "ascend"),
        (IndexEntry("x", unit(1), SparseVector(np.array([1, 2]), np.ones(1, np.float32))), "one float32 weight"),
    ],
)
def test_a_malformed_entry_is_refused_and_nothing_is_stored(engine: Engine, entry: IndexEntry, message: str) -> None:
    index = engine()
    with pytest.raises(VectorIndexError, match=message):
        index.add([ENTRIES[0], entry])
    assert index.ids() == []


def test_an_empty_id_and_a_k_below_one_are_refused(engine: Engine) -> None:
    index = engine()
    with pytest.raises(InputError, match="non-empty"):
        index.add([IndexEntry("", unit(1), sparse())])
    for k in (0, -1):
        with pytest.raises(InputError, match="at least 1"):
            index.search_dense(unit(1)[None], k)
        with pytest.raises(InputError, match="at least 1"):
            index.search_sparse([sparse(t1=1.0)], k)


def test_a_question_alone_and_in_a_batch_gets_the_same_bits(engine: Engine) -> None:
    index, generator = engine(), np.random.default_rng(1)
    index.add(random_entries(80))
    queries = np.stack([unit(*generator.normal(size=WIDTH)) for _ in range(9)])
    terms = [entry.sparse for entry in random_entries(9, seed=2)]
    assert index.search_dense(queries, 7) == [index.search_dense(q[None], 7)[0] for q in queries]
    assert index.search_sparse(terms, 7) == [index.search_sparse([t], 7)[0] for t in terms]


def test_search_agrees_with_multiplying_every_passage(engine: Engine) -> None:
    index, slow = engine(), FakeIndex()
    for each in (index, slow):
        each.add(random_entries(80, seed=3))
        each.remove(["d007:0-9", "not there"])
    assert index.ids() == slow.ids()
    for query in random_entries(10, seed=4):
        near, shared = slow.search_dense(query.dense[None], 6)[0], slow.search_sparse([query.sparse], 80)[0]
        found, lexical = index.search_dense(query.dense[None], 6)[0], index.search_sparse([query.sparse], 80)[0]
        assert [i for i, _ in found] == [i for i, _ in near]
        assert [s for _, s in found] == pytest.approx([s for _, s in near], abs=1e-6)
        assert [i for i, _ in lexical] == [i for i, _ in shared]
        assert [s for _, s in lexical] == pytest.approx([s for _, s in shared], rel=1e-6)


def test_exporting_and_importing_loses_nothing(engine: Engine) -> None:
    source, target, back = SqliteIndex(database(), WIDTH), engine(), SqliteIndex(database(), WIDTH)
    source.add(random_entries(30))
    target.add([IndexEntry("left over", unit(1), sparse())])
    seen: list[tuple[int, int, str]] = []
    assert transfer(source, target, lambda done, total, what: seen.append((done, total, what))) == 30
    assert seen[-1] == (30, 30, "vectors")
    assert target.ids() == source.ids()
    transfer(target, back)
    rows = "SELECT * FROM vectors ORDER BY passage_id"
    assert back._connection.execute(rows).fetchall() == source._connection.execute(rows).fetchall()


def test_a_writer_sees_its_own_transaction_and_a_rollback_undoes_it() -> None:
    connection = database()
    index = SqliteIndex(connection, WIDTH)
    index.add(ENTRIES[:1])
    index.refresh(1)
    connection.execute("BEGIN IMMEDIATE")
    index.add(ENTRIES[1:])
    assert len(index.search_dense(unit(1)[None], 9)[0]) == 3
    connection.execute("ROLLBACK")
    assert len(index.search_dense(unit(1)[None], 9)[0]) == 1
    connection.execute("BEGIN IMMEDIATE")
    index.remove(["a:0-5"])
    assert index.search_dense(unit(1)[None], 9)[0] == []
    connection.execute("ROLLBACK")
    connection.execute("BEGIN")
    index.refresh(1)
    assert len(index.search_dense(unit(1)[None], 9)[0]) == 1


def test_another_process_write_is_seen_at_the_next_epoch(tmp_path: object) -> None:
    path = f"{tmp_path}/kb.db"
    connections = [sqlite3.connect(path, isolation_level=None) for _ in range(2)]
    connections[0].executescript((resources.files("byheart.store") / "migrations" / "0001_corpus.sql").read_text())
    writer, reader = (SqliteIndex(connection, WIDTH) for connection in connections)
    writer.add(ENTRIES)
    reader.refresh(1)
    assert reader.search_dense(unit(0, 0, 1)[None], 1)[0][0][1] == pytest.approx(0)
    writer.add([IndexEntry("a:0-5", unit(0, 0, 1), sparse())])
    reader.refresh(2)
    assert reader.search_dense(unit(0, 0, 1)[None], 1)[0] == [("a:0-5", pytest.approx(1))]


@pytest.mark.parametrize(
    ("column", "blob"),
    [
        ("dense", b"\0" * 5),
        ("terms", b"\0" * 3),
        ("weights", b""),
        ("dense", np.full(WIDTH, np.nan, "<f4").tobytes()),
        ("weights", np.array([np.inf, 1], "<f4").tobytes()),
    ],
)
def test_a_damaged_row_is_named(column: str, blob: bytes) -> None:
    connection = database()
    index = SqliteIndex(connection, WIDTH)
    index.add(ENTRIES)
    connection.execute(f"UPDATE vectors SET {column} = ? WHERE passage_id = 'a:0-5'", (blob,))
    with pytest.raises(FormatError, match="a:0-5"):
        index.search_dense(unit(1)[None], 1)
    with pytest.raises(FormatError, match="a:0-5"):
        index.fetch(["a:0-5"])


def test_two_indexes_in_one_process_never_meet(engine: Engine) -> None:
    first, second = engine(), engine()
    first.add(ENTRIES)
    assert second.ids() == []


def test_a_qdrant_server_that_is_away_is_a_clear_error() -> None:
    pytest.importorskip("qdrant_client")
    with pytest.raises(VectorIndexError, match=r"127\.0\.0\.1:9"):
        QdrantIndex("http://127.0.0.1:9", "test", WIDTH)
    with pytest.raises(VectorIndexError, match=r"retrieval\.url is empty"):
        QdrantIndex("", "test", WIDTH)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-3, 3), max_size=12), st.integers(1, 15))
def test_the_best_rows_are_those_of_a_full_sort(scores: list[int], k: int) -> None:
    expected = sorted(range(len(scores)), key=lambda row: (-scores[row], row))[:k]
    assert best_rows(np.array(scores, np.float32), k).tolist() == expected


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 70), st.integers(1, 400), st.integers(0, 2**31))
def test_a_product_does_not_depend_on_the_other_rows(n: int, width: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    rows, query = generator.normal(size=(n, width)).astype(np.float32), generator.normal(size=width).astype(np.float32)
    together = dense_products(rows, query)
    assert together.tolist() == [dense_products(row[None], query)[0] for row in rows]
