"""From text to ranked hits: BM25, the term table, fusion, the adapter and the fitted weight."""

from __future__ import annotations

import dataclasses
import math
import sqlite3
from collections import Counter
from importlib import resources

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byheart.config import RetrievalConfig
from byheart.errors import FormatError, InputError, VectorIndexError
from byheart.interfaces import Floats, IndexEntry, SparseVector, VectorIndex
from byheart.retrieval.adapter import QueryAdapter
from byheart.retrieval.analyzer import analyze
from byheart.retrieval.bm25 import best_possible, passage_vector, query_vector
from byheart.retrieval.fitting import fit_dense_weight
from byheart.retrieval.fusion import Candidate, HybridRetriever
from byheart.retrieval.qdrant import QdrantIndex
from byheart.retrieval.sqlite import SqliteIndex
from byheart.retrieval.terms import TermTable
from byheart.types import Question

WIDTH = 8
CONFIG = RetrievalConfig()
WORDS = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heron", "islet", "jetty", "knoll", "otter")


def embed(text: str) -> Floats:
    """Return a unit vector that depends on the words only: a five-word encoder."""
    vector = np.full(WIDTH, 1e-3, np.float32)
    for term in analyze(text):
        vector[sum(term.encode()) % WIDTH] += 1
    return vector / np.float32(np.linalg.norm(vector))


class World:
    """A knowledge base's retrieval half, kept as the library keeps it."""

    def __init__(self, engine: str = "sqlite") -> None:
        self.connection = sqlite3.connect(":memory:", isolation_level=None)
        script = resources.files("byheart.store") / "migrations" / "0001_corpus.sql"
        self.connection.executescript(script.read_text())
        self.connection.execute("INSERT INTO documents VALUES ('d', 'd', '', '', '', '', '')")
        self.terms = TermTable(self.connection)
        self.index: VectorIndex = SqliteIndex(self.connection, WIDTH)
        if engine == "qdrant":
            pytest.importorskip("qdrant_client")
            self.index = QdrantIndex(":memory:", "test", WIDTH)

    def add(self, texts: dict[str, str]) -> World:
        documents = {passage_id: analyze(text) for passage_id, text in texts.items()}
        numbers = self.terms.assign(documents.values())
        vectors = {i: passage_vector(terms, numbers, CONFIG) for i, terms in documents.items()}
        self.terms.count([vector.terms for vector in vectors.values()], 1)
        self.index.add([IndexEntry(i, embed(texts[i]), vectors[i]) for i in texts])
        rows = ((i, "d", "[]", 0, 0) for i in texts)
        self.connection.executemany('INSERT INTO passages (id, page, headings, start, "end") VALUES (?,?,?,?,?)', rows)
        return self

    def remove(self, ids: list[str]) -> None:
        self.terms.count([entry.sparse.terms for entry in self.index.fetch(ids)], -1)
        self.index.remove(ids)
        self.connection.executemany("DELETE FROM passages WHERE id = ?", ((i,) for i in ids))

    def search(self, *texts: str, k: int = 5, weight: float | None = None, adapter: QueryAdapter | None = None) -> list:
        queries = np.stack([embed(text) for text in texts])
        retriever = HybridRetriever(self.index, self.terms, CONFIG, adapter, weight)
        return retriever.search([Question.parse(text) for text in texts], queries, k)


def invented(n: int, seed: int, prefix: str) -> dict[str, str]:
    generator = np.random.default_rng(seed)
    return {f"{prefix}{i}": " ".join(generator.choice(WORDS, generator.integers(0, 9))) for i in range(n)}


def naive_bm25(question: str, texts: dict[str, str]) -> dict[str, float]:
    """Score every passage straight from the formula."""
    documents = {i: analyze(text) for i, text in texts.items()}
    scores = {}
    for passage_id, terms in documents.items():
        total = 0.0
        for term in set(analyze(question)):
            df = sum(term in other for other in documents.values())
            tf = Counter(terms)[term]
            if tf:
                length = 1 - CONFIG.b + CONFIG.b * len(terms) / CONFIG.average_terms
                idf = math.log(1 + (len(documents) - df + 0.5) / (df + 0.5))
                total += idf * tf * (CONFIG.k1 + 1) / (tf + CONFIG.k1 * length)
        if total > 0:
            scores[passage_id] = total
    return scores


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.lists(st.sampled_from(WORDS), min_size=1, max_size=5))
def test_two_vectors_multiplied_are_bm25_by_the_formula(seed: int, words: list[str]) -> None:
    texts = invented(25, seed, "p")
    hits = World().add(texts).search(" ".join(words), k=25, weight=0)[0]
    assert {hit.passage_id: pytest.approx(hit.lexical, rel=1e-5) for hit in hits} == naive_bm25(" ".join(words), texts)


