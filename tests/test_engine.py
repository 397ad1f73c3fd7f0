"""The order of the steps, with the shipped fakes of every part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from byheart import facts as facts_module
from byheart import show
from byheart.decisions import Chance, Decision
from byheart.engine import Engine
from byheart.errors import KernelError
from byheart.fakes import FakeEncoder, FakeMemory, FakeReader, FakeRetriever, FakeRouter
from byheart.interfaces import Floats, Reading
from byheart.knowledge import KnowledgeBase
from byheart.types import (
    Answer,
    Citation,
    Draft,
    Fact,
    FactState,
    Kind,
    NewFact,
    Passage,
    Question,
    Recall,
    Route,
    Source,
    passage_id,
)
from world import open_fake

TEXTS = {
    "tower": "The tower of Tarn was completed in 1889.",
    "lake": "Lake Orm is 212 metres deep.",
    "tower-2": "The tower of Tarn stands by the harbour.",
}
PASSAGES = [Passage(passage_id(p, 0, len(t)), p, p.title(), (), t, 0, len(t)) for p, t in TEXTS.items()]


class CountingReader(FakeReader):
    """Remembers how many readings each call was given."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    def read(self, readings: Sequence[Reading]) -> list[Draft]:
        self.calls.append(len(readings))
        return super().read(readings)


class Epochs:
    """Counts how often an epoch was held, and whether it is held now."""

    def __init__(self) -> None:
        self.number, self.is_held = 7, False

    @contextmanager
    def hold(self) -> Iterator[int]:
        self.is_held = True
        yield self.number
        self.is_held = False


def engine(reader: FakeReader, k: int = 3, n_read: int = 2, epochs: Epochs | None = None) -> Engine:
    retriever = FakeRetriever(PASSAGES)
    return Engine(FakeEncoder(), retriever, retriever, reader, k, n_read, 1, (epochs or Epochs()).hold)


def asked(*texts: str) -> list[Question]:
    return [Question.parse(text) for text in texts]


def test_an_answer_carries_its_hits_what_was_read_its_epoch_and_the_seconds_of_each_step() -> None:
    answer = engine(FakeReader(), k=2, n_read=1).answer(Question.parse("When was the tower of Tarn completed?"))
    assert (answer.text, answer.route, answer.epoch) == (TEXTS["tower"], Route.RETRIEVAL, 7)
    assert [hit.passage_id for hit in answer.hits] == [PASSAGES[0].id, PASSAGES[2].id]
    assert answer.used == (PASSAGES[0].id,)
    assert [step.name for step in answer.seconds] == ["encode", "retrieve", "read"]
    assert answer.total_seconds == pytest.approx(sum(step.seconds for step in answer.seconds))


def test_where_nothing_is_found_it_abstains_and_no_reader_is_paid_for() -> None:
    reader = CountingReader()
    found, missed = engine(reader).answer_many(asked("How deep is Lake Orm?", "xyzzy plugh"))
    assert reader.calls == [1]
    assert found.route is Route.RETRIEVAL
    assert (missed.text, missed.route, missed.confidence, missed.hits) == (None, Route.ABSTAIN, 0.0, ())
    assert engine(reader).answer_many([]) == []
    assert engine(reader).answer_many(asked("xyzzy"))[0].text is None
    assert reader.calls == [1]


def test_reading_happens_after_the_epoch_was_let_go() -> None:
    epochs = Epochs()

    class WatchingReader(FakeReader):
        def read(self, readings: Sequence[Reading]) -> list[Draft]:
            assert not epochs.is_held, "a slow reader would keep the database's log from being emptied"
            return super().read(readings)

    assert engine(WatchingReader(), epochs=epochs).answer(asked("How deep is Lake Orm?")[0]).text is not None


