"""Adapting the memory to one knowledge base: a better kernel is kept, a worse one thrown away, facts stay exact."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from byheart.corpus.near_questions import NearQuestions, read_near_questions
from byheart.errors import FactError, InputError
from byheart.fakes import FakeEncoder, FakeReader
from byheart.folder import init
from byheart.knowledge import KnowledgeBase
from byheart.train import memory as training
from byheart.train.memory import MemoryTraining, fact_pairs, train_memory
from byheart.types import NewFact, Question
from world import open_fake

TOWNS = ("Korva", "Ostrel", "Lindwick", "Harrowmere", "Port Sela", "Tarn")
FACTS = [
    NewFact(f"{what} in {town}?", f"{answer} {i}", (f"{other} {town}",))
    for i, town in enumerate(TOWNS)
    for what, other, answer in (
        ("Who is the mayor", "name of the mayor of", "Mira"),
        ("When does the library open", "library opening time", "at nine"),
        ("What does the ferry cost", "ferry fare", "crowns"),
        ("Where is the post office", "post office address", "Harbour Street"),
    )
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(training, "KnowledgeBase", open_fake)
    with init(tmp_path / "kb", encoder=FakeEncoder(), reader=FakeReader()) as kb:
        assert len(kb.learn(FACTS).memorised) == len(FACTS)
    return tmp_path / "kb"


def exact(kb: KnowledgeBase) -> bool:
    recalls = kb.recall_many([Question(fact.question) for fact in FACTS])
    return [recall.answer for recall in recalls] == [fact.answer for fact in FACTS]


def test_an_adapted_kernel_is_kept_only_if_it_is_better_and_facts_stay_exact(folder: Path) -> None:
    found = train_memory(folder, None, MemoryTraining(steps=3))
    assert found.is_kept == (found.loss_after < found.loss_before)
    kernels = list((folder / "weights").glob("kernel-*.safetensors")) if found.is_kept else []
    with open_fake(folder) as kb:
        assert exact(kb)
        assert kb.memory.own_weights() == (kernels[0] if kernels else None)
        assert not (folder / training.STATE).exists()


def test_no_step_writes_the_slots_anew_with_the_kernel_in_use(folder: Path) -> None:
    with open_fake(folder) as kb:
        before = kb.epoch
    found = train_memory(folder, None, MemoryTraining(steps=0))
    assert found.report is not None
    assert len(found.report.memorised) == len(FACTS)
    with open_fake(folder) as kb:
        assert (exact(kb), kb.epoch) == (True, before + 1)


def test_a_kernel_that_judges_worse_is_thrown_away(folder: Path) -> None:
    found = train_memory(folder, None, MemoryTraining(steps=3, learning_rate=0.05))
    assert (found.is_kept, found.report) == (False, None)
    with open_fake(folder) as kb:
        assert exact(kb)


def test_too_few_facts_are_an_error(folder: Path) -> None:
    with open_fake(folder) as kb:
        kb.forget(*[fact.id for fact in kb.facts()[5:]])
    with pytest.raises(FactError, match="needs 20 facts"):
        train_memory(folder, None, MemoryTraining(steps=3))


def test_pairs_are_paraphrases_neighbours_and_what_the_user_gives(folder: Path) -> None:
    with open_fake(folder) as kb:
        facts = kb.facts()
        given = NearQuestions("Is it open?", ("open?",), ("Is it closed?",))
        pairs = fact_pairs(facts, [given], kb.memory.encode, 7)
    assert {pair.is_same for pair in pairs} == {True, False}
    assert [p.is_same for p in pairs if p.question == "Is it open?"] == [True, False]
    answers = {fact.questions[0]: fact.answer for fact in facts}
    wrong = [p for p in pairs if not p.is_same and p.question in answers]
    assert all(p.answer == answers[p.question] for p in wrong)


@pytest.mark.parametrize("line", ["{", '{"question": 1}', '{"question": "x", "same": [" "]}', "[]"])
def test_a_bad_line_of_pairs_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "pairs.jsonl"
    path.write_text(json.dumps({"question": "a", "same": ["b"]}) + "\n" + line + "\n", "utf-8")
    with pytest.raises(InputError, match="line 2"):
        list(read_near_questions(path))
