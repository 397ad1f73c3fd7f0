"""Facts when others have the knowledge base open too: written anew, adapted, restored, counted, forgotten."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from byheart import facts as facts_module
from byheart.errors import BusyError
from byheart.fakes import FakeEncoder, FakeReader
from byheart.folder import init
from byheart.interfaces import Floats
from byheart.knowledge import KnowledgeBase
from byheart.memory.reader import MemoryReader
from byheart.reports import no_progress
from byheart.types import FactState, NewFact
from world import open_fake

FACTS = (
    NewFact("Who built the lighthouse of Korva?", "Ilse Marenka"),
    NewFact("What does a ferry ticket cost?", "7.50 crowns", ("price of the ferry",)),
    NewFact("Which boat sails to Ostrel at seven?", "The Grey Gull, from the northern pier behind the fish market"),
)


@pytest.fixture(scope="module")
def shipped() -> MemoryReader:
    return MemoryReader(precision="fp32")


@pytest.fixture
def kb(tmp_path: Path, shipped: MemoryReader, monkeypatch: pytest.MonkeyPatch) -> Iterator[KnowledgeBase]:
    """A knowledge base that knows the facts; the shipped network is read from disk once for all tests."""

    def reader(weights: Path | None, *others: str) -> MemoryReader:
        return shipped if weights is None else MemoryReader(weights, *others)

    monkeypatch.setattr(facts_module, "MemoryReader", reader)
    with init(tmp_path / "kb", encoder=FakeEncoder(), reader=FakeReader()) as made:
        assert len(made.learn(FACTS).memorised) == len(FACTS)
        yield made


def answers(kb: KnowledgeBase) -> list[str | None]:
    return [kb.recall(fact.question).answer for fact in FACTS]


def expected() -> list[str]:
    return [fact.answer for fact in FACTS]


def id_of(kb: KnowledgeBase, fact: NewFact) -> str:
    return next(held.id for held in kb.facts() if held.questions[0] == fact.question)


def states(kb: KnowledgeBase) -> list[FactState]:
    return [fact.state for fact in kb.facts()]


def test_a_fact_refused_before_that_other_networks_can_hold_is_memorised_when_written_anew(kb: KnowledgeBase) -> None:
    with kb._database.write():
        number = kb.memory.ledger.number(id_of(kb, FACTS[0]))
        kb.memory.slots.forget([number])
        kb.memory.ledger.set_state(number, FactState.REFUSED, "the last networks could not")
    report = kb.memory.rewrite(None, no_progress)
    assert (len(report.memorised), report.refused) == (len(FACTS), ())
    assert {(fact.state, fact.reason) for fact in kb.facts()} == {(FactState.MEMORISED, "")}
    assert answers(kb) == expected()


def test_an_answer_that_is_too_long_now_is_refused_when_written_anew(kb: KnowledgeBase, tmp_path: Path) -> None:
    kb.configure("memory.max_answer_tokens", 10)
    with open_fake(tmp_path / "kb") as shorter:
        report = shorter.memory.rewrite(None, no_progress)
        held, [refused] = tuple(id_of(kb, fact) for fact in FACTS[:2]), report.refused
        assert (report.memorised, refused.source) == (held, id_of(kb, FACTS[2]))
        assert "memory holds 10" in refused.reason
        assert states(shorter) == [FactState.MEMORISED, FactState.MEMORISED, FactState.REFUSED]
        assert shorter.capacity().slots == sum(1 + len(fact.paraphrases) for fact in FACTS[:2])


def test_what_another_process_writes_while_slots_are_written_anew_is_not_lost(
    kb: KnowledgeBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode, new = kb.memory.encode, NewFact("Is the tower open?", "Until dusk.")

    def meanwhile(texts: Sequence[str]) -> Floats:
        with open_fake(tmp_path / "kb") as other:
            other.learn([new])
        return encode(texts)

    monkeypatch.setattr(kb.memory, "encode", meanwhile)
    with pytest.raises(BusyError, match="run it again"):
        kb.memory.rewrite(None, no_progress)
    monkeypatch.undo()
    assert kb.recall(new.question).answer == new.answer
    assert len(kb.memory.rewrite(None, no_progress).memorised) == len(FACTS) + 1
    assert kb.recall(new.question).answer == new.answer
