"""Facts when others have the knowledge base open too: written anew, adapted, restored, counted, forgotten."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from byheart import cli, cli_memory
from byheart import facts as facts_module
from byheart.config import Config
from byheart.errors import BusyError, ConfigError, KernelError
from byheart.fakes import FakeEncoder, FakeReader
from byheart.folder import init
from byheart.interfaces import Floats
from byheart.knowledge import KnowledgeBase
from byheart.memory.kernel import Kernel, load_kernel, save_kernel
from byheart.memory.reader import BASE, MemoryReader, shipped_kernel
from byheart.reports import no_progress
from byheart.store.settings import WEIGHTS_FOLDER
from byheart.text.encoder import SentenceEncoder
from byheart.text.models import model_folder
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


def another_kernel(folder: Path) -> Path:
    """Write the shipped network under another hash below a knowledge base, as adapting would."""
    kernel, notes, extra = load_kernel(shipped_kernel(), model_folder(BASE))
    path = folder / WEIGHTS_FOLDER / "kernel-other.safetensors"
    path.parent.mkdir(exist_ok=True)
    kept = {name: value for name, value in notes.items() if name not in {"format", "shape"}}
    save_kernel(path, kernel, Kernel(model_folder(BASE), kernel.shape), {**kept, "note": "adapted"}, extra)
    return path


def test_an_open_process_follows_a_kernel_adapted_by_another_and_a_restored_one(
    kb: KnowledgeBase, tmp_path: Path
) -> None:
    kb.snapshot(tmp_path / "before")
    with open_fake(tmp_path / "kb") as other:
        assert answers(other) == expected()
        first = other.memory.slots
        assert other.memory.slots is first
        kb.memory.rewrite(another_kernel(tmp_path / "kb"), no_progress)
        assert answers(other) == answers(kb) == expected()
        assert other.memory.slots is not first
        assert len(other.learn([NewFact("Is the tower open?", "Until dusk.")]).memorised) == 1
        kb.restore(tmp_path / "before")
        assert answers(other) == answers(kb) == expected()
        assert other.recall("Is the tower open?").answer != "Until dusk."


def test_facts_learned_while_another_process_adapts_the_kernel_are_written_with_the_new_one(
    kb: KnowledgeBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = NewFact("Is the tower open?", "Until dusk.", ("opening of the tower",))
    with open_fake(tmp_path / "kb") as other:
        encode, calls = other.memory.encode, []

        def meanwhile(texts: Sequence[str]) -> Floats:
            if not calls:
                calls.append(texts)
                kb.memory.rewrite(another_kernel(tmp_path / "kb"), no_progress)
            return encode(texts)

        monkeypatch.setattr(other.memory, "encode", meanwhile)
        assert len(other.learn([new]).memorised) == 1
        monkeypatch.undo()
        assert other.recall(new.question).answer == kb.recall(new.question).answer == new.answer
        assert answers(other) == expected()


def written_by_others(kb: KnowledgeBase) -> None:
    with kb._database.write() as connection:
        connection.execute("UPDATE parameters SET value = 'other' WHERE name = 'memory_kernel'")


def test_slots_of_other_networks_can_be_forgotten_and_facts_tell_why_they_are_unreadable(kb: KnowledgeBase) -> None:
    assert kb.memory.unreadable() == ""
    written_by_others(kb)
    assert "train memory KB --steps 0" in kb.memory.unreadable()
    assert kb.forget(*[fact.id for fact in kb.facts()]) == len(FACTS)
    assert kb.memory.unreadable() == ""
    assert kb.learn(FACTS[:1]).memorised
    assert kb.recall(FACTS[0].question).answer == FACTS[0].answer


def test_slots_of_other_networks_never_come_into_the_index(kb: KnowledgeBase, tmp_path: Path) -> None:
    written_by_others(kb)
    with kb._database.write() as connection:
        connection.execute("UPDATE slots SET key = x'00'")  # as narrow as another kernel's keys might be
    with open_fake(tmp_path / "kb") as other, pytest.raises(KernelError, match="written by the networks other"):
        other.recall(FACTS[0].question)


def used(kb: KnowledgeBase) -> int:
    return sum(fact.uses for fact in kb.facts())


def test_uses_wait_while_another_process_writes_and_are_counted_once(kb: KnowledgeBase, tmp_path: Path) -> None:
    with open_fake(tmp_path / "kb") as other:
        kb.memory.count([kb.recall(FACTS[0].question)])  # recalled once, answered with once
        with other._database.write():
            kb.memory.close()
        assert used(kb) == 0
        kb.memory.close()
        kb.memory.close()
        assert used(kb) == 2


def test_uses_counted_while_an_epoch_is_held_are_written_later(kb: KnowledgeBase) -> None:
    recall = kb.recall(FACTS[0].question)
    with kb._database.read() as connection:
        kb.memory.count([recall] * facts_module.USES_PER_WRITE)
        assert connection.in_transaction
    kb.memory.close()
    assert used(kb) == 1 + facts_module.USES_PER_WRITE


def test_no_use_is_lost_between_threads(kb: KnowledgeBase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts_module, "USES_PER_WRITE", 7)
    recall = kb.recall(FACTS[0].question)
    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(lambda: [kb.memory.count([recall]) for _ in range(100)]) for _ in range(4)]:
            done.result()
    kb.memory.close()
    assert used(kb) == 401


def test_a_base_that_is_closed_twice_has_counted_its_uses(kb: KnowledgeBase, tmp_path: Path) -> None:
    kb.recall(FACTS[0].question)
    kb.close()
    kb.close()
    with open_fake(tmp_path / "kb") as again:
        assert used(again) == 1


def test_memory_beside_its_own_base_encoder_and_beside_another_says_the_same(
    kb: KnowledgeBase, minilm: SentenceEncoder, tmp_path: Path
) -> None:
    with init(tmp_path / "shared", encoder=minilm, reader=FakeReader()) as shared:
        shared.learn(FACTS)
        for asked in ("how much is the ferry", "Who painted the lighthouse of Korva?", *[f.question for f in FACTS]):
            one, other = shared.recall(asked), kb.recall(asked)
            assert (one.answer, one.not_known) == (other.answer, pytest.approx(other.not_known, abs=1e-4))
            answers = [base.ask(asked) for base in (shared, kb)]
            assert len({(answer.text, answer.route) for answer in answers}) == 1


@pytest.mark.parametrize(("key", "value"), [("ledger.text", False), ("memory.cell_slots", 8)])
def test_what_facts_are_stored_by_cannot_be_changed_beside_them_and_holds_at_once_without(
    kb: KnowledgeBase, key: str, value: object
) -> None:
    with pytest.raises(ConfigError, match="byheart init"):
        kb.configure(key, value)
    kb.forget(*[fact.id for fact in kb.facts()])
    kb.configure(key, value)
    kb.learn(FACTS)
    assert answers(kb) == expected()
    part, name = key.split(".")
    assert getattr(getattr(kb.memory._config, part), name) == value
    assert {fact.answer is None for fact in kb.facts()} == {key == "ledger.text"}


def test_a_snapshot_with_texts_is_not_restored_where_none_are_kept(kb: KnowledgeBase, tmp_path: Path) -> None:
    kb.snapshot(tmp_path / "texts")
    config = Config().replace("ledger.text", False)
    with init(tmp_path / "bare", config, encoder=FakeEncoder(), reader=FakeReader()) as bare:
        with pytest.raises(ConfigError, match="keeps the texts of facts"):
            bare.restore(tmp_path / "texts")
        assert bare.facts() == []
        bare.learn(FACTS)
        bare.snapshot(tmp_path / "none")
        bare.restore(tmp_path / "none")
        assert answers(bare) == expected()


def test_forget_tells_where_another_process_keeps_the_text_in_the_file(
    kb: KnowledgeBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli_memory, "open_base", lambda _: open_fake(tmp_path / "kb", wait_seconds=0.1))

    def forget(*arguments: str) -> str:
        with pytest.raises(SystemExit, match="0"):
            cli.main(["forget", str(tmp_path / "kb"), *arguments])
        return capsys.readouterr().out

    first, second, third = [fact.id for fact in kb.facts()]
    with kb._database.read():
        assert kb.epoch == 1  # somebody is asking meanwhile
        assert "traces of what was forgotten stay" in forget(first)
        assert json.loads(forget(second, "--json"))["is_clean"] is False
    assert json.loads(forget(third, "--json"))["is_clean"] is True
    kb.close()
    for path in (tmp_path / "kb").iterdir():
        assert not [fact for fact in FACTS if fact.answer.encode() in path.read_bytes()]
