"""From a question to an answer: the only file that knows the order of the steps.

Owns the order and the clock. Knows the parts by their Protocols and names no class of a part.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from byheart.interfaces import Encoder, Limited, Passages, Reader, Reading, Retriever
from byheart.types import Answer, Draft, Hit, Kind, Question, Route, Step


@dataclass(frozen=True, slots=True)
class Engine:
    """The parts that answer, and how much each is asked for.

    Attributes:
        encoder: Turns questions into vectors.
        retriever: Ranks passages.
        passages: Looks passages up.
        reader: Answers.
        k: Hits returned with an answer, or as many as are read if that is more.
        n_read: Passages the reader is given for a question.
        n_read_of_claim: The same for a claim.
        hold: Holds one epoch of the knowledge base still while hits and passages are fetched, and gives its number.
    """

    encoder: Encoder
    retriever: Retriever
    passages: Passages
    reader: Reader
    k: int
    n_read: int
    n_read_of_claim: int
    hold: Callable[[], AbstractContextManager[int]]

    def answer(self, question: Question) -> Answer:
        """Return the answer to one question."""
        return self.answer_many([question])[0]

    def answer_many(self, questions: Sequence[Question]) -> list[Answer]:
        """Return one answer per question, each with sources and with seconds per step.

        Args:
            questions: Questions and claims, mixed as they come.

        Returns:
            Answers in order.

        Raises:
            QuestionError: The reader cannot take a question; the error says which.
        """
        if not questions:
            return []
        self._check(questions)
        clock = _Clock(len(questions))
        queries = self.encoder.encode_queries([question.text for question in questions])
        clock.lap("encode")
        with self.hold() as epoch:
            hits = self.retriever.search(questions, queries, max(self.k, self.n_read, self.n_read_of_claim))
            readings = [self._reading(question, found) for question, found in zip(questions, hits, strict=True)]
        clock.lap("retrieve")
        drafts = self._read(readings)
        clock.lap("read")
        return [
            _answer(question, draft, found, clock, epoch)
            for question, draft, found in zip(questions, drafts, hits, strict=True)
        ]

    def answer_closed_book(self, questions: Sequence[Question]) -> list[Answer]:
        """Return what the reader answers without any passage: the closed-book baseline."""
        if not questions:
            return []
        self._check(questions)
        clock = _Clock(len(questions))
        drafts = self.reader.read([Reading(question) for question in questions])
        clock.lap("read")
        with self.hold() as epoch:
            pass
        # No passage was fetched: what is answered is in the reader's own weights.
        return [
            _answer(question, draft, (), clock, epoch, Route.MEMORY)
            for question, draft in zip(questions, drafts, strict=True)
        ]

    def _check(self, questions: Sequence[Question]) -> None:
        if isinstance(self.reader, Limited):
            self.reader.check(questions)

    def _reading(self, question: Question, hits: Sequence[Hit]) -> Reading:
        read = hits[: self.n_read_of_claim if question.kind is Kind.CLAIM else self.n_read]
        passages = self.passages.passages([hit.passage_id for hit in read])
        return Reading(question, tuple(passages), tuple(hit.score for hit in read))

    def _read(self, readings: Sequence[Reading]) -> list[Draft]:
        """Return drafts; where retrieval found nothing there is nothing to read, and no reader is paid for."""
        found = [reading for reading in readings if reading.passages]
        drafts = iter(self.reader.read(found)) if found else iter(())
        return [next(drafts) if reading.passages else Draft(None, 0.0) for reading in readings]


class _Clock:
    """Measures laps, shared evenly by the questions of a batch."""

    def __init__(self, n_questions: int) -> None:
        self.n_questions = n_questions
        self.steps: list[Step] = []
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.steps.append(Step(name, (now - self._last) / self.n_questions))
        self._last = now


def _answer(
    question: Question, draft: Draft, hits: Sequence[Hit], clock: _Clock, epoch: int, route: Route = Route.RETRIEVAL
) -> Answer:
    return Answer(
        question=question,
        text=draft.text,
        route=Route.ABSTAIN if draft.text is None else route,
        confidence=draft.confidence,
        citations=draft.citations,
        hits=tuple(hits),
        used=draft.used,
        seconds=tuple(clock.steps),
        epoch=epoch,
        prompt_tokens=draft.prompt_tokens,
    )