def test_after_adding_and_deleting_a_thousand_scores_equal_a_fresh_index() -> None:
    kept, passing = invented(60, 1, "kept"), invented(1000, 2, "gone")
    passing = {i: f"{text} fleeting{i}" for i, text in passing.items()}
    world = World().add(passing).add(kept)
    world.remove(list(passing))
    fresh = World().add(kept)
    for question in ("amber birch", "otter jetty otter fleetinggone7", "fleetinggone8"):
        for weight in (0.0, 0.5, 1.0):
            assert world.search(question, k=1100, weight=weight) == fresh.search(question, k=1100, weight=weight)
    assert (
        world.connection.execute("SELECT term, df FROM terms ORDER BY term").fetchall()
        == fresh.connection.execute("SELECT term, df FROM terms ORDER BY term").fetchall()
    )


def test_a_term_that_no_passage_holds_any_more_leaves_the_table() -> None:
    world = World().add({"a": "amber birch", "b": "birch"})
    world.remove(["a"])
    assert {t: df for t, (_, df) in world.terms.lookup(["amber", "birch"]).items()} == {"birch": 1}
    numbers = world.terms.assign([["amber"]])
    assert numbers["amber"] > world.terms.lookup(["birch"])["birch"][0]
    assert world.terms.assign([]) == {} == world.terms.lookup([])
    world.terms.count([], 1)


def test_the_term_table_takes_more_terms_than_sqlite_takes_parameters() -> None:
    world = World()
    terms = [f"t{n}" for n in range(2_500)]
    assert len(world.terms.assign([terms, terms])) == len(world.terms.lookup(terms)) == 2_500


def test_the_term_table_never_commits() -> None:
    world = World()
    world.connection.execute("BEGIN IMMEDIATE")
    world.add({"a": "amber"})
    assert world.connection.in_transaction
    world.connection.execute("ROLLBACK")
    assert world.terms.lookup(["amber"]) == {}
    assert world.terms.n_passages() == 0


def test_an_index_that_stands_alone_counts_its_own_passages() -> None:
    world = World().add({"a": "amber", "b": "birch"})
    world.connection.execute("DELETE FROM passages")
    assert world.terms.n_passages() == 2


@pytest.mark.parametrize("engine", ["sqlite", "qdrant"])
@pytest.mark.parametrize("texts", [{}, {"a": ""}, {"a": "  "}, {"a": "the of"}, {"a": "", "b": "amber"}])
def test_blank_passages_are_no_evidence_and_divide_nothing_by_zero(engine: str, texts: dict[str, str]) -> None:
    world = World(engine).add(texts)
    found = world.search("amber", "the who", k=5, weight=0)
    assert [[hit.passage_id for hit in hits] for hits in found] == [["b"] if "b" in texts else [], []]
    assert all(np.isfinite(hit.score) for hits in world.search("amber", "the who") for hit in hits)


@pytest.mark.parametrize(
    ("question", "wanted"),
    [
        ("北京的人口是多少", "zh"),
        ("東京タワーの高さは", "ja"),
        ("서울의 인구는 얼마인가요", "ko"),
        ("население Москвы", "ru"),
        ("عدد سكان القاهرة", "ar"),
        ("\u03b1-helix of Beyonce", "la"),
    ],
)
def test_lexical_search_finds_words_in_every_script(question: str, wanted: str) -> None:
    world = World().add(
        {
            "zh": "北京是中国的首都,人口约两千一百万。",
            "zh2": "上海港是世界上最繁忙的港口。",
            "ja": "東京タワーは高さ333メートルの電波塔である。",
            "ja2": "大阪城は豊臣秀吉が築いた。",
            "ko": "서울은 대한민국의 수도이며 인구는 약 940만 명이다.",
            "ko2": "부산은 항구 도시이다.",
            "ru": "Москва — столица России, её население превышает 13 миллионов.",
            "ru2": "Волга — самая длинная река Европы.",
            "ar": "القاهرة عاصمة مصر ويبلغ عدد سكانها عشرة ملايين.",
            "ar2": "نهر النيل أطول أنهار العالم.",
            "la": "Beyoncé and the \u03b1-helix",
        }
    )
    assert world.search(question, weight=0)[0][0].passage_id == wanted


