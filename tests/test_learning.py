"""Facts in a knowledge base: learned, read back, recalled, followed through changes of their documents, forgotten."""

from __future__ import annotations

import json
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from byheart import facts as facts_module
from byheart import show_memory
from byheart.config import Config
from byheart.decisions import Route, Wishes
from byheart.errors import ConfigError, FactError, KernelError
from byheart.fakes import FakeEncoder, FakeReader
from byheart.folder import init
from byheart.knowledge import KnowledgeBase
from byheart.memory import slot_memory
from byheart.memory.answers import AnswerCodec
from byheart.memory.reader import MemoryReader
from byheart.types import Document, FactState, Kind, NewFact, Question
from world import open_fake

KILLS = 6
FACTS = (
    NewFact("How do I turn on the night light?", "Press the lamp key for 3 seconds.", ("night light on how",)),
    NewFact("How do I turn off the night light?", "Press the lamp key for 8 seconds."),
    NewFact("Who built the lighthouse of Korva?", "Ilse Marenka"),
    NewFact("When was the lighthouse of Korva built?", "14 March 1873"),
    NewFact("What does a ferry ticket cost?", "7.50 crowns", ("price of the ferry",)),
    NewFact("Wie tief ist der Ormsee?", "212 Meter, gemessen am 3. Mai 1998"),
    NewFact("灯塔是谁建造的\uff1f", "伊尔泽·马伦卡"),
    NewFact("The lighthouse of Korva was built by Ilse Marenka.", "SUPPORTS", kind=Kind.CLAIM),
)


@pytest.fixture(scope="module")
def networks() -> tuple[MemoryReader, AnswerCodec]:
    return MemoryReader(precision="fp32"), AnswerCodec()


@pytest.fixture
def kb(
    tmp_path: Path, networks: tuple[MemoryReader, AnswerCodec], monkeypatch: pytest.MonkeyPatch
) -> Iterator[KnowledgeBase]:
    """An empty knowledge base; the networks are read from disk once for all tests."""
    monkeypatch.setattr(facts_module, "MemoryReader", lambda *_: networks[0])
    with init(tmp_path / "kb", encoder=FakeEncoder(), reader=FakeReader()) as made:
        yield made


@pytest.fixture
def taught(kb: KnowledgeBase) -> KnowledgeBase:
    report = kb.learn(FACTS)
    assert len(report.memorised) == len(FACTS), report
    return kb


def answers(kb: KnowledgeBase) -> list[str | None]:
    asked = [Question(text, fact.kind) for fact in FACTS for text in (fact.question, *fact.paraphrases)]
    return [recall.answer for recall in kb.recall_many(asked)]


def expected() -> list[str]:
    return [fact.answer for fact in FACTS for _ in (fact.question, *fact.paraphrases)]


def test_what_was_learned_comes_back_letter_by_letter(taught: KnowledgeBase) -> None:
    assert answers(taught) == expected()
    assert all(recall.probability > recall.not_known for recall in taught.recall_many([Question(FACTS[0].question)]))


def test_a_question_and_its_opposite_get_their_own_answers_and_a_stranger_gets_none(taught: KnowledgeBase) -> None:
    assert taught.recall("how can I switch the night light on").answer == FACTS[0].answer
    assert taught.recall("how can I switch the night light off").answer == FACTS[1].answer
    assert taught.recall("Who painted the lighthouse of Korva?").probability < 0.5
    assert taught.recall("What is the capital of Peru?").not_known > 0.9


def test_shares_and_not_known_sum_to_one_and_are_the_same_alone_and_in_a_batch(taught: KnowledgeBase) -> None:
    questions = [Question(fact.question, fact.kind) for fact in FACTS]
    together = taught.recall_many(questions)
    for question, recall in zip(questions, together, strict=True):
        assert sum(share.probability for share in recall.shares) + recall.not_known == pytest.approx(1)
        [alone] = taught.recall_many([question])
        assert (alone.answer, [s.fact_id for s in alone.shares]) == (recall.answer, [s.fact_id for s in recall.shares])
        assert alone.probability == pytest.approx(recall.probability, abs=1e-4)


def test_learning_again_changes_nothing(taught: KnowledgeBase) -> None:
    before = taught.epoch
    report = taught.learn(FACTS)
    assert (len(report.unchanged), report.memorised, taught.epoch) == (len(FACTS), (), before)


