"""The memory: questions in, recalls out; facts in, slots out, read back before they count.

Owns the order addressing, judging, decoding, and read-back. Everything happens inside the transaction the caller has
open. Knows no documents and no encoder: vectors are given.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from byheart.config import MemoryConfig
from byheart.errors import KernelError
from byheart.interfaces import Floats
from byheart.memory.codebooks import Codebooks
from byheart.memory.codes import Codes
from byheart.memory.ledger import Ledger
from byheart.memory.reader import MemoryReader, Shares, shares
from byheart.memory.slots import Found, Slot, Slots, erase_all, erase_slots
from byheart.memory.writer import Writer, Written
from byheart.types import FactShare, Kind, Question, Recall, Step

if TYPE_CHECKING:
    from byheart.memory.answers import AnswerCodec

SLOTS_PER_FACT = 4  # slots asked of the index for every candidate fact: a fact has several
NEAR = 0.7  # cosine from which on a new slot might take another fact's questions
MARGIN = 1.2  # by which its own share must be larger: in another batch sums may round otherwise
KERNEL = "memory_kernel"  # the parameter that says which networks wrote the slots
SPELLING = "its answer is not spelled exactly; shorten it, or leave it to retrieval"
HIDDEN = "another fact is found for its own question; ask it in a way that tells the two apart"
UNKNOWN = "its own question is not recognised; shorten the question, or add a paraphrase"


@dataclass(frozen=True, slots=True)
class Learned:
    """A fact to be memorised.

    Attributes:
        number: Its number in the ledger.
        kind: A question or a claim.
        questions: Question and paraphrases; one slot each.
        answer: Its answer.
        slots: What the writer made of them, one per question.
        first: Position of the first of these questions among all of the fact's.
    """

    number: int
    kind: Kind
    questions: tuple[str, ...]
    answer: str
    slots: tuple[Written, ...]
    first: int = 0


@dataclass(frozen=True, slots=True)
class ReadBack:
    """What reading facts back gave.

    Attributes:
        memorised: Numbers of facts that are recalled exactly from each of their questions.
        refined: How many of these needed their slot corrected.
        refused: Numbers of facts whose slots were erased again, and why.
    """

    memorised: tuple[int, ...]
    refined: int
    refused: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class _Read:
    """What one question got: shares of facts, the best slot's spelling, and cosines."""

    shares: Shares
    spelling: Codes | None
    cosines: dict[int, float]