def test_a_claim_is_read_with_fewer_passages_than_a_question() -> None:
    claim, question = engine(FakeReader()).answer_many(
        [
            Question.parse("The tower of Tarn was completed.", Kind.CLAIM),
            *asked("When was the tower of Tarn completed?"),
        ]
    )
    assert (len(claim.used), len(question.used)) == (1, 2)
    assert len(claim.hits) > 1


def test_questions_and_claims_are_answered_together_in_order() -> None:
    questions = [Question.parse("Lake Orm is 212 metres deep.", Kind.CLAIM), *asked("Where does the tower stand?")]
    verdict, place = engine(FakeReader()).answer_many(questions)
    assert verdict.text == "SUPPORTS"
    assert place.text == TEXTS["tower-2"]


def test_a_closed_book_answer_has_no_source_and_pays_for_no_search() -> None:
    reader = CountingReader()
    [answer] = engine(reader).answer_closed_book(asked("How deep is Lake Orm?"))
    assert (answer.hits, answer.used, answer.citations, answer.epoch) == ((), (), (), 7)
    assert [step.name for step in answer.seconds] == ["read"]
    assert engine(reader).answer_closed_book([]) == []


FACT = Fact(
    "f1",
    Kind.QUESTION,
    ("How deep is Lake Orm?",),
    "212 metres",
    Source("", PASSAGES[1].id, PASSAGES[1].page, 0, 9),
    1,
    "2026-01-01T00:00:00+00:00",
    FactState.MEMORISED,
)


def knowing(reader: FakeReader, fact: Fact = FACT, route: Route | None = None) -> list[Answer]:
    """Ask a question that memory knows and one that it does not."""
    place = Citation(PASSAGES[1].id, PASSAGES[1].page, "", 0, 9, PASSAGES[1].text[:9])
    whole = replace(engine(reader), memory=FakeMemory([fact], [place]), router=FakeRouter())
    routes = None if route is None else [route, route]
    return whole.answer_many(asked("How deep is Lake Orm?", "When was the tower of Tarn completed?"), routes)


def test_what_memory_knows_costs_no_retrieval_and_no_reading_and_is_cited() -> None:
    reader = CountingReader()
    known, looked_up = knowing(reader)
    assert (known.text, known.route, known.fact_id, known.hits) == ("212 metres", Route.MEMORY, "f1", ())
    assert known.citations[0].passage_id in known.used
    assert (looked_up.route, looked_up.fact_id) == (Route.RETRIEVAL, None)
    assert looked_up.hits
    assert reader.calls == [1]
    assert [step.name for step in known.seconds] == ["encode", "recall", "gate", "retrieve", "read"]
    assert known.decision is not None
    assert {chance.route for chance in known.decision.chances} >= {Route.MEMORY, Route.RETRIEVAL}


def test_both_reads_the_facts_own_passage_without_a_search() -> None:
    reader = CountingReader()
    known, unknown = knowing(reader, route=Route.BOTH)
    assert (known.route, known.hits, known.used) == (Route.BOTH, (), (PASSAGES[1].id,))
    assert (unknown.text, unknown.route) == (None, Route.ABSTAIN)
    assert reader.calls == [1]


def test_memory_and_passage_that_disagree_are_both_told() -> None:
    known, _ = knowing(FakeReader(), replace(FACT, answer="7 metres"), Route.BOTH)
    assert known.disagreement is not None
    assert known.disagreement.memory == "7 metres"
    assert known.text in {known.disagreement.memory, known.disagreement.passage}


class WeighingRouter(FakeRouter):
    """Gives memory a fixed chance, however sure memory is of itself."""

    def __init__(self, chance: float) -> None:
        super().__init__()
        self.chance = chance

    def route(self, questions: Sequence[Question], recalls: Sequence[Recall]) -> list[Decision]:
        found = super().route(questions, recalls)
        return [replace(one, chances=(Chance(Route.MEMORY, self.chance, 0.0),)) for one in found]


