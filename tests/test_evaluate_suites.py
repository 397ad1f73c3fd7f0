"""Suites over a tiny invented world, in the data sets' own file formats."""

import gzip
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from byheart.config import Config
from byheart.corpus.collections import fever_documents, nq_documents
from byheart.corpus.splits import FeverSplit, fever_split, is_nq_training, nq_reporting_ids
from byheart.errors import EvaluationError
from byheart.evaluate import bases
from byheart.evaluate.bases import Base
from byheart.evaluate.datasets import fever_tasks, fever_training_tasks, nq_tasks, support_tasks
from byheart.evaluate.rows import Row, read
from byheart.evaluate.session import Session, ask, clock
from byheart.evaluate.suites import SUITES, Job, run_job
from byheart.fakes import FakeEncoder, FakeReader
from byheart.folder import init
from byheart.interfaces import Reading
from byheart.knowledge import KnowledgeBase
from byheart.store.database import FILE
from byheart.types import Answer, Draft, Question, Route
from fake_memory import Behaviour

ANIMALS = ("otter", "badger", "heron", "weasel", "kestrel", "salmon", "beaver", "lynx", "marten", "osprey")
PLACES = ("Avon", "Brent", "Colne", "Derwent", "Exe", "Forth", "Greta", "Humber", "Irwell", "Kennet")
REAL = "set BYHEART_DATA to the folder of the data sets to check the splits' sizes"