class SlotMemory:
    """The slots of one knowledge base, with the networks that write and read them."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        config: MemoryConfig,
        ledger: Ledger,
        reader: MemoryReader,
        codec: AnswerCodec,
    ) -> None:
        """Put the parts together; networks and slots are loaded when first needed.

        Args:
            connection: Connection to the database.
            config: Candidates, cells and limits.
            ledger: Facts.
            reader: Judges.
            codec: Spells answers.
        """
        self.config, self.ledger, self._connection = config, ledger, connection
        self.reader, self.codec, self.writer = reader, codec, Writer(reader, codec)

    @cached_property
    def slots(self) -> Slots:
        """The slots, addressed by the kernel's codebooks."""
        return Slots(self._connection, Codebooks(*self.reader.codebooks), self.config)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the networks: slots mean something only to those that wrote them."""
        return f"{self.reader.fingerprint}-{self.codec.fingerprint}"

    def recall(
        self, questions: Sequence[Question], pooled: Floats, hidden: Sequence[Collection[int]] | None = None
    ) -> list[Recall]:
        """Return what memory says to questions.

        Args:
            questions: What is asked.
            pooled: The questions' vectors from the base encoder. Shape `batch width`.
            hidden: Per question, numbers of facts that are taken not to be there: leave-one-out.

        Returns:
            Recalls in order, without citations: these are in documents.

        Raises:
            KernelError: The slots were written by other networks.
        """
        if not questions:
            return []
        clock = [time.perf_counter()]
        self.refresh()
        reads = self._read(questions, self.reader.keys(pooled), clock, hidden)
        answers = self._decoded(reads)
        facts = self.ledger.by_numbers(sorted({number for read in reads for number in read.shares.of_fact}))
        clock.append(time.perf_counter())
        steps = tuple(
            Step(name, (after - before) / len(questions))
            for name, before, after in zip(("address", "judge", "decode"), clock, clock[1:], strict=False)
        )
        recalls = []
        for question, read, answer in zip(questions, reads, answers, strict=True):
            listed = tuple(
                FactShare(facts[number].id, share, read.cosines[number])
                for number, share in read.shares.of_fact.items()
            )
            fact = facts[next(iter(read.shares.of_fact))] if listed else None
            best = listed[0].probability if listed else 0.0
            recalls.append(Recall(question, answer, best, read.shares.not_known, listed, fact, (), steps))
        return recalls

    def nearest(
        self, questions: Sequence[Question], pooled: Floats, n: int, hidden: Sequence[Collection[int]] | None = None
    ) -> list[list[tuple[int, float]]]:
        """Return per question up to `n` facts of its kind with their cosines, nearest first; nothing is judged."""
        found = []
        for question, of_one in zip(
            questions, self._found(self.reader.keys(pooled), n * SLOTS_PER_FACT, hidden), strict=True
        ):
            facts: dict[int, float] = {}
            for one in of_one:
                if one.kind is question.kind and one.cosine >= self.config.least_cosine:
                    facts.setdefault(one.fact, one.cosine)
            found.append(list(facts.items())[:n])
        return found

    def memorise(self, facts: Sequence[Learned]) -> ReadBack:
        """Write facts' slots, read them back, correct those that fail, and erase those that still fail.

        A fact that would take the question of one that memory holds already fails, too.

        Args:
            facts: Facts, or further questions of facts, that are in the ledger and have no such slots.

        Returns:
            Which facts memory now holds; of one that fails the slots just written are erased.

        Raises:
            KernelError: The slots were written by other networks.
        """
        self.refresh()
        self._note_networks()
        owners = [(fact, i) for fact in facts for i in range(len(fact.questions))]
        own: dict[int, list[int]] = {}
        for number, (fact, _) in zip(self.slots.add([_slot(fact, i) for fact, i in owners]), owners, strict=True):
            own.setdefault(fact.number, []).append(number)
        refused: dict[int, str] = {}

        def refuse(failed: Sequence[tuple[Learned, str]]) -> None:
            refused.update((fact.number, reason) for fact, reason in failed)
            self.slots.erase([number for fact, _ in failed for number in own[fact.number]])

        weak = self._failures(facts)
        self._correct(weak, own)
        refuse(self._failures([fact for fact, _ in weak]))
        corrected = [fact for fact, _ in weak if fact.number not in refused]
        refuse(self._failures(self._beside(corrected, [fact for fact in facts if fact.number not in refused])))
        refuse(self._intruders([fact for fact in facts if fact.number not in refused]))
        n_refined = sum(fact.number not in refused for fact, _ in weak)
        kept = tuple(fact.number for fact in facts if fact.number not in refused)
        return ReadBack(kept, n_refined, tuple(sorted(refused.items())))

    def forget(self, facts: Sequence[int]) -> int:
        """Erase the slots of facts, whatever networks wrote them, and return how many there were."""
        return erase_slots(self._connection, facts)

    def begin_anew(self) -> None:
        """Erase all slots, whatever networks wrote them, inside the open write transaction."""
        erase_all(self._connection)
        self.slots.refresh()

    def refresh(self) -> None:
        """Bring the index to what the open transaction sees; KernelError where other networks wrote the slots."""
        row = self._connection.execute("SELECT value FROM parameters WHERE name = ?", (KERNEL,)).fetchone()
        if row is not None and row[0] != self.fingerprint and not self._is_empty():
            raise KernelError(
                f"the slots were written by the networks {row[0]}, this byheart has {self.fingerprint}; "
                "write them anew with: byheart train memory KB --steps 0"
            )
        self.slots.refresh()

    def _is_empty(self) -> bool:
        return self._connection.execute("SELECT 1 FROM slots LIMIT 1").fetchone() is None

    def _note_networks(self) -> None:
        self._connection.execute("INSERT OR REPLACE INTO parameters VALUES (?, ?)", (KERNEL, self.fingerprint))

    def _read(
        self,
        questions: Sequence[Question],
        keys: Floats,
        clock: list[float],
        hidden: Sequence[Collection[int]] | None = None,
    ) -> list[_Read]:
        return self._judged(questions, self._candidates(questions, keys, hidden), clock)

    def _judged(self, questions: Sequence[Question], found: Sequence[list[Found]], clock: list[float]) -> list[_Read]:
        values = self.slots.values(
            [one.number for of_one in found for one in of_one], self.reader.value_width, self.codec.width
        )
        clock.append(time.perf_counter())
        odds = self.reader.odds(
            [question.text for question in questions], [[values[one.number][0] for one in of_one] for of_one in found]
        )
        clock.append(time.perf_counter())
        reads = []
        weight = self.reader.gap_weight if found else 0.0
        for of_one, weighed in zip(found, odds, strict=True):
            near = max((one.cosine for one in of_one), default=0.0)
            scores = [float(o) - weight * (near - one.cosine) for o, one in zip(weighed, of_one, strict=True)]
            split = shares(scores, [one.fact for one in of_one], [one.number for one in of_one])
            best = next(iter(split.of_fact), None)
            spelling = None if best is None else values[split.slot_of[best]][1]
            reads.append(_Read(split, spelling, {one.fact: one.cosine for one in reversed(of_one)}))
        return reads

    def _found(self, keys: Floats, k: int, hidden: Sequence[Collection[int]] | None) -> list[list[Found]]:
        """Return per question up to `k` slots by falling cosine, those of its hidden facts left out."""
        if hidden is None:
            return self.slots.search(keys, k)
        doomed = self.slots.of_facts([fact for out in hidden for fact in out])
        found = self.slots.search(keys, k + sum(map(len, doomed.values())))  # what is hidden takes nobody's place
        return [[one for one in of_one if one.fact not in out][:k] for of_one, out in zip(found, hidden, strict=True)]

    def _candidates(
        self, questions: Sequence[Question], keys: Floats, hidden: Sequence[Collection[int]] | None = None
    ) -> list[list[Found]]:
        """Return per question the nearest slot of each of the nearest facts of its kind."""
        wanted = self.config.candidates
        chosen = []
        for question, of_one in zip(questions, self._found(keys, wanted * SLOTS_PER_FACT, hidden), strict=True):
            nearest: dict[int, Found] = {}
            for one in of_one:
                farthest = next(iter(nearest.values())).cosine - self.config.reach if nearest else -1.0
                if one.kind is question.kind and one.cosine >= max(self.config.least_cosine, farthest):
                    nearest.setdefault(one.fact, one)
            chosen.append(list(nearest.values())[:wanted])
        return chosen

    def _decoded(self, reads: Sequence[_Read]) -> list[str | None]:
        spelled = [read.spelling for read in reads if read.spelling is not None]
        answers = iter(self.codec.read(spelled) if spelled else [])
        return [next(answers) if read.spelling is not None else None for read in reads]

    def _failures(self, facts: Sequence[Learned]) -> list[tuple[Learned, str]]:
        """Return the facts that are not recalled exactly from each of their questions, and why."""
        if not facts:
            return []
        questions = [Question(text, fact.kind) for fact in facts for text in fact.questions]
        reads = self._read(questions, _keys(facts), [])
        owners = [fact for fact in facts for _ in fact.questions]
        failed: dict[int, tuple[Learned, str]] = {}
        for fact, read, answer in zip(owners, reads, self._decoded(reads), strict=True):
            reason = _reason(fact, read.shares, answer)
            if reason:
                failed.setdefault(fact.number, (fact, reason))
        return list(failed.values())

    def _correct(self, weak: Sequence[tuple[Learned, str]], own: Mapping[int, Sequence[int]]) -> None:
        """Refine the slots of facts that failed, spelling or meaning; other slots stay as they are."""
        slots = [
            (number, fact, question)
            for fact, _ in weak
            for number, question in zip(own[fact.number], fact.questions, strict=True)
        ]
        if not slots:
            return
        values = self.slots.values([number for number, *_ in slots], self.reader.value_width, self.codec.width)
        meanings = self.writer.refine([question for *_, question in slots], [values[n][0] for n, *_ in slots])
        changed = {}
        for (number, fact, _), meaning in zip(slots, meanings, strict=True):
            spelling = values[number][1]
            if self.codec.read([spelling]) != [fact.answer]:
                spelling = self.codec.refine(spelling, fact.answer) or spelling
            changed[number] = (meaning, spelling)
        self.slots.replace_values(changed)

    def _beside(self, corrected: Sequence[Learned], facts: Sequence[Learned]) -> list[Learned]:
        """Return the facts whose questions are in reach of one that was corrected: it may stand in their way now."""
        done = {fact.number for fact in corrected}
        others = [fact for fact in facts if fact.number not in done]
        if not corrected or not others:
            return []
        keys, reach = _keys(corrected), 1 - self.config.reach
        return [fact for fact in others if float((_keys([fact]) @ keys.T).max()) >= reach]

    def _intruders(self, facts: Sequence[Learned]) -> list[tuple[Learned, str]]:
        """Return the new facts that now answer a question which was another fact's, while texts are kept."""
        new = {fact.number: fact for fact in facts}
        near: dict[int, set[int]] = {}
        found = self.slots.search(_keys(facts), self.config.candidates * SLOTS_PER_FACT) if facts else []
        for owner, of_one in zip([fact for fact in facts for _ in fact.questions], found, strict=True):
            for one in of_one:
                if one.fact not in new and one.cosine >= NEAR and one.kind is owner.kind:
                    near.setdefault(one.fact, set()).add(owner.number)
        taken = self._taken(sorted(near), new)
        return [
            (new[thief], f"it would answer a question of {fact_id}; word the two so that they can be told apart")
            for thief, fact_id in taken.items()
        ]

    def _taken(self, facts: Sequence[int], new: Collection[int]) -> dict[int, str]:
        """Return which new facts are recalled for a question of one of these facts, and whose question it is."""
        held, slots = self.ledger.by_numbers(facts), self.slots.of_facts(facts)
        asked = [
            (number, Question(held[number].questions[position], held[number].kind), key)
            for number in facts
            for position, key in slots.get(number, [])
            if position < len(held[number].questions)
        ]
        if not asked:
            return {}
        questions = [question for _, question, _ in asked]
        found = self._candidates(questions, np.stack([key for *_, key in asked]))
        # In a full memory most questions have no new fact in reach: only the others need to be judged again.
        exposed = [i for i, of_one in enumerate(found) if any(one.fact in new for one in of_one)]
        reads = self._judged([questions[i] for i in exposed], [found[i] for i in exposed], [])
        taken = {}
        for number, read in zip([asked[i][0] for i in exposed], reads, strict=True):
            best = next(iter(read.shares.of_fact), None)
            if best is not None and best in new:
                taken[best] = held[number].id
        return taken


def _keys(facts: Sequence[Learned]) -> Floats:
    return np.stack([slot.key for fact in facts for slot in fact.slots])


def _slot(fact: Learned, i: int) -> Slot:
    written = fact.slots[i]
    return Slot(fact.number, fact.first + i, written.key, written.meaning, written.spelling)


def _reason(fact: Learned, split: Shares, answer: str | None) -> str:
    """Return why a recall is not the fact; empty if it is."""
    best = next(iter(split.of_fact), None)
    if best != fact.number:
        return UNKNOWN if best is None else HIDDEN
    others = [share for number, share in split.of_fact.items() if number != best]
    if split.of_fact[best] < MARGIN * max(others, default=0.0):
        return HIDDEN
    if split.of_fact[best] < MARGIN * split.not_known:
        return UNKNOWN
    return "" if answer == fact.answer else SPELLING