@pytest.mark.parametrize(("chance", "taken"), [(0.02, Route.RETRIEVAL), (0.999, Route.MEMORY)])
def test_where_memory_and_passage_disagree_memorys_calibrated_chance_counts(chance: float, taken: Route) -> None:
    place = Citation(PASSAGES[1].id, PASSAGES[1].page, "", 0, 9, PASSAGES[1].text[:9])
    memory = FakeMemory([replace(FACT, answer="7 metres")], [place])  # sure of it, and wrong
    whole = replace(engine(FakeReader()), memory=memory, router=WeighingRouter(chance))
    [answer] = whole.answer_many(asked("How deep is Lake Orm?"), [Route.BOTH])
    assert answer.disagreement is not None
    assert answer.disagreement.used is taken
    assert (answer.text == "7 metres") is (taken is Route.MEMORY)
    shown, given = show.answer(answer), "memory's is given" if taken is Route.MEMORY else "the passage's is given"
    assert all(part in shown for part in ('says "7 metres"', answer.disagreement.passage, FACT.changed_at, given))


def test_a_forced_memory_route_abstains_where_memory_has_nothing() -> None:
    known, unknown = knowing(FakeReader(), route=Route.MEMORY)
    assert (known.text, unknown.text, unknown.route) == ("212 metres", None, Route.ABSTAIN)


class DoubtingMemory(FakeMemory):
    """Holds *not known* for likelier than the fact it recalls."""

    def recall_held(self, questions: Sequence[Question], queries: Floats) -> list[Recall]:
        found = super().recall_held(questions, queries)
        return [replace(one, probability=0.3, not_known=0.7) if one.fact is not None else one for one in found]


def doubting(text: str) -> Answer:
    """Ask both ways what memory doubts, with words to read beside its fact that are in no document."""
    words = Citation("f1:0-9", PASSAGES[1].page, "", 0, len(text), text)
    memory = DoubtingMemory([replace(FACT, answer="7 metres")], [words])
    whole = replace(engine(FakeReader()), memory=memory, router=FakeRouter())
    return whole.answer_many(asked("How deep is Lake Orm?"), [Route.BOTH])[0]


def test_a_recall_less_probable_than_not_known_neither_answers_nor_disagrees() -> None:
    read = doubting("Lake Orm is 9 metres deep.")
    assert (read.text, read.route, read.used, read.hits) == ("Lake Orm is 9 metres deep.", Route.BOTH, ("f1:0-9",), ())
    assert (read.disagreement, read.fact_id) == (None, None)
    silent = doubting("Xyzzy.")
    assert (silent.text, silent.route, silent.disagreement) == (None, Route.ABSTAIN, None)


@pytest.fixture
def taught(filled: KnowledgeBase) -> KnowledgeBase:
    """The world's documents, and one fact in a real memory."""
    assert len(filled.learn([NewFact("Who built the lighthouse of Korva?", "Mira Tolven")]).memorised) == 1
    return filled


def test_a_broken_memory_does_not_stop_retrieval(taught: KnowledgeBase, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> list[Recall]:
        raise KernelError("the slots were written by other networks")

    monkeypatch.setattr(facts_module.Facts, "recall_held", broken)
    question = asked("Who built the lighthouse of Korva?")
    with pytest.raises(KernelError):
        taught.ask_many(question)
    [answer] = taught.ask_many(question, route=Route.RETRIEVAL)
    assert (answer.route, answer.text is not None, bool(answer.hits)) == (Route.RETRIEVAL, True, True)


def test_an_answer_from_memory_counts_as_a_use_and_calibrating_does_not(taught: KnowledgeBase, world: Path) -> None:
    questions = asked("Who built the lighthouse of Korva?")
    taught.ask_many(questions * 2)
    taught.ask_many(questions, route=Route.MEMORY)  # measured, not used
    taught.ask_many(questions, route=Route.RETRIEVAL)
    taught.calibrate(questions * 40, [("Mira Tolven",)] * 40)
    taught.close()
    with open_fake(world / "kb") as again:
        assert [fact.uses for fact in again.facts()] == [2]
