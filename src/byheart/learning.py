"""Facts into a knowledge base: checked against the ledger, encoded, written, read back; one batch is one epoch.

Owns the order of these steps, where a fact's source is looked for, and what becomes of facts whose document changes.
Networks run before the transaction; inside it only what must be read back does. Part of the composition root;
`knowledge` and `ingest` are its only callers.
"""

from __future__ import annotations

import time
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from byheart.corpus.facts import checked_fact
from byheart.corpus.markdown import document_from_markdown
from byheart.errors import FactError
from byheart.interfaces import Floats
from byheart.memory.ledger import Ledger
from byheart.memory.slot_memory import Learned, SlotMemory
from byheart.memory.sources import covering, locate
from byheart.memory.standing import Novelty, Standing
from byheart.memory.writer import Written
from byheart.reports import LearnReport, Progress, Refusal
from byheart.store.database import Database
from byheart.store.documents import Documents
from byheart.text.question_keys import distinct_questions
from byheart.types import Document, Fact, FactState, Kind, NewFact, Passage, Source

FACTS_PER_EPOCH = 256
CHANGED = "its document has changed and no longer says so; learn it again"
RETRY = "forget it and learn it again to have it tried once more"

Encode = Callable[[Sequence[str]], Floats]


@dataclass(slots=True)
class _Tally:
    """What has happened so far, in the groups of a `LearnReport`."""

    memorised: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    extended: list[str] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    conflicts: list[Refusal] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)  # sources that are no document here
    refined: int = 0

    def report(self, epoch: int, seconds: float) -> LearnReport:
        if self.strangers:
            self.notices.append(
                f"of the sources {len(self.strangers)} are no documents, such as {self.strangers[0]!r:.80}: named and "
                "not cited; a document that is added under that name is cited from then on"
            )
        return LearnReport(
            tuple(self.memorised),
            tuple(self.unchanged),
            tuple(self.extended),
            tuple(self.refused),
            tuple(self.conflicts),
            tuple(self.notices),
            self.refined,
            epoch,
            seconds,
        )


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A fact with what the writer made of each question; without slots where memory cannot hold it, and why."""

    fact: NewFact
    slots: dict[str, Written]
    reason: str = ""


@dataclass(slots=True)
class _Pending:
    """A fact that stands in the ledger and shall be read back."""

    learned: Learned
    fact_id: str
    is_extension: bool


@dataclass(frozen=True, slots=True)
class Learning:
    """Writes facts into one knowledge base.

    Attributes:
        database: The open database.
        encode: Turns questions into vectors of the memory's base encoder. Shape `batch width`.
        memory: Gives the memory with the networks in use now, which are loaded when first needed.
    """

    database: Database
    encode: Encode
    memory: Callable[[], SlotMemory]

    def learn(self, facts: Iterable[NewFact], progress: Progress) -> LearnReport:
        """Learn facts; what is known already is left alone.

        Args:
            facts: The facts.
            progress: Told of every batch.

        Returns:
            What happened to every fact.
        """
        started, tally = time.perf_counter(), _Tally()
        waiting = _checked(facts, tally)
        total = len(waiting)
        while waiting:
            batch, waiting = waiting[:FACTS_PER_EPOCH], waiting[FACTS_PER_EPOCH:]
            later = self._learn_batch(batch, tally)
            waiting = [*later, *waiting]
            progress(total - len(waiting), total, "facts learned")
        return tally.report(self.database.epoch, time.perf_counter() - started)

    def _learn_batch(self, batch: Sequence[NewFact], tally: _Tally) -> list[NewFact]:
        """Learn one batch in one epoch, and return facts that must wait for the next: they extend one of this batch."""
        step = _Batch(self.encode, self.memory(), tally)
        with self.database.read():
            standings = [step.ledger.standing(fact) for fact in batch]
            fresh = [step.completed(f, s) for f, s in zip(batch, standings, strict=True) if not step.is_settled(s)]
            if not fresh:  # nothing to write: no epoch
                for fact, standing in zip(batch, standings, strict=True):
                    step.settle(fact, standing)
                return []
        prepared = {(r.fact.kind, r.fact.question, r.fact.answer): r for r in step.prepare(fresh)}
        with self.database.write() as connection:
            if self.memory() is not step.memory:  # adapted by another process meanwhile: all is written once more
                step, prepared = replace(step, memory=self.memory()), {}
            pending: list[_Pending] = []
            later: list[NewFact] = []
            for fact in batch:
                # Asked again: an earlier fact of the batch, or another process, may have settled it.
                standing = step.ledger.standing(fact)
                if step.is_settled(standing):
                    step.settle(fact, standing)
                elif standing.number in {one.learned.number for one in pending}:
                    later.append(fact)
                else:
                    ready = prepared.get((fact.kind, fact.question, fact.answer))
                    pending += step.enter(fact, ready, standing, Documents(connection))
            step.conclude(pending)
        return later


@dataclass(frozen=True, slots=True)
class _Batch:
    """The steps of one batch, with one and the same networks.

    Attributes:
        encode: Turns questions into vectors of the memory's base encoder. Shape `batch width`.
        memory: The memory.
        tally: Told of every fact.
    """

    encode: Encode
    memory: SlotMemory
    tally: _Tally

    @property
    def ledger(self) -> Ledger:
        """The facts."""
        return self.memory.ledger

    def completed(self, fact: NewFact, standing: Standing) -> NewFact:
        """Return a fact with the wordings, too, under which the ledger holds it."""
        held = () if standing.number is None else self.ledger.questions_of(standing.number)
        return replace(fact, paraphrases=distinct_questions([fact.question, *fact.paraphrases, *held])[1:])

    def is_settled(self, standing: Standing) -> bool:
        """Return whether there is nothing to write of a fact."""
        if standing.verdict is Novelty.CONFLICT:
            return True
        return standing.verdict is Novelty.UNCHANGED and self._state(standing) is not FactState.STALE

    def _state(self, standing: Standing) -> FactState | None:
        if standing.number is None or not standing.must_relearn:
            return None
        return self.ledger.by_numbers([standing.number])[standing.number].state

    def settle(self, fact: NewFact, standing: Standing) -> None:
        """Tell of a fact of which there is nothing to write."""
        if standing.verdict is Novelty.CONFLICT:
            self.tally.conflicts.append(Refusal(fact.question, standing.reason))
        elif standing.must_relearn and standing.number is not None:
            reason = self.ledger.by_numbers([standing.number])[standing.number].reason
            self.tally.refused.append(Refusal(standing.fact_id, f"refused before: {reason}; {RETRY}"))
        else:
            self.tally.unchanged.append(standing.fact_id)

    def prepare(self, facts: Sequence[NewFact]) -> list[_Prepared]:
        """Return facts with their slots, written in one pass of the networks."""
        limit = min(self.memory.config.max_answer_tokens, self.memory.codec.max_tokens)
        refusals = self.memory.writer.refusals([fact.answer for fact in facts], limit)
        reasons = dict(zip(map(id, facts), refusals, strict=True))
        fit = [fact for fact in facts if not reasons[id(fact)]]
        asked = [(fact, question) for fact in fit for question in (fact.question, *fact.paraphrases)]
        written = iter(
            self.memory.writer.write(
                [question for _, question in asked],
                [fact.answer for fact, _ in asked],
                self.encode([question for _, question in asked]),
            )
            if asked
            else []
        )
        slots: dict[int, dict[str, Written]] = {id(fact): {} for fact in facts}
        for fact, question in asked:
            slots[id(fact)][question] = next(written)
        return [_Prepared(fact, slots[id(fact)], reasons[id(fact)]) for fact in facts]

    def enter(self, fact: NewFact, ready: _Prepared | None, standing: Standing, documents: Documents) -> list[_Pending]:
        """Enter a fact, or what is new of it, into the ledger, and return what is to be memorised."""
        source, notice = find_source(fact, documents)
        if notice:
            self.tally.notices.append(f"{standing.fact_id}: {notice}")
        if ready is None:
            ready = self.prepare([self.completed(fact, standing)])[0]
        if ready.reason:
            if standing.number is None:
                self.ledger.write(fact, source, FactState.REFUSED, ready.reason)
            self.tally.refused.append(Refusal(standing.fact_id, ready.reason))
            return []
        number, questions, first = self._written(fact, standing, source)
        missing = [question for question in questions if question not in ready.slots]
        if missing:  # another process added wordings since
            ready = self.prepare([self.completed(fact, replace(standing, number=number))])[0]
        slots = tuple(ready.slots[question] for question in questions)
        learned = Learned(number, fact.kind, questions, fact.answer, slots, first)
        return [_Pending(learned, standing.fact_id, first > 0)] if questions else []

    def _written(self, fact: NewFact, standing: Standing, source: Source) -> tuple[int, tuple[str, ...], int]:
        """Write a fact, or its further wordings, and return its number, what is to be memorised, and from where on."""
        ledger, number = self.ledger, standing.number
        if number is None:
            number = ledger.write(fact, source, FactState.MEMORISED, "")
            self.tally.strangers += [fact.source] if fact.source and source.page is None else []
            return number, (fact.question, *standing.extra), 0
        if standing.must_relearn:
            self.memory.forget([number])
            ledger.add_questions(number, standing.extra)
            ledger.set_source(number, source, fact.evidence)
            given = distinct_questions([fact.question, *fact.paraphrases])
            return number, ledger.questions_of(number) or tuple(q for q in given if q not in standing.shared), 0
        first = ledger.n_questions(number)
        ledger.add_questions(number, standing.extra)
        return number, standing.extra, first

    def conclude(self, pending: Sequence[_Pending]) -> None:
        """Read back what was entered, and note what memory holds of it."""
        read_back = self.memory.memorise([one.learned for one in pending])
        reasons = dict(read_back.refused)
        self.tally.refined += read_back.refined
        for one in pending:
            number, reason = one.learned.number, reasons.get(one.learned.number, "")
            if one.is_extension:
                if reason:
                    self.ledger.drop_questions(number, one.learned.questions)
                    self.tally.refused.append(Refusal(one.fact_id, f"a paraphrase was not taken: {reason}"))
                else:
                    self.tally.extended.append(one.fact_id)
            else:
                self.ledger.set_state(number, FactState.REFUSED if reason else FactState.MEMORISED, reason)
                if reason:
                    self.tally.refused.append(Refusal(one.fact_id, reason))
                else:
                    self.tally.memorised.append(one.fact_id)


@dataclass(frozen=True, slots=True)
class Upkeep:
    """Keeps facts true to their documents, inside the transaction that changes these.

    Attributes:
        ledger: Facts.
        erase: Erases the slots of facts.
    """

    ledger: Ledger
    erase: Callable[[Sequence[int]], int]

    def removed(self, pages: Sequence[str]) -> int:
        """Remove the facts that came from documents which are gone, and return how many there were."""
        numbers = [number for page in pages for number in self.ledger.numbers_of_page(page)]
        if numbers:
            self.erase(numbers)
            self.ledger.remove(numbers)
        return len(numbers)

    def texts(self, pages: Sequence[str], documents: Documents) -> dict[str, str]:
        """Return the texts of those of the pages that facts came from, as they still are."""
        sourced = [page for page in pages if self.ledger.numbers_of_page(page)]
        found = {page: documents.text_of(page) for page in sourced}
        return {page: held[1] for page, held in found.items() if held is not None}

    def written(
        self, document: Document, passages: Sequence[Passage], before: Mapping[str, str], documents: Documents
    ) -> int:
        """Have facts follow a document: it may be what they named as their source, or what they rest on may move.

        Args:
            document: The document as it is now.
            passages: Its passages now.
            before: Texts of changed documents before, by page.
            documents: The corpus, with the document in it.

        Returns:
            How many facts became stale, for the document no longer says so.
        """
        n_stale = self._changed(before[document.page], document, passages, documents) if document.page in before else 0
        names = [unicodedata.normalize("NFC", name) for name in (document.page, *(passage.id for passage in passages))]
        for number, fact in self.ledger.by_numbers(self.ledger.numbers_waiting(names)).items():
            self._place(number, fact, document.page, documents)
        return n_stale

    def _place(self, number: int, fact: Fact, page: str, documents: Documents) -> None:
        """Write that a fact comes from a document: the place of its words, or the whole of it where there is none."""
        source = Source(fact.source.note, None, page)
        if fact.questions and fact.answer is not None:
            new = NewFact(fact.questions[0], fact.answer, (), page, fact.evidence, fact.id, fact.kind)
            source = replace(find_source(new, documents)[0], note=fact.source.note)
        self.ledger.set_source(number, source, fact.evidence)

    def _changed(self, before: str, document: Document, passages: Sequence[Passage], documents: Documents) -> int:
        """Move facts to where a document says so now; those it no longer supports are stale."""
        numbers = self.ledger.numbers_of_page(document.page)
        stale = []
        for number, fact in self.ledger.by_numbers(numbers).items():
            if fact.state is FactState.STALE:
                continue
            if fact.source.start is None:  # it cites the document as a whole, and may have a place there now
                self._place(number, fact, document.page, documents)
                continue
            source = moved(fact, before, document, passages)
            if source is None:
                stale.append(number)
            else:
                self.ledger.set_source(number, source)
        for number in stale:
            self.ledger.set_state(number, FactState.STALE, CHANGED)
        if stale:
            self.erase(stale)
        return len(stale)


def _checked(facts: Iterable[NewFact], tally: _Tally) -> list[NewFact]:
    fit = []
    for number, fact in enumerate(facts, start=1):
        try:
            fit.append(checked_fact(fact))
        except FactError as error:
            tally.refused.append(Refusal(f"fact {number}", str(error)))
    return fit


def find_source(fact: NewFact, documents: Documents) -> tuple[Source, str]:
    """Return where a fact comes from, and a notice where its source names a document that does not show it.

    Args:
        fact: The fact; its source is a page, a passage's id, or who said so.
        documents: The corpus.

    Returns:
        Source and notice; the notice is empty where all is well.
    """
    found = documents.text_of(fact.source) if fact.source else None
    if found is None:
        return Source(fact.source), ""
    page, text, passages = found
    answer = "" if fact.kind is Kind.CLAIM else fact.answer  # a verdict stands nowhere
    evidence = [fact.evidence, document_from_markdown(fact.evidence, "evidence", "").text if fact.evidence else ""]
    span = next(filter(None, (locate(text, words, answer) for words in dict.fromkeys(evidence))), None)
    if span is None:
        what = "the evidence does not stand in" if fact.evidence else "no single place with the answer was found in"
        return Source(fact.source, None, page), f"{what} {page}; the fact cites the document as a whole"
    passage = covering(passages, *span)
    return Source(fact.source, None if passage is None else passage.id, page, *span), ""


def moved(fact: Fact, before: str, document: Document, passages: Sequence[Passage]) -> Source | None:
    """Return a fact's source in its document as it is now; None where the words it rests on are gone."""
    source = fact.source
    if source.start is None or source.end is None:
        return source  # it cites the document as a whole, and that is still there
    span = locate(document.text, before[source.start : source.end], "")
    if span is None:
        return None
    passage = covering(passages, *span)
    return Source(source.note, None if passage is None else passage.id, source.page, *span)
