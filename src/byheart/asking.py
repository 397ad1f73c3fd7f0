"""Questions to a knowledge base: answered, searched for, and used to fit what decides.

Owns how the engine is put together, what joint training puts into use, and the fit of the fusion weight (that of the
gate is in `calibrating`). Part of the composition root.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from byheart.config import Config
from byheart.decisions import Decision, Evidence, Wishes
from byheart.engine import Engine
from byheart.errors import ConfigError
from byheart.facts import MEMORY_CALIBRATION, Facts
from byheart.gate.gate import Gate
from byheart.interfaces import Encoder, Limited, Reader
from byheart.library import ADAPTER, Library
from byheart.offering import Offer, Offering
from byheart.reports import Progress
from byheart.retrieval.adapter import QueryAdapter
from byheart.retrieval.fitting import FittedWeight, fit_dense_weight
from byheart.routing import BEFORE, CALIBRATION, GATE, GateRouter, parameters
from byheart.store.database import Database
from byheart.types import Answer, Hit, Passage, Question, Route

TRAINED = (GATE, CALIBRATION, MEMORY_CALIBRATION, ADAPTER)  # what joint training changes
BATCH = 32


@dataclass(frozen=True, slots=True)
class Asking:
    """Answers from one knowledge base.

    Attributes:
        database: The open database.
        library: Passages and their index.
        facts: Facts and their slots.
        config: Settings.
        encoder: Gives the encoder.
        reader: Gives the reader.
    """

    database: Database
    library: Library
    facts: Facts
    config: Config
    encoder: Callable[[], Encoder]
    reader: Callable[[], Reader]

    def answer_many(
        self,
        questions: Sequence[Question],
        wishes: Wishes,
        routes: Sequence[Route] | None = None,
        gate: Gate | None = None,
    ) -> list[Answer]:
        """Return one answer per question.

        Args:
            questions: Questions and claims.
            wishes: Risk and budget.
            routes: Ways they are to go; None to let the gate decide.
            gate: One to use instead of the knowledge base's.

        Returns:
            Answers in order.
        """
        is_needed = routes is None or any(route is not Route.RETRIEVAL for route in routes)
        if not is_needed or not self.facts.is_used():
            return self._without_memory(questions, routes)
        with self.database.read() as connection:
            answers, recalls = self._engine(GateRouter(connection, wishes, gate)).answer_recalled(questions, routes)
        if routes is None:  # what is asked of one route only is measured, not used
            self.facts.count(
                [r for r, a in zip(recalls, answers, strict=True) if r is not None and a.route is Route.MEMORY]
            )
        return answers

    def _without_memory(self, questions: Sequence[Question], routes: Sequence[Route] | None) -> list[Answer]:
        """Return answers from documents; questions that were to go to memory alone are not answered."""
        searched = [i for i, _ in enumerate(questions) if routes is None or routes[i] is Route.RETRIEVAL]
        found = dict(zip(searched, self._engine().answer_many([questions[i] for i in searched]), strict=True))
        return [
            found.get(i) or Answer(question, None, Route.ABSTAIN, epoch=self.database.epoch)
            for i, question in enumerate(questions)
        ]

    def decide_many(
        self, questions: Sequence[Question], wishes: Sequence[Wishes]
    ) -> list[list[Decision] | ConfigError]:
        """Return which way each question would go under each of several wishes; nothing is retrieved or read.

        Args:
            questions: Questions and claims.
            wishes: Risks and budgets.

        Returns:
            Per wish one decision per question, or the error that says why it cannot be kept.
        """
        if not self.facts.is_used():
            return [[Decision(Route.RETRIEVAL, ())] * len(questions) for _ in wishes]
        queries = self.encoder().encode_queries([question.text for question in questions])
        with self.database.read() as connection:
            router = GateRouter(connection, Wishes())
            evidence: list[Evidence] = []
            for first in range(0, len(questions), BATCH):
                part = questions[first : first + BATCH]
                recalls = self.facts.recall_held(part, queries[first : first + BATCH])
                evidence += router.evidence(part, recalls)
            found: list[list[Decision] | ConfigError] = []
            for wish in wishes:
                try:
                    found.append(GateRouter(connection, wish).decide(evidence))
                except ConfigError as error:
                    found.append(error)
        return found

    def offers(
        self, questions: Sequence[Question], gold: Sequence[Sequence[str]], hide: Sequence[bool], progress: Progress
    ) -> list[Offer]:
        """Return what each route offers questions whose answers are known: what joint training learns from."""
        reader = self.config.reader
        with self.database.read() as connection:
            router = GateRouter(connection, Wishes())
            offering = Offering(
                self.facts, self.library, self.encoder, self.reader, router.evidence,
                reader.passages, reader.claim_passages,
            )  # fmt: skip
            return offering.offers(questions, gold, hide, progress)

    def check(self, questions: Sequence[Question]) -> None:
        """Raise QuestionError, which names the first question that the reader cannot take; nothing is paid for yet."""
        reader = self.reader()
        if isinstance(reader, Limited):
            reader.check(questions)

    def dense_weight(self) -> float:
        """Return the share of the cosine in the fused score."""
        with self.library.hold():
            return self.library.dense_weight()

    def adapter(self) -> QueryAdapter | None:
        """Return the query adapter in use, None where none was trained."""
        with self.library.hold():
            return self.library.adapter()

    def undo_install(self) -> None:
        """Put back what was in use before jointly trained parts that were never calibrated, if there are such."""
        with self.database.read() as connection:
            held = parameters(connection, (BEFORE,))
        if not held:
            return
        names = (*TRAINED, BEFORE)
        with self.database.write() as connection:
            connection.execute(f"DELETE FROM parameters WHERE name IN ({','.join('?' * len(names))})", names)
            connection.executemany("INSERT INTO parameters VALUES (?, ?)", json.loads(held[0][1]))

    def install(self, gate: Gate, adapter: QueryAdapter | None, calibration: tuple[float, float, float]) -> int:
        """Put jointly trained parts into use, as one new epoch, and return it.

        Args:
            gate: The gate; what a risk was promised on before it is gone. Until it is calibrated it can be undone.
            adapter: The query adapter, None for none.
            calibration: Slope, offset and gap weight of the memory's log-odds.

        Returns:
            The epoch.
        """
        rows = [(GATE, gate.to_json()), (MEMORY_CALIBRATION, json.dumps(calibration))]
        rows += [] if adapter is None else [(ADAPTER, adapter.to_json())]
        with self.database.write() as connection:
            rows.append((BEFORE, json.dumps(parameters(connection, TRAINED))))
            connection.execute("DELETE FROM parameters WHERE name IN (?, ?)", (CALIBRATION, ADAPTER))
            connection.executemany("INSERT OR REPLACE INTO parameters VALUES (?, ?)", rows)
        return self.database.epoch

    def answer_closed_book(self, questions: Sequence[Question]) -> list[Answer]:
        """Return what the reader answers without any passage."""
        return self._engine().answer_closed_book(questions)

    def search(
        self, questions: Sequence[Question], k: int, dense_weight: float | None = None
    ) -> list[list[tuple[Hit, Passage]]]:
        """Return the best passages for questions.

        Args:
            questions: What is looked for.
            k: Hits per question.
            dense_weight: 0 for BM25 alone, 1 for dense alone, None for the fitted weight.

        Returns:
            Hits with their passages, best first, per question.
        """
        queries = self.encoder().encode_queries([question.text for question in questions])
        with self.library.hold():
            found = self.library.search(questions, queries, k, dense_weight)
            return [
                list(zip(hits, self.library.passages([hit.passage_id for hit in hits]), strict=True)) for hits in found
            ]

    def tune(self, questions: Sequence[Question], passage_ids: Sequence[str]) -> FittedWeight:
        """Fit the share of the cosine in the fused score, and keep it as a new epoch.

        Args:
            questions: Training questions.
            passage_ids: For each, the id of the passage that answers it.

        Returns:
            The weight and its recall on these questions.
        """
        queries = self.encoder().encode_queries([question.text for question in questions])
        with self.library.hold():
            self.library.passages(passage_ids)  # an id that is not there is an error here, not a miss in the figures
            candidates = self.library.candidates(questions, queries)
        fitted = fit_dense_weight(candidates, passage_ids)
        weight = json.dumps(fitted.dense_weight)
        with self.database.write() as connection:
            connection.execute("INSERT OR REPLACE INTO parameters VALUES ('dense_weight', ?)", (weight,))
        return fitted

    def _engine(self, router: GateRouter | None = None) -> Engine:
        library, reader = self.library, self.config.reader
        return Engine(
            self.encoder(), library, library, self.reader(), self.config.retrieval.k, reader.passages,
            reader.claim_passages, library.hold, None if router is None else self.facts, router, reader.min_confidence,
        )  # fmt: skip
