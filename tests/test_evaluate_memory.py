"""The memory's suites over a tiny invented world, with a memory whose every answer is known beforehand."""

import gzip
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from byheart.capacity import SAMPLE as ASKED_BY_CAPACITY
from byheart.corpus.pararel import is_reported, training_statements
from byheart.corpus.splits import nq_reporting_ids
from byheart.errors import EvaluationError
from byheart.evaluate import bases, growth, write_rate
from byheart.evaluate.bases import Corpus
from byheart.evaluate.capacity import refusal_kind
from byheart.evaluate.cosine_cache import cached
from byheart.evaluate.memory_queries import (
    Query,
    general_facts,
    growing_facts,
    near_miss_facts,
    near_miss_queries,
    statements,
    support_facts,
    support_queries,
    written_facts,
)
from byheart.evaluate.rows import Row
from byheart.evaluate.suites import Job, run_job
from byheart.fakes import FakeEncoder
from byheart.text.question_keys import question_key
from byheart.types import NewFact, Question
from fake_memory import SURE, Behaviour, scripted

ANIMALS = ("otter", "badger", "heron", "weasel", "kestrel", "salmon", "beaver", "lynx", "marten", "osprey")
PATTERNS = tuple(f"[X] {verb} [Y] ." for verb in ("saw", "met", "heard", "fed", "drew", "chased", "greeted"))
TOO_LONG = "its answer has 70 tokens, memory holds 64; shorten it, or leave it to retrieval"
HIDDEN = "it would answer a question of nq-3; word the two so that they can be told apart"