def write(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


def write_nq(data: Path) -> None:
    rows = [
        {
            "question": f"where was the {animal} seen",
            "answers": [f"the river {place}"],
            # Two passages under one title: the page is right, the passage is not.
            "ctxs": [
                {"title": "Sightings" if n < 2 else animal, "text": f"The {animal} was seen at the river {place}."}
            ],
        }
        for n, (animal, place) in enumerate(zip(ANIMALS, PLACES, strict=True))
    ]
    write(data / "nq_open/nq-open-oracle.jsonl.gz", rows)
    distractor = {"title": "Rivers", "text": "All rivers flow to the sea.", "src": ["invented"]}
    write(data / "wiki_distractors/part0.jsonl.gz", [distractor])
    write(data / "question_pairs/test_nq.jsonl", [{"id": "nq-0", "question": rows[0]["question"]}])


def write_fever(data: Path) -> None:
    def sentence(n: int) -> str:
        return f"{ANIMALS[n]} -LRB- an animal -RRB- lives near {PLACES[n]} ."

    def claim(n: int) -> str:
        return f"{ANIMALS[n]} animal lives near {PLACES[n] if n % 2 else 'nowhere'}"

    verdicts = ["SUPPORTS" if n % 2 else "REFUTES" for n in range(10)]
    dev = [
        {
            "id": n,
            "claim": claim(n),
            "label": verdicts[n],
            "gold_pages": [ANIMALS[n]],
            "evidence": [{"title": ANIMALS[n], "page": ANIMALS[n], "sentence_id": 0, "text": sentence(n)}],
        }
        for n in range(8)
    ]
    test = [{"claim": claim(n), "label": verdicts[n], "evidence": [sentence(n)]} for n in (8, 9)]
    write(data / "fever/dev_with_titles_derived.jsonl.gz", dev)
    write(data / "fever/feverlite_test.jsonl.gz", test)


def write_support(data: Path) -> None:
    articles = [
        {"article": f"help/{name}", "lang": lang, "title": name, "body_markdown": f"# {name}\n\n{body}\n"}
        for name, body in (("phone", "Change your phone number in settings."), ("mail", "Add a mail address."))
        for lang in ("en", "fr")
    ]
    write(data / "logingov_help/help_articles.jsonl.gz", articles)
    faq = [
        {
            "id": "faq-1",
            "question": "How do I change my phone?",
            "answer": "In settings",
            "article": "help/phone",
            "evidence": "settings",
        }
    ]
    write(data / "support/support_faq.jsonl", faq)
    queries = [
        {"id": "q-1", "fact": "faq-1", "query": "change phone number", "style": "plain"},
        {"id": "q-2", "fact": "faq-1", "query": "phone number pls", "style": "terse"},
        {"id": "q-3", "fact": None, "near": "faq-1", "query": "delete phone", "kind": "object", "answer_fact": None},
        {"id": "q-4", "fact": None, "near": None, "query": "weather", "kind": "out_of_scope"},
        {"id": "q-5", "fact": None, "article": "help/mail", "answer": "x", "query": "mail", "kind": "retrieval_only"},
        {"id": "q-6", "fact": "faq-1", "query": "número de phone", "lang": "es"},
    ]
    write(data / "support/support_queries.jsonl", queries)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("byheart.evaluate.memory_queries.is_support_training", lambda _: False)
    folder = tmp_path / "data"
    write_nq(folder)
    write_fever(folder)
    write_support(folder)
    return folder


def open_fake(folder: Path, changed: Mapping[str, object]) -> KnowledgeBase:
    if (folder / FILE).is_file():
        return KnowledgeBase(folder, encoder=FakeEncoder(), reader=FakeReader())
    config = Config()
    for key, value in changed.items():
        config = config.replace(key, value)
    init(folder, config, encoder=FakeEncoder()).close()
    return KnowledgeBase(folder, encoder=FakeEncoder(), reader=FakeReader())


def job(data: Path, suite: str, limit: int | None = None) -> Job:
    root = data.parent
    return Job(suite, data, None, root / "results", limit, seed=5, work=root / "work", open_base=Behaviour().open)


def values(rows: Sequence[Row], split: str, system: str) -> dict[str, float]:
    return {row.measure: row.value for row in rows if (row.split, row.system) == (split, system)}


def test_the_nq_suite_finds_answers_and_counts_in_a_tiny_world(data: Path) -> None:
    rows = run_job(job(data, "nq"))
    recall = {name: values(rows, "all", name)["recall@5"] for name in ("bm25", "dense", "hybrid")}
    assert recall["bm25"] == recall["hybrid"] == 1.0
    retrieving, closed = values(rows, "reporting", "always-retrieve"), values(rows, "reporting", "closed-book")
    assert retrieving["coverage"] == retrieving["retrieval_calls"] == retrieving["reader_calls"] == 1.0
    assert closed["coverage"] == closed["retrieval_calls"] == 0.0
    assert "answer_precision" not in closed
    assert retrieving["f1"] > closed["f1"] == 0.0
    assert retrieving["Rprec"] == 1.0
    assert 0 < retrieving["seconds_p50"] <= retrieving["seconds_p95"]
    assert retrieving["retrieve_seconds_p50"] < retrieving["seconds_p50"]
    assert {"em", "strict_em", "KILT-em", "KILT-f1", "ece", "answer_precision", "prompt_tokens"} <= retrieving.keys()
    assert {"recall@1", "recall@20", "answer_recall@1", "recall@5 above bm25"} <= values(rows, "all", "hybrid").keys()


def test_rows_are_written_with_n_seed_and_a_command_without_a_path(data: Path) -> None:
    rows = run_job(job(data, "nq"))
    assert read(data.parent / "results" / "nq.json") == rows
    assert {row.seed for row in rows} == {5}
    assert {row.command for row in rows} == {"byheart evaluate nq --data DIR --seed 5"}
    assert {row.n for row in rows if row.split == "all"} == {10}
    assert all(row.low is not None and row.high is not None for row in rows)


def test_a_run_cut_short_by_the_limit_does_not_replace_the_whole(data: Path) -> None:
    whole = run_job(job(data, "support"))
    short = run_job(job(data, "support", limit=1))
    assert {row.split for row in short} >= {"facts, first 1", "plain, first 1"}
    assert {row.n for row in short if row.system == "hybrid"} == {1}
    assert {row.command for row in short} == {"byheart evaluate support --data DIR --limit 1 --seed 5"}
    assert read(data.parent / "results" / "support.json") == whole + short


def test_the_fever_suite_scores_verdicts_on_dev_and_on_the_evaluation_split(data: Path) -> None:
    rows = run_job(job(data, "fever"))
    n_evaluation = sum(fever_split(str(n)) is FeverSplit.EVALUATION for n in range(8))
    assert 0 < n_evaluation < 8
    sizes = {(row.split, row.n) for row in rows if row.measure == "accuracy"}
    assert sizes == {("dev", 8), ("evaluation", n_evaluation)}
    assert values(rows, "dev", "always-retrieve")["accuracy"] == 1.0
    assert values(rows, "dev", "closed-book")["accuracy"] == 0.0
    assert values(rows, "dev", "always-retrieve")["accuracy above closed-book"] == 1.0
    assert values(rows, "dev", "bm25")["recall@5"] == 1.0


def test_the_support_suite_reports_each_style_and_language_by_article(data: Path) -> None:
    rows = run_job(job(data, "support"))
    searched = {row.split for row in rows if row.system == "hybrid"}
    assert searched == {"facts", "plain", "terse", "retrieval_only", "languages", "language es"}
    assert values(rows, "facts", "bm25")["recall@1"] == values(rows, "retrieval_only", "bm25")["recall@1"] == 1.0
    assert {row.n for row in rows if row.split == "facts"} == {2}


def test_near_misses_and_out_of_scope_queries_are_not_counted_as_retrieval(data: Path) -> None:
    asked = {task.id for tasks in support_tasks(data).values() for task in tasks}
    assert asked == {"q-1", "q-2", "q-5", "q-6"}


def test_passages_under_one_title_are_told_apart_in_recall_and_are_one_page_for_kilt(data: Path) -> None:
    first, second = nq_tasks(data, nq_documents(data))[:2]
    assert (first.sources, second.sources) == (frozenset({"Sightings"}), frozenset({"Sightings#2"}))
    assert first.gold.evidence == second.gold.evidence == (frozenset({"Sightings"}),)


def test_claims_know_their_sentences_as_documents_and_brackets_are_readable(data: Path) -> None:
    documents = {document.page: document for document in fever_documents(data)}
    task = fever_tasks(data, list(documents.values()))[1]
    (page,) = task.sources
    assert documents[page].text == "badger ( an animal ) lives near Brent ."
    assert documents[page].title == ""
    assert task.gold.answers == ("SUPPORTS",)
    assert all(task.sources for task in fever_training_tasks(data, list(documents.values())))


class BreakingReader(FakeReader):
    """A reader that fails when it is asked for more than a number of questions."""

    def __init__(self, n_allowed: int) -> None:
        self.n_allowed = n_allowed
        self.n_asked = 0

    def read(self, readings: Sequence[Reading]) -> list[Draft]:
        self.n_asked += len(readings)
        if self.n_asked > self.n_allowed:
            raise KeyboardInterrupt
        return super().read(readings)


def session_over(kb: Base, data: Path) -> Session:
    return Session("nq", data, kb, bases.identity(kb, data.parent / "kb"), data.parent / "finished", seed=5)


def test_a_killed_run_continues_where_it_stopped(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("byheart.evaluate.session.BATCH", 3)
    folder, corpus = data.parent / "kb", SUITES["nq"].corpus(data)
    init(folder, Config(), encoder=FakeEncoder()).close()
    tasks = nq_tasks(data, corpus.documents)
    with KnowledgeBase(folder, encoder=FakeEncoder(), reader=BreakingReader(7)) as kb:
        bases.complete(kb, folder, corpus)
        with pytest.raises(KeyboardInterrupt):
            ask(session_over(kb, data), "always-retrieve", tasks)
    reader = BreakingReader(100)
    with KnowledgeBase(folder, encoder=FakeEncoder(), reader=reader) as kb:
        bases.complete(kb, folder, corpus)
        continued = ask(session_over(kb, data), "always-retrieve", tasks)
        assert reader.n_asked == 4  # two batches of three were finished
        assert [outcome.text for outcome in continued] == [a.text for a in kb.ask_many([t.question for t in tasks])]
        n_before = reader.n_asked
        ask(session_over(kb, data), "always-retrieve", tasks)
        assert reader.n_asked == n_before


def test_a_changed_knowledge_base_makes_old_outputs_void(data: Path) -> None:
    folder, corpus = data.parent / "kb", SUITES["nq"].corpus(data)
    with open_fake(folder, corpus.settings) as kb:
        bases.complete(kb, folder, corpus)
        before = bases.identity(kb, folder)
        bases.complete(kb, folder, corpus)
        assert bases.identity(kb, folder) == before  # nothing to add, nothing to tune: the same epoch
        kb.remove("Rivers")
        assert bases.identity(kb, folder) != before


def test_a_finished_run_is_measured_anew_and_a_second_one_agrees(data: Path) -> None:
    first = run_job(job(data, "fever"))
    assert not (data.parent / "work/fever/finished").exists()
    second = run_job(job(data, "fever"))
    timed = ("seconds_p50", "seconds_p95", "retrieve_seconds_p50", "retrieve_seconds_p95")
    figures = [[(r.key, r.value, r.low, r.high) for r in rows if r.measure not in timed] for rows in (first, second)]
    assert figures[0] == figures[1]


def test_the_fusion_weight_is_tuned_once_and_on_training_questions_only(data: Path) -> None:
    corpus = SUITES["nq"].corpus(data)
    questions, passages = corpus.tuning
    tasks = nq_tasks(data, corpus.documents)
    training = [task.question for task in tasks if is_nq_training(task.id, data)]
    assert list(questions) == training
    assert len(training) == len(passages) > 0
    assert tasks[0].question not in training  # test_nq is for reporting, whatever its hash says
    run_job(job(data, "nq"))
    with open_fake(data.parent / "work/nq/kb", {}) as kb:
        epoch = kb.epoch
    run_job(job(data, "nq"))
    with open_fake(data.parent / "work/nq/kb", {}) as kb:
        assert kb.epoch == epoch


def test_documents_that_another_origin_owns_are_named(data: Path) -> None:
    folder, corpus = data.parent / "kb", SUITES["nq"].corpus(data)
    with open_fake(folder, corpus.settings) as kb:
        kb.add_documents(corpus.documents[:1], origin="someone else")
        with pytest.raises(EvaluationError, match="pass a new folder"):
            bases.complete(kb, folder, corpus)


def test_progress_is_reported_and_nothing_is_printed(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[tuple[int, int, str]] = []
    run_job(job(data, "nq"), lambda done, total, what: seen.append((done, total, what)))
    assert {"nq: bm25", "nq: hybrid", "nq: always-retrieve", "questions timed"} <= {what for *_, what in seen}
    assert all(0 < done <= total for done, total, _ in seen)
    assert capsys.readouterr() == ("", "")


def test_an_unknown_suite_a_limit_below_one_and_missing_data_are_named(data: Path) -> None:
    with pytest.raises(EvaluationError, match="nq, fever, "):
        run_job(job(data, "nope"))
    with pytest.raises(EvaluationError, match="1 or more"):
        run_job(job(data, "nq", limit=0))
    with pytest.raises(EvaluationError, match="--data"):
        run_job(job(data.parent / "elsewhere" / "data", "nq"))


class CountingSystem:
    """Answers nothing; notes how many questions it was asked at once."""

    config, epoch = Config(), 1

    def __init__(self) -> None:
        self.batches: list[int] = []

    def ask_many(
        self, questions: Sequence[Question], *, closed_book: bool = False, route: Route | None = None
    ) -> list[Answer]:
        self.batches.append(len(questions))
        return [Answer(question, None, Route.ABSTAIN) for question in questions]


def test_seconds_are_measured_on_single_questions_after_a_warm_up(data: Path) -> None:
    system = CountingSystem()
    tasks = nq_tasks(data, nq_documents(data))
    session = Session("nq", data, system, {}, data.parent, seed=5)  # type: ignore[arg-type]
    timings = clock(session, tasks)
    assert len(timings) == len(tasks) == 10
    assert system.batches == [1] * 15
    assert all(timing.retrieve is None for timing in timings)


@pytest.fixture
def real() -> Path:
    folder = Path(os.environ.get("BYHEART_DATA", "no-data"))
    if not (folder / "nq_open").is_dir():
        pytest.skip(REAL)
    return folder


def test_nq_is_split_into_training_and_reporting_without_test_questions_in_training(real: Path) -> None:
    ids = [f"nq-{line}" for line in range(2_655)]
    training = {key for key in ids if is_nq_training(key, real)}
    held_out = nq_reporting_ids(real)
    assert len(held_out) == 200
    assert held_out <= set(ids)
    assert not training & held_out
    assert len(training) == 1_237


def test_fever_dev_is_split_by_hash_and_shares_no_claim_with_the_training_claims(real: Path) -> None:
    documents = fever_documents(real)
    tasks, training = fever_tasks(real, documents), fever_training_tasks(real, documents)
    assert (len(documents), len(tasks), len(training)) == (7_100, 6_666, 6_666)
    sizes = {split: sum(fever_split(task.id) is split for task in tasks) for split in FeverSplit}
    assert sizes == {FeverSplit.MEMORY: 3_351, FeverSplit.CALIBRATION: 617, FeverSplit.EVALUATION: 2_698}
    assert not {task.question.text for task in tasks} & {task.question.text for task in training}
    assert all(task.sources for task in tasks)


def test_every_nq_question_has_its_gold_passage_in_the_corpus(real: Path) -> None:
    documents = nq_documents(real)
    tasks = nq_tasks(real, documents)
    assert (len(documents), len(tasks)) == (33_709, 2_655)
    assert len({page for task in tasks for page in task.sources}) == 2_600
    assert len({document.page for document in documents}) == 33_709


def test_support_has_the_promised_numbers_of_queries(real: Path) -> None:
    sizes = {name: len(tasks) for name, tasks in support_tasks(real).items()}
    assert (sizes["facts"], sizes["retrieval_only"], sizes["languages"]) == (396, 40, 30)
    assert sum(sizes[style] for style in ("plain", "terse", "typo", "long", "frustrated")) == 396