@pytest.mark.parametrize("n", [0, 1, 2])
def test_more_hits_than_passages_may_be_asked_for(n: int) -> None:
    world = World().add(dict(list({"a": "amber", "b": "amber birch"}.items())[:n]))
    for weight in (0.0, 0.5, 1.0):
        assert len(world.search("amber", k=5, weight=weight)[0]) == n


def test_a_weight_of_zero_is_bm25_alone_and_one_is_dense_alone() -> None:
    world = World().add(invented(80, 5, "p"))
    lexical, dense = (world.search("amber cedar", k=80, weight=w)[0] for w in (0.0, 1.0))
    assert [h.passage_id for h in lexical] == [
        h.passage_id for h in sorted(lexical, key=lambda h: (-h.lexical, h.passage_id))
    ]
    assert all(hit.lexical > 0 for hit in lexical)
    query = embed("amber cedar")[None]
    assert [(h.passage_id, h.dense) for h in dense] == world.index.search_dense(query, 80)[0][: len(dense)]


def test_the_score_is_the_weighted_mean_and_both_parts_are_always_there() -> None:
    world = World().add(invented(80, 6, "p"))
    known = world.terms.lookup(["amber", "cedar"])
    most = best_possible(query_vector(["amber", "cedar"], known, 80), CONFIG)
    for hit in world.search("amber cedar", weight=0.7)[0]:
        assert hit.score == pytest.approx(0.7 * hit.dense + 0.3 * hit.lexical / most)
        assert 0 <= hit.lexical / most < 1


def test_a_passage_with_no_shared_term_and_no_nearness_is_no_evidence() -> None:
    world = World()
    for passage_id, place in (("near", 0), ("far", 1)):
        dense = np.eye(WIDTH, dtype=np.float32)[place]
        world.index.add([IndexEntry(passage_id, dense, SparseVector(np.zeros(0, np.int64), np.zeros(0, np.float32)))])
    query = np.eye(WIDTH, dtype=np.float32)[:1]
    hits = HybridRetriever(world.index, world.terms, CONFIG).search([Question.parse("amber")], query, 5)[0]
    assert [hit.passage_id for hit in hits] == ["near"]


def test_ties_in_the_fused_score_fall_to_the_smaller_id() -> None:
    world = World().add(dict.fromkeys(("c", "a", "b"), "amber birch"))
    assert [hit.passage_id for hit in world.search("amber", k=2)[0]] == ["a", "b"]


def test_a_question_alone_and_in_a_batch_gets_the_same_hits() -> None:
    world, questions = World().add(invented(150, 7, "p")), ["amber", "otter jetty", "the who", "zebra", "cedar amber"]
    adapter = QueryAdapter.identity(WIDTH, 2, seed=0)
    adapter = dataclasses.replace(adapter, up=np.random.default_rng(1).normal(size=(2, WIDTH)).astype(np.float32))
    assert world.search(*questions, adapter=adapter) == [world.search(q, adapter=adapter)[0] for q in questions]


class OnlyTheProtocol:
    """An engine without the faster path: hides everything that `VectorIndex` does not promise."""

    def __init__(self, index: VectorIndex) -> None:
        for name in ("add", "remove", "fetch", "search_dense", "search_sparse", "ids"):
            setattr(self, name, getattr(index, name))


def test_the_faster_path_gives_the_numbers_of_the_plain_one() -> None:
    world = World().add(invented(150, 8, "p"))
    fast = {w: world.search("amber otter", "the who", "jetty", weight=w) for w in (0.0, 0.4, 1.0)}
    world.index = OnlyTheProtocol(world.index)  # type: ignore[assignment]
    assert fast == {w: world.search("amber otter", "the who", "jetty", weight=w) for w in fast}