def write(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


def write_pairs(data: Path) -> None:
    rows = [
        {
            "id": f"nq-{n}",
            "question": f"where does the {animal} live",
            "answers": [f"river {n}", "water"],
            "paraphrases": [f"home of the {animal} {i}" for i in range(3)],
            "near_misses": [
                {"question": f"where does the {animal} hunt", "kind": "entity"},
                {"question": f"where does the {animal} not live", "kind": "negation"},
            ],
        }
        for n, animal in enumerate(ANIMALS[:4])
    ]
    write(data / "question_pairs/test_nq.jsonl", rows)


def write_facts(data: Path) -> None:
    nq = [
        {"question": f"who met the {animal}", "answers": [f"person {n}"], "ctxs": [{"title": "t", "text": f"{n}"}]}
        for n, animal in enumerate(ANIMALS)
    ]
    popular = [
        {
            "id": f"test_{n}",
            "question": f"What is the colour of the {animal}?",
            "golden_answers": ["brown"],
            "metadata": {"prop": "colour", "subj": animal, "obj": f"brown {n}", "s_pop": 9},
        }
        for n, animal in enumerate(ANIMALS)
    ]
    write(data / "nq_open/nq-open-oracle.jsonl.gz", nq)
    write(data / "popqa/popqa_random1000.jsonl.gz", popular)


def write_statements(data: Path) -> None:
    write(data / "pararel/patterns.jsonl.gz", [{"relation": "P1", "pattern": pattern} for pattern in PATTERNS])
    facts = [{"relation": "P1", "sub_label": f"subject{n}", "obj_label": f"object {n}"} for n in range(100)]
    write(data / "pararel/trex_facts.jsonl.gz", facts)


def write_support(data: Path) -> None:
    articles = [
        {"article": f"help/{name}", "lang": "en", "title": name, "body_markdown": f"# {name}\n\n{body}\n"}
        for name, body in (("phone", "Change your phone in settings."), ("mail", "Add a mail address."))
    ]
    write(data / "logingov_help/help_articles.jsonl.gz", articles)
    faq = [
        ("phone", "How do I change my phone?", "In settings", "help/phone"),
        ("mail", "How do I add an address?", "Add it", "help/mail"),
        ("lost", "What if I lost my phone?", "Call us", "help/phone"),
    ]
    names = ("id", "question", "answer", "article")
    write(data / "support/support_faq.jsonl", [dict(zip(names, row, strict=True), evidence="") for row in faq])
    queries = [
        {"id": "q-1", "fact": "phone", "query": "change phone", "style": "plain"},
        {"id": "q-2", "fact": "phone", "query": "phone number pls", "style": "terse"},
        {"id": "q-3", "fact": "mail", "query": "add address", "style": "plain"},
        {"id": "q-4", "fact": None, "near": "phone", "query": "phone gone", "kind": "object", "answer_fact": "lost"},
        {"id": "q-5", "fact": None, "near": "phone", "query": "sell phone", "kind": "object", "answer_fact": None},
        {"id": "q-6", "fact": None, "near": None, "query": "weather", "kind": "out_of_scope"},
        {"id": "q-7", "fact": None, "article": "help/mail", "answer": "x", "query": "mail", "kind": "retrieval_only"},
        {"id": "q-8", "fact": "phone", "query": "número de phone", "lang": "es"},
    ]
    write(data / "support/support_queries.jsonl", queries)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("byheart.evaluate.memory_queries.is_support_training", lambda _: False)
    folder = tmp_path / "data"
    for writer in (write_pairs, write_facts, write_statements, write_support):
        writer(folder)
    return folder


def job(data: Path, suite: str, behaviour: Behaviour, limit: int | None = None) -> Job:
    root = data.parent
    return Job(suite, data, None, root / "results", limit, seed=5, work=root / "work", open_base=behaviour.open)


def values(rows: Sequence[Row], split: str, system: str = "byheart") -> dict[str, float]:
    return {row.measure: row.value for row in rows if (row.split, row.system) == (split, system)}


def sizes(rows: Sequence[Row], split: str) -> set[int]:
    return {row.n for row in rows if row.split == split}


# Of nq-0 to nq-2 the paraphrases are recalled, one of them wrongly; nq-3 is refused. Two near misses are recalled.
NEAR_MISS = Behaviour(
    scripted(
        {
            **{f"home of the otter {i}": ("nq-0", score) for i, score in enumerate((0.95, 0.94, 0.93))},
            **{f"home of the badger {i}": ("nq-1", 0.9) for i in range(3)},
            "home of the heron 0": ("nq-2", 0.8),
            "home of the heron 1": ("nq-2", 0.8),
            "home of the heron 2": ("nq-0", 0.7),
            "home of the weasel 0": ("nq-3", 0.99),
            "where does the otter hunt": ("nq-0", 0.85),
            "where does the badger not live": ("nq-1", 0.3),
        }
    ),
    refused={"nq-3": TOO_LONG},
)


def test_near_misses_are_counted_as_by_hand(data: Path) -> None:
    rows = run_job(job(data, "near_miss", NEAR_MISS))
    everything = values(rows, "paraphrases + near misses")
    assert values(rows, "facts") == {"memorised": 3 / 4}
    # Six right from 0.9 on, of twelve known; below, a near miss at 0.85 leaves 8 right of 9.
    assert [everything[f"coverage@precision{p}"] for p in (0.95, 0.98, 0.99)] == [0.5] * 3
    # Against 0.85 six of nine scores win, against 0.3 nine; against six without a recall nine win and three tie.
    assert everything["first"] == pytest.approx(8 / 12)
    assert everything["auc"] == pytest.approx((6 + 9 + 6 * (9 + 1.5)) / (12 * 8))
    assert everything["coverage"] == pytest.approx(8 / 12)
    assert everything["false_memory_answers"] == 1 / 8
    assert everything["answer_precision"] == 8 / 10
    assert 0 <= everything["ece"] <= 1
    assert values(rows, "paraphrases") == {"right@precision0.95": 0.5, "wrong@precision0.95": 0.0}
    assert values(rows, "near misses: entity") == values(rows, "near misses: negation") == {"wrong@precision0.95": 0.0}
    assert sizes(rows, "paraphrases + near misses") >= {20}
    assert sizes(rows, "near misses") == {8}
    assert sizes(rows, "near misses: entity") == {4}


def test_the_cosine_cache_is_asked_the_same(data: Path) -> None:
    rows = run_job(job(data, "near_miss", NEAR_MISS))
    cache = values(rows, "paraphrases + near misses", "cosine-cache")
    assert cache.keys() == {"auc", "first", *(f"coverage@precision{p}" for p in (0.95, 0.98, 0.99))}
    ours = values(rows, "paraphrases + near misses")
    lead = ours["coverage@precision0.95 above cosine-cache"]
    assert lead == pytest.approx(ours["coverage@precision0.95"] - cache["coverage@precision0.95"])
    # The near misses share more words with the questions than the paraphrases do: cosine can't tell.
    assert cache["auc"] < 0.5
    assert all(row.low is not None for row in rows)


def test_a_limit_asks_as_many_of_both_sides(data: Path) -> None:
    rows = run_job(job(data, "near_miss", NEAR_MISS, limit=3))
    assert sizes(rows, "near misses, first 3") == {3}
    assert values(rows, "paraphrases + near misses, first 3")["coverage@precision0.95"] == 1.0


SUPPORT = Behaviour(
    scripted(
        {
            "change phone": ("phone", 0.99),
            "phone number pls": ("mail", 0.4),
            "add address": ("mail", 0.9),
            "phone gone": ("lost", 0.8),
            "sell phone": ("phone", 0.7),
            "weather": ("mail", 0.95),
            "número de phone": ("phone", 0.6),
        }
    )
)


def test_the_help_desk_is_counted_as_by_hand(data: Path) -> None:
    rows = run_job(job(data, "support", SUPPORT))
    related, english = values(rows, "memory: facts + near misses"), values(rows, "memory: all in English")
    # Known are q-1 to q-4; three are right before the near miss at 0.7.
    assert related["coverage@precision0.95"] == 3 / 4
    # Out of scope at 0.95: right is only what lies above it, 0.99; then 1 of 2, 2 of 3, 3 of 4.
    assert english["coverage@precision0.95"] == 1 / 4
    assert related["false_memory_answers"] == 1.0
    assert english["false_memory_answers"] == pytest.approx(2 / 3)
    assert related["answer_precision"] == 3 / 4
    assert values(rows, "memory: plain") == {"right@precision0.95": 1.0, "wrong@precision0.95": 0.0}
    assert values(rows, "memory: terse") == {"right@precision0.95": 0.0, "wrong@precision0.95": 0.0}
    assert values(rows, "memory: near misses: object, another fact answers")["right@precision0.95"] == 1.0
    assert values(rows, "memory: near misses: object, nothing answers") == {"wrong@precision0.95": 0.0}
    assert values(rows, "memory: out_of_scope") == {"wrong@precision0.95": 1.0}
    assert values(rows, "memory: language es") == {"right@precision0.95": 0.0, "wrong@precision0.95": 0.0}
    assert values(rows, "memory: facts") == {"memorised": 1.0}
    assert sizes(rows, "memory: facts + near misses") >= {5}
    assert sizes(rows, "memory: all in English") >= {7}


def test_memory_answers_cite_the_article_of_their_fact(data: Path) -> None:
    rows = run_job(job(data, "support", SUPPORT))
    # Above 0.5 and known: change phone, add address, phone gone; each fact cites its own article.
    assert values(rows, "memory: answers to known queries") == {"Rprec": 1.0, "Rprec of right answers": 1.0}
    assert sizes(rows, "memory: answers to known queries") == {3}
    assert {row.system for row in rows if row.split == "facts"} == {"bm25", "dense", "hybrid"}


def subject_rule(text: str, held: Sequence[NewFact]) -> tuple[str, float] | None:
    """Recall the fact whose subject is named, and a wrong one for a few questions about nothing that is held."""
    words = {word.strip(".") for word in text.split()}
    found = next((fact.id for fact in held if fact.id.split(":")[-1] in words), None)
    if found is not None:
        return found, SURE
    return (held[0].id, 0.7) if any(word.endswith("7") for word in words) else None


def test_known_statements_are_told_from_those_not_learned(data: Path) -> None:
    chosen = statements(data, 3000)
    n = len(chosen.facts)
    assert 10 <= n == len(chosen.known) == len(chosen.unknown)
    mistaken = sum(query.id.endswith("7") for query in chosen.unknown)
    assert mistaken
    rows = run_job(job(data, "capacity", Behaviour(subject_rule)))
    found = values(rows, "ParaRel: known + unknown")
    assert [found[f"coverage@precision{p}"] for p in (0.95, 0.98, 0.99)] == [1.0] * 3
    assert found["false_memory_answers"] == pytest.approx(mistaken / n)
    assert found["auc"] == 1.0
    assert values(rows, "ParaRel: facts") == {"memorised": 1.0, "bytes_per_fact": 100.0}
    assert values(rows, "ParaRel: unknown") == {"wrong@precision0.95": 0.0}
    assert values(rows, "ParaRel: known") == {"right@precision0.95": 1.0, "wrong@precision0.95": 0.0}
    assert sizes(rows, "ParaRel: known + unknown") >= {2 * n}


def test_each_statement_is_learned_in_one_held_out_wording_and_asked_in_another(data: Path) -> None:
    chosen = statements(data, 3000)
    trained = {w.replace(found.subject, "[X]") for found in training_statements(data) for w in found.wordings}
    for fact, query in zip(chosen.facts, chosen.known, strict=True):
        subject = fact.id.split(":")[1]
        assert fact.id == query.fact == query.id
        assert is_reported(fact.id)
        wordings = {text.replace(subject, "[X]") for text in (fact.question, query.question.text)}
        assert len(wordings) == 2
        assert not wordings & trained
        assert "___" in fact.question
    assert not {fact.id for fact in chosen.facts} & {query.id for query in chosen.unknown}
    assert all(query.fact is None for query in chosen.unknown)


def test_written_facts_come_back_word_for_word_or_are_counted(data: Path) -> None:
    facts = written_facts(data)
    # Ten NQ questions less the four of test_nq, ten of PopQA, three of the help desk.
    assert len(facts) == 19
    refused = {"nq-4": TOO_LONG, "nq-5": HIDDEN.replace("nq-3", "nq-6"), "popqa-test_0": TOO_LONG.replace("70", "99")}
    rows = run_job(job(data, "capacity", Behaviour(refused=refused, spelled={"nq-7": "person seven"})))
    written = values(rows, "written facts")
    assert written["memorised"] == pytest.approx(16 / 19)
    assert written["refused: its answer has N tokens, memory holds N"] == pytest.approx(2 / 19)
    assert written["refused: it would answer a question of another fact"] == pytest.approx(1 / 19)
    assert len(written) == 3
    exact = values(rows, "memorised facts")
    assert set(exact.values()) == {15 / 16}
    assert sizes(rows, "memorised facts") == {16}


def test_reasons_are_told_apart_without_numbers_names_and_advice() -> None:
    assert refusal_kind("its question has 12 words; shorten it", ()) == "its question has N words"
    assert refusal_kind("taken by faq-007 now", {"faq-007"}) == "taken by another fact now"


def test_growth_is_measured_at_four_sizes_and_held_against_its_prediction(data: Path) -> None:
    facts = growing_facts(data)
    n = len(facts)
    expected = [max(1, round(share * n)) for share in growth.SHARES]
    assert len(set(expected)) == 4
    behaviour = Behaviour()
    rows = run_job(job(data, "capacity", behaviour))
    found = [values(rows, f"growth: {size:,} facts") for size in expected]
    assert [at["addressing_recall"] for at in found] == pytest.approx(
        [1 - size / 1000 for size in expected], abs=0.5 / n
    )
    predicted = "addressing_recall predicted at a tenth"
    assert [at.get(predicted) for at in found] == [None, None, 1 - expected[0] / 100, 1 - expected[1] / 100]
    assert {at["bytes_per_fact"] for at in found} == {200.0}  # two wordings each
    assert all(at["written_per_second"] > 0 and at["recall_seconds_p50"] > 0 for at in found)
    assert all(at["memorised"] == 1.0 for at in found)
    assert [fact.paraphrases != () for fact in facts] == [True] * n


def test_growth_asks_what_the_capacity_of_a_knowledge_base_asks() -> None:
    assert growth.ASKED == ASKED_BY_CAPACITY


def test_a_limit_shrinks_every_part_of_the_capacity_suite(data: Path) -> None:
    rows = run_job(job(data, "capacity", Behaviour(subject_rule), limit=4))
    assert sizes(rows, "ParaRel: known + unknown, first 4") >= {8}
    assert values(rows, "written facts, first 4")["memorised"] == 1.0
    grown = {row.split for row in rows if row.split.startswith("growth")}
    assert "growth: 13 facts, first 4" in grown  # 4 of 3,000 of 10,000


def unclocked(rows: Sequence[Row]) -> list[tuple[object, ...]]:
    timed = ("written_per_second", "recall_seconds_p50")
    return [(row.key, row.value, row.low, row.high, row.n) for row in rows if row.measure not in timed]


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_killed_capacity_run_continues_where_it_stopped(
    data: Path, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("byheart.evaluate.recalling.BATCH", 4)
    whole = Behaviour(subject_rule)
    expected = run_job(job(data, "capacity", whole))
    (data.parent / "results" / "capacity.json").unlink()
    killed = Behaviour(subject_rule, recalls_allowed=round(share * whole.recalled))
    with pytest.raises(KeyboardInterrupt):
        run_job(job(data, "capacity", killed))
    assert (data.parent / "work/capacity/spares").is_dir()
    continued = Behaviour(subject_rule)
    assert unclocked(run_job(job(data, "capacity", continued))) == unclocked(expected)
    assert continued.recalled < whole.recalled
    # A size whose recalls were being timed is timed anew; nothing else is asked or learned twice.
    assert killed.recalled + continued.recalled <= whole.recalled + growth.TIMED
    assert sum(killed.learned) + sum(continued.learned) <= sum(whole.learned) + 1  # the fact that loads the networks
    assert not (data.parent / "work/capacity/spares").exists()


def test_rates_of_writing_and_forgetting_and_seconds_of_recall(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_rate, "WARM", 2)
    behaviour = Behaviour(refused={"nq-8": TOO_LONG})
    n = len(general_facts(data)) - 2
    rows = run_job(job(data, "write_rate", behaviour))
    writing, forgetting = values(rows, "writing"), values(rows, "forgetting")
    slowest, median, fastest = (
        writing[f"written_per_second{which}"] for which in (", slowest run", "", ", fastest run")
    )
    assert 0 < slowest <= median <= fastest
    assert writing["memorised"] == pytest.approx((n - 1) / n)
    assert forgetting["forgotten_per_second"] > 0
    assert forgetting["forget_seconds_p50"] <= forgetting["forget_seconds_p95"]
    recall = values(rows, "recall, one question at a time")
    steps = ("encode", "address", "judge", "decode")
    assert recall.keys() == {f"{name}_seconds_{p}" for name in ("recall", *steps) for p in ("p50", "p95")}
    assert recall["recall_seconds_p50"] > recall["judge_seconds_p50"] == pytest.approx(1e-6)
    assert behaviour.learned == [2, n] * 3  # each run in an empty knowledge base
    assert sizes(rows, "recall, one question at a time") == {3 * n}


def test_finished_runs_of_the_clock_are_not_repeated(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_rate, "WARM", 2)
    n = len(general_facts(data)) - 2
    killed = Behaviour(recalls_allowed=n + write_rate.RUNS + 5)
    with pytest.raises(KeyboardInterrupt):
        run_job(job(data, "write_rate", killed))
    continued = Behaviour()
    run_job(job(data, "write_rate", continued))
    assert continued.learned == [2, n] * 2


def test_a_memory_that_takes_nothing_is_named(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_rate, "WARM", 2)
    refused = {fact.id: TOO_LONG for fact in general_facts(data)}
    with pytest.raises(EvaluationError, match="memory took 0 of"):
        run_job(job(data, "write_rate", Behaviour(refused=refused)))


def test_the_cache_answers_with_the_nearest_question() -> None:
    facts = [NewFact("red apples", "a", id="1"), NewFact("green pears", "b", ("yellow pears",), id="2")]
    asked = [
        Query(str(i), Question(text), None, "g", "k") for i, text in enumerate(("apple red", "yellow pear", "pear"))
    ]
    said = cached(FakeEncoder(), facts, asked)
    assert [one.fact for one in said] == ["1", "2", "2"]
    assert said[0].score == pytest.approx(1.0)
    assert said[1].answer == "b"
    assert cached(FakeEncoder(), facts, []) == []


def test_a_cache_asked_in_pieces_says_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = [NewFact(f"where is the {animal}", animal, id=animal) for animal in ANIMALS]
    asked = [Query(animal, Question(f"the {animal}, where"), animal, animal, "k") for animal in ANIMALS]
    whole = cached(FakeEncoder(), facts, asked)
    monkeypatch.setattr("byheart.evaluate.cosine_cache.ROWS", 3)
    pieces = cached(FakeEncoder(), facts, asked)
    assert [one.fact for one in pieces] == [one.fact for one in whole]
    assert [one.score for one in pieces] == pytest.approx([one.score for one in whole])


def test_a_base_holds_the_suites_facts_and_no_others(tmp_path: Path) -> None:
    behaviour, folder = Behaviour(), tmp_path / "kb"
    facts = [NewFact("a?", "1", id="a"), NewFact("b?", "2", id="b")]
    base = behaviour.open(folder, {})
    bases.complete(base, folder, Corpus("some", (), {}, facts=facts))
    bases.complete(base, folder, Corpus("some", (), {}, facts=facts))
    assert behaviour.learned == [2, 0]
    with pytest.raises(EvaluationError, match=r"first 'b'.*pass a new folder"):
        bases.complete(base, folder, Corpus("some", (), {}, facts=facts[:1]))
    base.close()


def test_facts_that_other_code_wrote_are_learned_anew(tmp_path: Path) -> None:
    behaviour, folder = Behaviour(), tmp_path / "kb"
    corpus = Corpus("some", (), {}, facts=[NewFact("a?", "1", id="a")])
    base = behaviour.open(folder, {})
    bases.complete(base, folder, corpus)
    (folder / bases.LEARNED_MARK).write_text("code 1, weights 2\n")
    assert not bases.was_learned_alike(folder)
    bases.complete(base, folder, corpus)
    assert bases.was_learned_alike(folder)
    assert behaviour.learned == [1, 1]
    base.close()


REAL = "set BYHEART_DATA to the folder of the data sets to check what the suites ask"


@pytest.fixture
def real() -> Path:
    folder = Path(os.environ.get("BYHEART_DATA", "no-data"))
    if not (folder / "pararel").is_dir():
        pytest.skip(REAL)
    return folder


def test_real_queries_have_the_promised_numbers(real: Path) -> None:
    asked = near_miss_queries(real)
    assert (len(near_miss_facts(real)), sum(q.fact is not None for q in asked), len(asked)) == (200, 600, 1_000)
    desk = [query for query in support_queries(real) if not query.language]
    assert (len(support_facts(real)), len(desk), sum(q.fact is not None for q in desk)) == (132, 374, 296)
    assert len({query.id for query in desk}) == 374


def test_real_statements_are_enough_and_no_pattern_was_trained_on(real: Path) -> None:
    chosen = statements(real, 3_000)
    assert len(chosen.facts) == len(chosen.known) == len(chosen.unknown) == 3_000
    trained = {question_key(w) for found in training_statements(real) for w in found.wordings}
    texts = [fact.question for fact in chosen.facts] + [q.question.text for q in (*chosen.known, *chosen.unknown)]
    keys = [question_key(text) for text in texts]
    assert len(set(keys)) == 9_000
    assert not set(keys) & trained
    assert len(growing_facts(real)) == 7_505


def test_real_written_facts_are_enough_and_none_is_reported_on(real: Path) -> None:
    facts = written_facts(real)
    assert len(facts) >= 3_000
    assert not {fact.id for fact in facts} & nq_reporting_ids(real)
    assert len({question_key(fact.question) for fact in facts}) == len(facts)