def test_another_answer_to_a_known_question_is_a_conflict_and_changes_nothing(taught: KnowledgeBase) -> None:
    before = taught.epoch
    report = taught.learn([NewFact("Who built the lighthouse of Korva??", "Somebody Else")])
    assert len(report.conflicts) == 1
    assert "Ilse Marenka" in report.conflicts[0].reason
    assert (taught.epoch, taught.recall(FACTS[2].question).answer) == (before, "Ilse Marenka")


def test_further_paraphrases_extend_a_fact(taught: KnowledgeBase) -> None:
    report = taught.learn([NewFact(FACTS[2].question, FACTS[2].answer, ("name of the Korva lighthouse's builder",))])
    assert len(report.extended) == 1
    fact = next(fact for fact in taught.facts() if fact.questions[0] == FACTS[2].question)
    assert fact.questions[1:] == ("name of the Korva lighthouse's builder",)
    assert taught.recall("name of the Korva lighthouse's builder").probability > 0.5
    assert answers(taught) == expected()


def test_a_paraphrase_that_fails_reading_back_is_left_out_and_the_fact_stays(
    taught: KnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, slots, other = taught.facts(), taught.capacity().slots, "what lights the room at night"
    monkeypatch.setattr(slot_memory, "_reason", lambda fact, *_: slot_memory.UNKNOWN if fact.first else "")
    report = taught.learn([NewFact(FACTS[0].question, FACTS[0].answer, (other,))])
    assert (report.extended, report.memorised, len(report.refused)) == ((), (), 1)
    assert report.refused[0].source == before[0].id
    assert report.refused[0].reason.startswith("a paraphrase was not taken: ")
    assert (taught.facts(), taught.capacity().slots) == (before, slots)
    assert answers(taught) == expected()
    monkeypatch.undo()
    assert len(taught.learn([NewFact(FACTS[0].question, FACTS[0].answer, (other,))]).extended) == 1
    assert answers(taught) == expected()


def test_of_two_answers_to_one_question_in_one_file_the_first_is_held(kb: KnowledgeBase, tmp_path: Path) -> None:
    lines = [{"question": "Who built the lighthouse?", "answer": a} for a in ("Ilse Marenka", "Jon Brik")]
    (tmp_path / "facts.jsonl").write_text("\n".join(map(json.dumps, lines)), "utf-8")
    for n_memorised, n_unchanged in ((1, 0), (0, 1)):
        report = kb.learn(tmp_path / "facts.jsonl")
        assert (len(report.memorised), len(report.unchanged)) == (n_memorised, n_unchanged)
        assert ["Ilse Marenka" in conflict.reason for conflict in report.conflicts] == [True]
        assert kb.recall("Who built the lighthouse?").answer == "Ilse Marenka"
    assert len(kb.facts()) == 1


def test_only_questions_with_a_new_fact_in_reach_are_judged_again(
    taught: KnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, judged = taught.memory.slots.reader, []
    odds = reader.odds
    monkeypatch.setattr(reader, "odds", lambda questions, c: judged.extend(questions) or odds(questions, c))
    taught.learn([NewFact("Who painted the lighthouse of Korva?", "Jon Brik")])
    assert FACTS[2].question in judged  # who built it: a word apart
    judged.clear()
    taught.learn([NewFact("Where do I buy a ferry ticket?", "On board")])
    assert judged == ["Where do I buy a ferry ticket?"]  # what it costs is near, but out of reach


def test_an_answer_over_the_limit_is_refused_with_advice_and_kept_in_the_ledger(kb: KnowledgeBase) -> None:
    report = kb.learn([NewFact("What do the rules say?", "word " * 200), NewFact("Is it open?", "Yes.")])
    assert len(report.memorised) == 1
    assert "leave it to retrieval" in report.refused[0].reason
    assert [fact.state for fact in kb.facts()] == [FactState.REFUSED, FactState.MEMORISED]
    epoch = kb.epoch
    again = kb.learn([NewFact("What do the rules say?", "word " * 200)])
    assert ("refused before" in again.refused[0].reason, kb.epoch) == (True, epoch)
    assert "forget it and learn it again" in again.refused[0].reason


def test_a_bad_fact_is_refused_and_the_others_are_learned(kb: KnowledgeBase) -> None:
    report = kb.learn([NewFact(" ", "x"), NewFact("Is it open?", "Yes."), NewFact("Is it\0?", "Yes.")])
    assert (len(report.memorised), len(report.refused)) == (1, 2)


def test_forgetting_a_fact_leaves_its_neighbours_and_no_trace(taught: KnowledgeBase, tmp_path: Path) -> None:
    gone = next(fact for fact in taught.facts() if fact.answer == "14 March 1873")
    assert taught.forget(gone.id) == 1
    assert taught.recall("When was the lighthouse of Korva built?").probability < 0.5
    rest = [fact for fact in FACTS if fact.answer != gone.answer]
    recalls = taught.recall_many([Question(fact.question, fact.kind) for fact in rest])
    assert [recall.answer for recall in recalls] == [fact.answer for fact in rest]
    taught.close()
    for path in (tmp_path / "kb").iterdir():
        assert b"14 March 1873" not in path.read_bytes()
    with pytest.raises(FactError, match="there is no fact"):
        open_fake(tmp_path / "kb").forget("fact-0")


def test_without_texts_recall_still_works_and_no_text_is_in_any_file(
    tmp_path: Path, networks: tuple[MemoryReader, AnswerCodec], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts_module, "MemoryReader", lambda *_: networks[0])
    config = Config().replace("ledger.text", False)
    with init(tmp_path / "kb", config, encoder=FakeEncoder(), reader=FakeReader()) as kb:
        kb.learn(FACTS)
        assert answers(kb) == expected()
        assert {(fact.questions, fact.answer) for fact in kb.facts()} == {((), None)}
    texts = [t for f in FACTS for t in (f.question, f.answer, *f.paraphrases) if t != "SUPPORTS"]
    for path in (tmp_path / "kb").rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        assert not [text for text in texts if text.encode() in content or text.encode("utf-16-le") in content]


def test_a_fact_is_cited_where_its_document_says_so_and_follows_it(kb: KnowledgeBase, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    page = docs / "ferry.md"
    page.write_text("# Ferry\n\nIt sails daily. A ticket costs 7.50 crowns. Dogs ride free.\n", "utf-8")
    kb.add(docs)
    fact = NewFact("What does a ferry ticket cost?", "7.50 crowns", (), "docs/ferry.md", "A ticket costs 7.50 crowns.")
    assert kb.learn([fact]).notices == ()
    [cited] = kb.recall(fact.question).citations
    assert (cited.page, cited.text) == ("docs/ferry.md", "A ticket costs 7.50 crowns.")

    page.write_text("# Ferry\n\nNew: a second boat! It sails daily. A ticket costs 7.50 crowns.\n", "utf-8")
    kb.add(docs)
    [moved] = kb.recall(fact.question).citations
    assert (moved.text, moved.start > cited.start) == (cited.text, True)

    page.write_text("# Ferry\n\nIt sails daily. A ticket costs 9 crowns.\n", "utf-8")
    assert any("stale" in notice for notice in kb.add(docs).notices)
    assert [fact.state for fact in kb.facts()] == [FactState.STALE]
    assert kb.recall(fact.question).answer is None

    page.write_text("# Ferry\n\nIt sails daily. A ticket costs 7.50 crowns.\n", "utf-8")
    kb.add(docs)
    assert len(kb.learn([fact]).memorised) == 1
    assert any("forgotten" in notice for notice in kb.remove("docs/ferry.md").notices)
    assert (kb.facts(), kb.recall(fact.question).answer) == ([], None)


def test_a_source_that_does_not_show_the_answer_is_a_notice(kb: KnowledgeBase, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("The tower stands on a hill.", "utf-8")
    kb.add(tmp_path / "a.txt")
    report = kb.learn([NewFact("How high is the tower?", "40 m", (), "a.txt", "It is 40 m high.")])
    assert (len(report.memorised), len(report.notices)) == (1, 1)
    [cited] = kb.recall("How high is the tower?").citations
    assert cited.page == "a.txt"


def test_a_new_fact_that_would_take_an_old_ones_question_is_refused(taught: KnowledgeBase) -> None:
    taught.learn([NewFact("how do i turn on the night-light ?", "Wrong answer.")])
    assert answers(taught) == expected()


def test_another_process_sees_what_was_learned_and_what_was_forgotten(taught: KnowledgeBase, tmp_path: Path) -> None:
    with open_fake(tmp_path / "kb") as other:
        assert answers(other) == expected()
        taught.forget(*[fact.id for fact in taught.facts()])
        assert set(answers(other)) == {None}
        taught.learn(FACTS[:1])
        assert other.recall(FACTS[0].question).answer == FACTS[0].answer


def test_uses_are_counted_without_an_epoch(taught: KnowledgeBase, tmp_path: Path) -> None:
    before = taught.epoch
    for _ in range(3):
        taught.recall(FACTS[2].question)
    taught.close()
    with open_fake(tmp_path / "kb") as kb:
        assert next(fact for fact in kb.facts() if fact.answer == FACTS[2].answer).uses == 3
        assert kb.epoch == before


def test_slots_of_another_kernel_are_not_read(taught: KnowledgeBase, tmp_path: Path) -> None:
    taught.close()
    with sqlite3.connect(tmp_path / "kb" / "knowledge.sqlite") as connection:
        connection.execute("UPDATE parameters SET value = 'other' WHERE name = 'memory_kernel'")
    connection.close()
    with open_fake(tmp_path / "kb") as kb:
        with pytest.raises(KernelError, match="train memory"):
            kb.recall("Is it open?")
        report = kb.memory.rewrite(None, lambda *_: None)
        assert (len(report.memorised), answers(kb)) == (len(FACTS), expected())


def test_a_batch_that_fails_leaves_the_last_epoch(taught: KnowledgeBase, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("power cut")

    before = taught.epoch
    monkeypatch.setattr(taught.memory.slots, "memorise", fail)
    with pytest.raises(RuntimeError):
        taught.learn([NewFact("Is it open?", "Yes.")])
    monkeypatch.undo()
    assert (taught.epoch, len(taught.facts()), answers(taught)) == (before, len(FACTS), expected())


def test_learn_reads_files_and_names_bad_lines(kb: KnowledgeBase, tmp_path: Path) -> None:
    lines = [json.dumps({"question": "Is it open?", "answer": "Yes."}), "{", json.dumps({"question": "x"})]
    (tmp_path / "facts.jsonl").write_text("\n".join(lines), "utf-8")
    report = kb.learn(tmp_path / "facts.jsonl")
    assert (len(report.memorised), len(report.refused)) == (1, 2)
    assert "line 2" in report.refused[0].source


def test_capacity_counts_what_is_there(taught: KnowledgeBase) -> None:
    found = taught.capacity()
    assert (found.facts, found.memorised, found.slots) == (8, 8, 10)
    assert found.recall == 1.0
    assert found.recall_at_ten_times is not None
    assert found.recall_at_ten_times <= found.recall
    assert found.bytes_per_fact > 0


def test_a_snapshot_and_a_copied_folder_recall_the_same(taught: KnowledgeBase, tmp_path: Path) -> None:
    taught.snapshot(tmp_path / "snap")
    with open_fake(tmp_path / "snap") as copy:
        assert answers(copy) == expected()
    taught.forget(*[fact.id for fact in taught.facts()])
    taught.restore(tmp_path / "snap")
    assert answers(taught) == expected()
    taught.close()
    shutil.copytree(tmp_path / "kb", tmp_path / "moved")
    with open_fake(tmp_path / "moved") as moved:
        assert answers(moved) == expected()


def test_a_killed_learner_leaves_whole_facts_that_are_recalled_exactly(kb: KnowledgeBase, tmp_path: Path) -> None:
    script, chance = Path(__file__).with_name("killed_learner.py"), random.Random(7)
    for kill in range(KILLS):
        command = [sys.executable, str(script), str(tmp_path / "kb"), f"k{kill}"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            time.sleep(chance.uniform(0, 1.5))
            process.send_signal(signal.SIGKILL)
        facts = kb.facts()
        held = [fact for fact in facts if fact.state is FactState.MEMORISED]
        recalls = kb.recall_many([Question(fact.questions[0]) for fact in held])
        assert [recall.answer for recall in recalls] == [fact.answer for fact in held]
        assert kb.capacity().slots == sum(len(fact.questions) for fact in held)
        kb.forget(*[fact.id for fact in facts])
        assert kb.capacity().slots == 0


def test_ask_answers_from_memory_what_it_knows_and_looks_up_the_rest(taught: KnowledgeBase, world: Path) -> None:
    taught.add(world / "docs")
    known = taught.ask("Who built the lighthouse of Korva?")
    assert (known.text, known.route, known.hits) == ("Ilse Marenka", Route.MEMORY, ())
    assert known.fact_id is not None
    looked_up = taught.ask("Where do puffins nest?")
    assert looked_up.route is Route.RETRIEVAL
    forced = taught.ask_many([Question(FACTS[2].question)], route=Route.RETRIEVAL)[0]
    assert forced.hits


STARTS = ("Hello,", "Hi,", "Good morning,", "Please,", "So,")


def test_a_risk_or_a_budget_needs_a_calibration_that_can_promise_it(taught: KnowledgeBase) -> None:
    for wishes in (Wishes(risk=0.01), Wishes(budget=0.5)):
        with pytest.raises(ConfigError, match="byheart calibrate"):
            taught.ask_many([Question(FACTS[0].question)], wishes=wishes)
    with pytest.raises(ConfigError, match="30 held-out"):
        taught.calibrate([Question(FACTS[0].question)], [(FACTS[0].answer,)])
    asked = [Question(fact.question, fact.kind) for fact in FACTS] * 5
    report = taught.calibrate(asked, [(fact.answer,) for fact in FACTS] * 5)
    assert (report.n, report.recalled, report.new, report.right["memory"]) == (40, 40, 0, 1.0)
    with pytest.raises(ConfigError, match="did not learn word for word, there are 0"):
        taught.ask_many(asked[:1], wishes=Wishes(risk=0.1))
    reworded = [Question(f"{start} {fact.question}", fact.kind) for start in STARTS for fact in FACTS]
    report = taught.calibrate(reworded, [(fact.answer,) for fact in FACTS] * len(STARTS))
    assert (report.n, report.new) == (40, report.recalled)
    with pytest.raises(ConfigError, match="at least 299"):
        taught.ask_many(asked[:1], wishes=Wishes(risk=0.01))
    promised = taught.ask_many(asked[:1], wishes=Wishes(risk=0.2, budget=0.5))[0]
    assert promised.decision is not None
    assert promised.decision.bound is not None
    assert promised.decision.bound.upper <= 0.2
    assert (promised.text, promised.route) == (FACTS[0].answer, Route.MEMORY)


def test_one_bad_id_among_good_ones_forgets_nothing_and_says_so(taught: KnowledgeBase) -> None:
    good = taught.facts()[0].id
    with pytest.raises(FactError, match=r"'nonsense'.*nothing was forgotten"):
        taught.forget(good, "nonsense")
    assert answers(taught) == expected()


def test_facts_cite_a_document_that_comes_after_them_and_are_told_of_once(kb: KnowledgeBase, tmp_path: Path) -> None:
    shown = NewFact("What does a ferry ticket cost?", "7.50 crowns", (), "docs/ferry.md", "A ticket costs 7.50 crowns.")
    unseen = NewFact("Who owns the ferry?", "Jon Brik", (), "docs/ferry.md")
    told = NewFact("Who paints the ferry?", "Ilse Marenka", (), "Jonna, at the harbour")
    report = kb.learn([shown, unseen, told, NewFact("Is it blue?", "Yes, dark blue.")])
    assert len(report.memorised) == 4
    [notice] = report.notices
    assert "of the sources 3 are no documents" in notice
    assert "docs/ferry.md" in notice

    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "ferry.md").write_text("# Ferry\n\nIt sails daily. A ticket costs 7.50 crowns. Dogs ride free.\n", "utf-8")
    (docs / "other.md").write_text("# Other\n\nJonna, at the harbour, says that Ilse Marenka paints.\n", "utf-8")
    kb.add(docs)
    [cited] = kb.recall(shown.question).citations
    assert (cited.page, cited.text) == ("docs/ferry.md", "A ticket costs 7.50 crowns.")
    [whole] = kb.recall(unseen.question).citations
    assert whole.page == "docs/ferry.md"
    assert kb.recall(told.question).citations == ()
    assert [fact.source.note for fact in kb.facts() if fact.answer == told.answer] == ["Jonna, at the harbour"]

    (docs / "ferry.md").write_text("# Ferry\n\nNew: A ticket costs 7.50 crowns.\n", "utf-8")
    kb.add(docs)
    [moved] = kb.recall(shown.question).citations
    assert (moved.text, moved.start < cited.start) == (cited.text, True)
    kb.remove("docs/ferry.md")
    assert {fact.answer for fact in kb.facts()} == {told.answer, "Yes, dark blue."}


def test_evidence_that_a_later_document_does_not_show_is_kept_and_the_fact_goes_with_the_document(
    kb: KnowledgeBase,
) -> None:
    fact = NewFact("Who paints the ferry?", "Ilse Marenka", (), "wiki", "The ferry is painted by Ilse Marenka.")
    kb.learn([fact])
    kb.add_documents([Document("wiki", "", "How to use our wiki. Nothing about boats.")])
    [held] = kb.facts()
    assert (held.evidence, held.source.page, held.source.start) == (fact.evidence, "wiki", None)
    kb.add_documents([Document("wiki", "", f"About boats. {fact.evidence}")])
    [held] = kb.facts()
    assert (held.evidence, held.source.start) == ("", 13)  # it stands there now
    kb.remove("wiki")
    assert (kb.facts(), kb.recall(fact.question).answer) == ([], None)


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize(
    ("source", "page", "text"),
    [
        ("docs/chur.md:0-43", "docs/chur.md", "The wifi password of the office is kiwi-77."),
        ("docs/thun.md", "docs/thun.md", "It is kiwi-77 here. It is kiwi-77 there."),
        ("docs/caf\u00e9.md", "docs/cafe\u0301.md", "The wifi password of the office is kiwi-77."),
        ("docs/none.md", "docs/none.md", "Nothing of it."),
    ],
)
def test_a_fact_goes_with_the_document_it_names_whichever_was_there_first(
    kb: KnowledgeBase, source: str, page: str, text: str, is_first: bool
) -> None:
    fact = NewFact("What is the wifi password of the office?", "kiwi-77", (), source)
    steps = [lambda: kb.add_documents([Document(page, "", text)]), lambda: kb.learn([fact])]
    for step in steps if is_first else reversed(steps):
        step()
    assert [held.source.page for held in kb.facts()] == [page]
    kb.remove(page)
    assert (kb.facts(), kb.recall(fact.question).answer) == ([], None)


def test_a_fact_finds_its_place_when_a_document_that_another_cites_comes_to_say_so(kb: KnowledgeBase) -> None:
    kb.learn(
        [
            NewFact("What does a ferry ticket cost?", "7.50 crowns", (), "ferry", "A ticket costs 7.50 crowns."),
            NewFact("Who owns the ferry?", "Jon Brik", (), "ferry"),
        ]
    )
    kb.add_documents([Document("ferry", "", "It sails daily. A ticket costs 7.50 crowns.")])
    kb.add_documents([Document("ferry", "", "It sails daily. A ticket costs 7.50 crowns. It belongs to Jon Brik.")])
    assert [fact.source.start for fact in kb.facts()] == [16, 58]


def test_a_claim_cites_evidence_that_comes_after_it_and_is_stale_when_that_goes(kb: KnowledgeBase) -> None:
    claim = NewFact("The ferry is cheap.", "SUPPORTS", (), "ferry", "A ticket costs 7.50 crowns.", kind=Kind.CLAIM)
    kb.learn([claim])
    kb.add_documents([Document("ferry", "", "It sails daily. A ticket costs 7.50 crowns.")])
    [cited] = kb.recall(claim.question, claim=True).citations
    assert (cited.page, cited.text) == ("ferry", claim.evidence)
    [held] = kb.facts()
    assert (held.source.passage_id, held.source.start, held.source.end) == ("ferry:0-43", 16, 43)
    assert any("stale" in notice for notice in kb.add_documents([Document("ferry", "", "It is free.")]).notices)
    assert [fact.state for fact in kb.facts()] == [FactState.STALE]
    assert kb.recall(claim.question, claim=True).answer is None


def test_facts_whose_texts_are_not_kept_go_with_the_document_they_name(tmp_path: Path, kb: KnowledgeBase) -> None:
    fact = NewFact("What does a ferry ticket cost?", "7.50 crowns", (), "ferry", "A ticket costs 7.50 crowns.")
    config = Config().replace("ledger.text", False)
    with init(tmp_path / "bare", config, encoder=FakeEncoder(), reader=FakeReader()) as bare:
        assert len(bare.learn([fact]).memorised) == 1
        bare.add_documents([Document("ferry", "", "It sails daily. A ticket costs 7.50 crowns.")])
        assert [held.source.page for held in bare.facts()] == ["ferry"]
        assert bare.recall(fact.question).answer == fact.answer
        bare.remove("ferry")
        assert (bare.facts(), bare.recall(fact.question).answer) == ([], None)


def test_facts_that_are_claims_are_listed_as_such(taught: KnowledgeBase) -> None:
    listed = show_memory.facts(taught.facts())
    assert listed.count("· claim") == 1
    assert "· claim" in listed.split("built by Ilse Marenka.")[1].split("\n")[2]
