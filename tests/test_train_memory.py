"""Adapting the memory to one knowledge base: a better kernel is kept, a worse one thrown away, facts stay exact."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from byheart.corpus.near_questions import NearQuestions, read_near_questions
from byheart.errors import FactError, InputError
from byheart.fakes import FakeEncoder, FakeReader
from byheart.folder import init
from byheart.knowledge import KnowledgeBase
from byheart.memory.kernel import load_kernel
from byheart.memory.reader import BASE
from byheart.text.models import model_folder
from byheart.train import memory as training
from byheart.train.memory import MemoryTraining, fact_pairs, split, train_memory
from byheart.train.memory_pairs import Pair
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
        assert kb.memory.own_weights() is None
    assert list((folder / "weights").iterdir()) == []


def test_a_kernel_that_did_not_change_is_not_deleted_while_it_is_in_use(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = iter((1.0, 0.5, 1.0, 1.0))
    monkeypatch.setattr(training, "mean_loss", lambda *_: next(losses))
    monkeypatch.setattr(training, "_adapt", lambda *_: None)
    assert train_memory(folder, None, MemoryTraining(steps=3)).is_kept
    assert not train_memory(folder, None, MemoryTraining(steps=3)).is_kept
    with open_fake(folder) as kb:
        assert exact(kb)


def test_the_loss_told_is_that_of_the_kernel_as_it_is_saved(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = []
    monkeypatch.setattr(training, "mean_loss", lambda kernel, *_: measured.append(kernel) or 1.0 / len(measured))
    found = train_memory(folder, None, MemoryTraining(steps=2))
    [path] = (folder / "weights").iterdir()
    kernel, _, _ = load_kernel(path, model_folder(BASE))
    used = dict(measured[-1].named_parameters())
    assert found.is_kept
    assert all(torch.equal(value, used[name]) for name, value in kernel.named_parameters())


@pytest.mark.parametrize("seed", range(20))
def test_pairs_to_check_on_are_a_fifth_of_the_facts_and_never_none(seed: int) -> None:
    pairs = [Pair("q", "p", "a", True, f"fact-{seed}-{i}") for i in range(20) for _ in range(3)]
    trained, held_out = split(pairs)
    assert (len(trained), len(held_out)) == (48, 12)
    assert not {pair.source for pair in trained} & {pair.source for pair in held_out}


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
