"""From a question to an answer: the only file that knows the order of the steps.

Owns the order and the clock. Knows the parts by their Protocols and names no class of a part.

    encode → recall → decide → (memory: nothing more; both: the fact's own passages; retrieval: search) → read
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from byheart.decisions import Decision, Disagreement
from byheart.interfaces import Encoder, Floats, Limited, Memory, Passages, Reader, Reading, Retriever, Router
from byheart.types import Answer, Draft, Hit, Kind, Passage, Question, Recall, Route, Step


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
        memory: Recalls facts; None where there are none, and every question is retrieved for.
        router: Decides which way a question goes.
        least: Chance below which memory's answer is not given; where a risk was promised the promise decides.
    """

    encoder: Encoder
    retriever: Retriever
    passages: Passages
    reader: Reader
    k: int
    n_read: int
    n_read_of_claim: int
    hold: Callable[[], AbstractContextManager[int]]
    memory: Memory | None = None
    router: Router | None = None
    least: float = 0.0

    def answer(self, question: Question) -> Answer:
        """Return the answer to one question."""
        return self.answer_many([question])[0]

    def answer_many(self, questions: Sequence[Question], routes: Sequence[Route] | None = None) -> list[Answer]:
        """Return one answer per question: those of `answer_recalled`, whose arguments these are."""
        return self.answer_recalled(questions, routes)[0]

    def answer_recalled(
        self, questions: Sequence[Question], routes: Sequence[Route] | None = None
    ) -> tuple[list[Answer], Sequence[Recall | None]]:
        """Return one answer per question, each with sources and with seconds per step.

        Args:
            questions: Questions and claims, mixed as they come.
            routes: Ways they are to go, whatever the gate says; None to let it decide.

        Returns:
            Answers in order, and what memory said to each question, None where it was not asked.

        Raises:
            QuestionError: The reader cannot take a question; the error says which.
        """
        if not questions:
            return [], []
        self._check(questions)
        clock = _Clock(len(questions))
        queries = self.encoder.encode_queries([question.text for question in questions])
        clock.lap("encode")
        with self.hold() as epoch:
            recalls, decisions = self._decided(questions, queries, routes, clock)
            found = self._retrieved(questions, queries, decisions)
            grounds = self._grounds(questions, queries, recalls, decisions)
            readings = [
                self._reading(question, hits, words)
                for question, hits, words in zip(questions, found, grounds, strict=True)
            ]
        clock.lap("retrieve")
        drafts = self._read(readings)
        clock.lap("read")
        rows = zip(questions, drafts, found, recalls, decisions, strict=True)
        return [_likely(_answer(_Row(*row), clock, epoch), self.least) for row in rows], recalls

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
        closed = Decision(Route.MEMORY, ())
        rows = [_Row(question, draft, (), None, closed) for question, draft in zip(questions, drafts, strict=True)]
        return [replace(_read_answer(row, clock, epoch), decision=None) for row in rows]

    def _check(self, questions: Sequence[Question]) -> None:
        if isinstance(self.reader, Limited):
            self.reader.check(questions)

    def _decided(
        self, questions: Sequence[Question], queries: Floats, routes: Sequence[Route] | None, clock: _Clock
    ) -> tuple[Sequence[Recall | None], list[Decision]]:
        """Return what memory says and which way each question goes."""
        if self.memory is None or self.router is None:
            return [None] * len(questions), [Decision(Route.RETRIEVAL, ())] * len(questions)
        recalls = self.memory.recall_held(questions, queries)
        clock.lap("recall")
        decisions = self.router.route(questions, recalls)
        if routes is not None:
            decisions = [replace(decision, route=route) for decision, route in zip(decisions, routes, strict=True)]
        clock.lap("gate")
        return recalls, decisions

    def _retrieved(
        self, questions: Sequence[Question], queries: Floats, decisions: Sequence[Decision]
    ) -> list[tuple[Hit, ...]]:
        """Return hits of the questions that are searched for; none of the others."""
        wanted = [i for i, decision in enumerate(decisions) if decision.route is Route.RETRIEVAL]
        found: list[tuple[Hit, ...]] = [()] * len(questions)
        if wanted:
            k = max(self.k, self.n_read, self.n_read_of_claim)
            searched = self.retriever.search([questions[i] for i in wanted], queries[wanted], k)
            for i, hits in zip(wanted, searched, strict=True):
                found[i] = hits
        return found

    def _grounds(
        self,
        questions: Sequence[Question],
        queries: Floats,
        recalls: Sequence[Recall | None],
        decisions: Sequence[Decision],
    ) -> list[tuple[tuple[Passage, float], ...] | None]:
        """Return the words that facts rest on, for the questions that go both ways; None for the others."""
        wanted = [(i, r) for i, r in enumerate(recalls) if r is not None and decisions[i].route is Route.BOTH]
        if self.memory is None or not wanted:
            return [() if decision.route is Route.BOTH else None for decision in decisions]
        rows = [i for i, _ in wanted]
        words = self.memory.grounds(
            [questions[i] for i in rows], queries[rows], [recall for _, recall in wanted], self.n_read_of_claim
        )
        found = dict(zip(rows, words, strict=True))
        return [found.get(i, ()) if decision.route is Route.BOTH else None for i, decision in enumerate(decisions)]

    def _reading(
        self, question: Question, hits: Sequence[Hit], grounds: tuple[tuple[Passage, float], ...] | None
    ) -> Reading:
        if grounds is not None:
            words, cosines = tuple(passage for passage, _ in grounds), tuple(cosine for _, cosine in grounds)
            return Reading(question, words, cosines)
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