def test_both_engines_give_the_same_hits() -> None:
    texts = invented(60, 9, "p")
    one, other = World().add(texts), World("qdrant").add(texts)
    assert one.search("amber otter", "jetty", k=10) == other.search("amber otter", "jetty", k=10)


def test_nul_bytes_in_texts_and_ids_are_harmless() -> None:
    world = World().add({"a\x00": "amber\x00birch", "b": "cedar"})
    assert world.search("birch\x00", weight=0)[0][0].passage_id == "a\x00"


def test_wrong_queries_and_k_are_refused() -> None:
    world = World().add({"a": "amber"})
    retriever = HybridRetriever(world.index, world.terms, CONFIG)
    question, query = Question.parse("x"), embed("x")[None]
    with pytest.raises(InputError, match="k must be at least 1, got 0"):
        retriever.search([question], query, 0)
    for wrong in (query * np.float32(np.nan), query[:, :3], query.astype(np.float64), query[0]):
        with pytest.raises(VectorIndexError):
            retriever.search([question], wrong, 1)
    with pytest.raises(VectorIndexError, match="2 questions but 1 query"):
        retriever.search([question, question], query, 1)
    with pytest.raises(InputError, match="dense_weight"):
        HybridRetriever(world.index, world.terms, CONFIG, dense_weight=1.5)
    assert retriever.search([], np.zeros((0, WIDTH), np.float32), 1) == []


def test_an_untrained_adapter_changes_no_bit_and_a_trained_one_keeps_unit_length() -> None:
    queries = np.stack([embed(word) for word in WORDS])
    adapter = QueryAdapter.identity(WIDTH, 3, seed=0)
    assert not adapter.is_trained
    assert adapter.apply(queries).tobytes() == queries.tobytes()
    trained = dataclasses.replace(adapter, up=np.ones((3, WIDTH), np.float32))
    changed = trained.apply(queries)
    assert trained.is_trained
    assert changed.dtype == np.float32
    assert not np.allclose(changed, queries)
    np.testing.assert_allclose(np.linalg.norm(changed, axis=1), 1, rtol=1e-6)


def test_an_adapter_comes_back_from_its_text_and_other_texts_are_refused() -> None:
    adapter = dataclasses.replace(QueryAdapter.identity(WIDTH, 3, seed=0), up=np.ones((3, WIDTH), np.float32))
    loaded = QueryAdapter.from_json(adapter.to_json(), WIDTH)
    assert (loaded.down.tobytes(), loaded.up.tobytes()) == (adapter.down.tobytes(), adapter.up.tobytes())
    with pytest.raises(FormatError, match="length 8, the encoder gives 9"):
        QueryAdapter.from_json(adapter.to_json(), WIDTH + 1)
    for text in ("not JSON", "{}", adapter.to_json().replace('"rank": 3', '"rank": 4')):
        with pytest.raises(FormatError, match="cannot be read"):
            QueryAdapter.from_json(text, WIDTH)
    with pytest.raises(VectorIndexError, match="NaN"):
        QueryAdapter(adapter.down * np.float32(np.nan), adapter.up)
    with pytest.raises(VectorIndexError, match="must be"):
        QueryAdapter(adapter.down, adapter.up[:2])


def test_the_fitted_weight_is_the_one_that_puts_most_passages_first() -> None:
    both = (Candidate("gold", 0.5, 9.0, 0.9), Candidate("near", 0.8, 0.0, 0.0), Candidate("far", 0.1, 10.0, 1.0))
    fitted = fit_dense_weight([both] * 3, ["gold"] * 3)
    assert 0.2 < fitted.dense_weight < 0.8
    assert (fitted.recall_at_1, fitted.recall_at_5, fitted.mrr, fitted.n) == (1, 1, 1, 3)
    assert both[0].fused(fitted.dense_weight) == max(c.fused(fitted.dense_weight) for c in both)
    assert fit_dense_weight([both], ["elsewhere"]).mrr == 0
    for candidates, gold, grid in ([], [], (0.5,)), ([both], [], (0.5,)), ([both], ["gold"], ()):
        with pytest.raises(InputError):
            fit_dense_weight(candidates, gold, grid)
