"""A knowledge base whose memory does what a test tells it: real documents and retrieval, invented recalls."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from byheart.config import Config
from byheart.fakes import FakeEncoder, FakeReader
from byheart.folder import init
from byheart.interfaces import Encoder
from byheart.knowledge import KnowledgeBase
from byheart.reports import AddReport, Capacity, LearnReport, Progress, Refusal, no_progress
from byheart.store.database import FILE
from byheart.text.question_keys import question_key
from byheart.types import (
    Answer,
    Citation,
    Document,
    Fact,
    FactShare,
    FactState,
    Hit,
    NewFact,
    Question,
    Recall,
    Route,
    Source,
    Step,
)

STEPS = ("encode", "address", "judge", "decode")
SURE = 0.9
Rule = Callable[[str, Sequence[NewFact]], tuple[str, float] | None]


def own_question(text: str, facts: Sequence[NewFact]) -> tuple[str, float] | None:
    """Recall a fact for its own question only."""
    keys = {question_key(question): fact.id for fact in facts for question in (fact.question, *fact.paraphrases)}
    fact_id = keys.get(question_key(text))
    return None if fact_id is None else (fact_id, SURE)


def scripted(script: Mapping[str, tuple[str, float]]) -> Rule:
    """Recall what a script says of a question, else a fact for its own question."""
    return lambda text, facts: script.get(text) or own_question(text, facts)


@dataclass
class Behaviour:
    """What the memory does, and what it was asked to do.

    Attributes:
        rule: Which fact it recalls for a question, and how sure it is; a fact it does not hold is never recalled.
        refused: Reasons by fact id.
        spelled: Answers it gives instead of the right ones, by fact id.
        recalls_allowed: Questions before it is killed.
        learned: Number of facts in each call to `learn`.
        recalled: Questions asked.
    """

    rule: Rule = own_question
    refused: Mapping[str, str] = field(default_factory=dict)
    spelled: Mapping[str, str] = field(default_factory=dict)
    recalls_allowed: int = 1_000_000
    learned: list[int] = field(default_factory=list)
    recalled: int = 0

    def open(self, folder: Path, changed: Mapping[str, object]) -> RememberingBase:
        """Open a knowledge base with this behaviour."""
        if not (folder / FILE).is_file():
            config = Config()
            for key, value in changed.items():
                config = config.replace(key, value)
            init(folder, config, encoder=FakeEncoder()).close()
        return RememberingBase(folder, self)


class RememberingBase:
    """A `Base`: facts are kept in a file beside the database."""

    def __init__(self, folder: Path, behaviour: Behaviour) -> None:
        self.behaviour, self._kept = behaviour, folder / "facts.json"
        self._kb = KnowledgeBase(folder, encoder=FakeEncoder(), reader=FakeReader())

    @property
    def config(self) -> Config:
        return self._kb.config

    @property
    def epoch(self) -> int:
        return self._kb.epoch + len(self._held())

    @property
    def encoder(self) -> Encoder:
        return self._kb.encoder

    def add_documents(
        self, documents: Iterable[Document], origin: str = "api", progress: Progress = no_progress
    ) -> AddReport:
        return self._kb.add_documents(documents, origin, progress)

    def tune(self, questions: Sequence[Question], passage_ids: Sequence[str]) -> object:
        return self._kb.tune(questions, passage_ids)

    def ask_many(
        self, questions: Sequence[Question], *, closed_book: bool = False, route: Route | None = None
    ) -> list[Answer]:
        return self._kb.ask_many(questions, closed_book=closed_book, route=route)

    def search_many(
        self, questions: Sequence[Question], k: int, *, dense_weight: float | None = None
    ) -> list[tuple[Hit, ...]]:
        return self._kb.search_many(questions, k, dense_weight=dense_weight)

    def learn(self, facts: Iterable[NewFact], progress: Progress = no_progress) -> LearnReport:
        given, held = list(facts), {fact.id: fact for fact in self._held()}
        new = [fact for fact in given if fact.id not in held]
        self.behaviour.learned.append(len(new))
        self._keep([*held.values(), *new])
        refused = tuple(Refusal(f.id, self.behaviour.refused[f.id]) for f in new if f.id in self.behaviour.refused)
        memorised = tuple(fact.id for fact in new if fact.id not in self.behaviour.refused)
        progress(len(given), len(given), "facts learned")
        return LearnReport(memorised, tuple(fact.id for fact in given if fact.id in held), refused=refused)

    def recall_many(self, questions: Sequence[Question]) -> list[Recall]:
        self.behaviour.recalled += len(questions)
        if self.behaviour.recalled > self.behaviour.recalls_allowed:
            raise KeyboardInterrupt
        held = [fact for fact in self._held() if fact.id not in self.behaviour.refused]
        return [self._recall(question, held) for question in questions]

    def facts(self) -> list[Fact]:
        return [self._fact(fact) for fact in self._held()]

    def forget(self, *fact_ids: str) -> int:
        kept = [fact for fact in self._held() if fact.id not in fact_ids]
        n_gone = len(self._held()) - len(kept)
        self._keep(kept)
        return n_gone

    def capacity(self) -> Capacity:
        """A thousandth of the facts found less with every fact: 0.9 with 100, and with ten times as many never."""
        held = self._held()
        memorised = [fact for fact in held if fact.id not in self.behaviour.refused]
        slots = sum(1 + len(fact.paraphrases) for fact in memorised)
        shares = [max(0.0, 1 - growth * len(memorised) / 1000) for growth in (1, 10)]
        return Capacity(len(held), len(memorised), slots, 1, 0, 9, 100 * slots / max(1, len(memorised)), *shares)

    def close(self) -> None:
        self._kb.close()

    def _recall(self, question: Question, held: Sequence[NewFact]) -> Recall:
        steps = tuple(Step(name, 1e-6) for name in STEPS)
        found = self.behaviour.rule(question.text, held)
        fact = next((fact for fact in held if found is not None and fact.id == found[0]), None)
        if found is None or fact is None:
            return Recall(question, None, 0.0, 1.0, seconds=steps)
        fact_id, probability = found
        pages = {page for page, *_ in self._kb.documents()}
        cited = Citation(f"{fact.source}:0-1", fact.source, "", 0, 1, "x")
        return Recall(
            question,
            self.behaviour.spelled.get(fact_id, fact.answer),
            probability,
            1 - probability,
            (FactShare(fact_id, probability, 1.0),),
            self._fact(fact),
            (cited,) if fact.source in pages else (),
            steps,
        )

    def _fact(self, fact: NewFact) -> Fact:
        reason = self.behaviour.refused.get(fact.id, "")
        state = FactState.REFUSED if reason else FactState.MEMORISED
        questions = (fact.question, *fact.paraphrases)
        return Fact(fact.id, fact.kind, questions, fact.answer, Source(fact.source), 1, "2026", state, reason)

    def _held(self) -> list[NewFact]:
        if not self._kept.is_file():
            return []
        return [
            NewFact(**{**row, "paraphrases": tuple(row["paraphrases"])}) for row in json.loads(self._kept.read_text())
        ]

    def _keep(self, facts: Sequence[NewFact]) -> None:
        self._kept.write_text(json.dumps([asdict(fact) for fact in facts]))