@dataclass(frozen=True, slots=True)
class _Row:
    """All that is known of one question when its answer is made."""

    question: Question
    draft: Draft
    hits: tuple[Hit, ...]
    recall: Recall | None
    decision: Decision


def _answer(row: _Row, clock: _Clock, epoch: int) -> Answer:
    """Return the answer of a question's route; where memory was asked too, what it said is told."""
    if row.recall is not None and row.decision.route is Route.MEMORY:
        return _recalled(row, row.recall, clock, epoch)
    answer = _read_answer(row, clock, epoch)
    if row.recall is None or row.recall.fact is None or row.decision.route is not Route.BOTH:
        return answer
    if row.recall.probability <= row.recall.not_known:  # its words were read; its answer is to another question
        return answer
    if answer.text is None:  # the fact's own passage was read, and says nothing the reader could use
        return replace(_recalled(row, row.recall, clock, epoch), route=Route.BOTH, used=answer.used)
    said, recalled = str(row.recall.answer), replace(_recalled(row, row.recall, clock, epoch), route=Route.BOTH)
    is_read = (answer.confidence or 0.0) > (recalled.confidence or 0.0)  # both calibrated, where the gate is
    used = answer if is_read else replace(recalled, used=answer.used)
    if _plain(answer.text) == _plain(said):
        return replace(used, fact_id=row.recall.fact.id)
    taken = Route.RETRIEVAL if is_read else Route.MEMORY
    told = Disagreement(said, answer.text, taken, row.recall.fact.changed_at)
    return replace(used, fact_id=row.recall.fact.id, disagreement=told)


def _likely(answer: Answer, least: float) -> Answer:
    """Return an answer, without its text where it is memory's and hardly a chance; what is promised is kept."""
    is_promised = answer.decision is not None and answer.decision.bound is not None
    if answer.route is not Route.MEMORY or answer.text is None or is_promised or (answer.confidence or 0.0) >= least:
        return answer
    return replace(answer, text=None, route=Route.ABSTAIN, citations=(), used=(), fact_id=None)


def _plain(text: str) -> str:
    return text.casefold().strip(" .")


def _recalled(row: _Row, recall: Recall, clock: _Clock, epoch: int) -> Answer:
    chances = {chance.route: chance.probability for chance in row.decision.chances}
    return Answer(
        question=row.question,
        text=recall.answer,
        route=Route.ABSTAIN if recall.answer is None else Route.MEMORY,
        confidence=chances.get(Route.MEMORY, recall.probability),
        citations=recall.citations,
        used=tuple(citation.passage_id for citation in recall.citations),
        seconds=tuple(clock.steps),
        epoch=epoch,
        decision=row.decision,
        fact_id=None if recall.fact is None else recall.fact.id,
    )


def _read_answer(row: _Row, clock: _Clock, epoch: int) -> Answer:
    return Answer(
        question=row.question,
        text=row.draft.text,
        route=Route.ABSTAIN if row.draft.text is None else row.decision.route,
        confidence=row.draft.confidence,
        citations=row.draft.citations,
        hits=row.hits,
        used=row.draft.used,
        seconds=tuple(clock.steps),
        epoch=epoch,
        prompt_tokens=row.draft.prompt_tokens,
        decision=row.decision if row.decision.chances else None,
    )
