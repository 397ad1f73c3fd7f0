"""The knowledge base's facts: learned, recalled, listed, forgotten.

Owns which networks stand behind the memory, which encoder feeds it, where an answer from memory is cited, and how uses
are counted. Part of the composition root; `knowledge` is its only caller.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from byheart.capacity import measured
from byheart.config import Config, EncoderConfig
from byheart.errors import FactError, FormatError, KernelError, KnowledgeError
from byheart.grounds import grounds
from byheart.interfaces import Encoder, Floats
from byheart.learning import Learning
from byheart.memory.ledger import Ledger
from byheart.memory.reader import BASE, MemoryReader, base_fingerprint
from byheart.memory.slot_memory import SlotMemory
from byheart.memory.slots import erase_slots
from byheart.reports import Capacity, LearnReport, Progress, Refusal
from byheart.rewriting import WEIGHTS, rewrite
from byheart.store.database import Database
from byheart.store.documents import Documents
from byheart.text.encoder import SentenceEncoder
from byheart.text.models import model_folder
from byheart.types import Citation, Fact, FactState, Kind, NewFact, Passage, Question, Recall, Step

if TYPE_CHECKING:
    from byheart.memory.answers import AnswerCodec

USES_PER_WRITE = 256
FACTS_PER_PASSAGE = 5  # facts looked at for every passage read beside them: many rest on the same words
_Networks = tuple[Path | None, tuple[float, float, float] | None]  # the kernel's file, and a calibration of its own
MEMORY_CALIBRATION = "memory_calibration"  # the parameter that joint training writes


class Facts:
    """Facts of one knowledge base."""

    def __init__(self, folder: Path, database: Database, config: Config, encoder: Callable[[], Encoder]) -> None:
        """Keep what is given; networks are loaded when first needed.

        Args:
            folder: The knowledge base's folder.
            database: The open database.
            config: Settings.
            encoder: Gives the knowledge base's encoder.
        """
        self._folder, self._database, self._config, self._encoder = folder, database, config, encoder
        self._memory: tuple[_Networks, SlotMemory] | None = None
        self._uses: Counter[str] = Counter()
        self._uses_lock = threading.Lock()  # never held while the database is asked for

    @cached_property
    def ledger(self) -> Ledger:
        """What is known of facts beside their slots."""
        return Ledger(self._database.connection, self._config.ledger.text)

    @property
    def slots(self) -> SlotMemory:
        """The slots, with the networks in use now: another process may adapt them, or restore a snapshot."""
        with self._database.read():  # threads take turns
            wanted = self.own_weights(), self._own_calibration()
            if self._memory is None or self._memory[0] != wanted:
                self._memory = wanted, self._memory_with(*wanted)
            return self._memory[1]

    def _own_calibration(self) -> tuple[float, float, float] | None:
        """Return the calibration that joint training gave this knowledge base, None where the kernel's holds."""
        row = self._database.connection.execute(
            "SELECT value FROM parameters WHERE name = ?", (MEMORY_CALIBRATION,)
        ).fetchone()
        if row is None:
            return None
        try:
            slope, offset, weight = (float(number) for number in json.loads(row[0]))
            if not all(map(math.isfinite, (slope, offset, weight))):
                raise ValueError(f"not finite: {row[0]:.80}")
        except (ValueError, TypeError) as error:
            raise FormatError(
                f"memory's calibration cannot be read ({error}); restore a snapshot, or run: byheart train memory KB"
            ) from error
        return slope, offset, weight

    def own_weights(self) -> Path | None:
        """Return the kernel that was adapted to this knowledge base, None where the shipped one is used."""
        with self._database.read() as connection:
            row = connection.execute("SELECT value FROM parameters WHERE name = ?", (WEIGHTS,)).fetchone()
        return None if row is None else self._folder / str(row[0])

    def _memory_with(self, weights: Path | None, calibration: tuple[float, float, float] | None = None) -> SlotMemory:
        reader = MemoryReader(weights, self._config.encoder.device, self._config.memory.precision, calibration)
        return SlotMemory(self._database.connection, self._config.memory, self.ledger, reader, self._codec)

    @cached_property
    def _codec(self) -> AnswerCodec:
        from byheart.memory.answers import AnswerCodec

        return AnswerCodec(device=self._config.encoder.device)

    @cached_property
    def _own_encoder(self) -> Encoder:
        """The memory's base encoder: the knowledge base's own where that is the same, so that a question runs once.

        All kernels share it, so it stays when the kernel changes.
        """
        shared = self._encoder()
        if shared.fingerprint == base_fingerprint(model_folder(BASE)):
            return shared
        return SentenceEncoder(EncoderConfig(device=self._config.encoder.device))

    def encode(self, texts: Sequence[str]) -> Floats:
        """Return vectors of questions as the memory wants them. Shape `batch width`."""
        return self._own_encoder.encode_queries(texts)

    def learn(self, facts: Iterable[NewFact], progress: Progress, refused: Sequence[Refusal] = ()) -> LearnReport:
        """Learn facts, and return what happened to each, and to what was refused before it was a fact."""
        report = Learning(self._database, self.encode, lambda: self.slots).learn(facts, progress)
        return replace(report, refused=(*refused, *report.refused))

    def recall(self, questions: Sequence[Question]) -> list[Recall]:
        """Return what memory alone says to questions, with citations and seconds per step.

        Args:
            questions: Questions and claims.

        Returns:
            Recalls in order.
        """
        if not questions:
            return []
        start = time.perf_counter()
        pooled = self.encode([question.text for question in questions])
        encoding = Step("encode", (time.perf_counter() - start) / len(questions))
        with self._database.read():
            recalls = self._recalled(questions, pooled)
        self.count(recalls)
        return [replace(recall, seconds=(encoding, *recall.seconds)) for recall in recalls]

    def recall_held(
        self, questions: Sequence[Question], queries: Floats, hidden: Sequence[Collection[int]] | None = None
    ) -> list[Recall]:
        """Return recalls inside an open transaction.

        Args:
            questions: Questions and claims.
            queries: Their vectors by the knowledge base's encoder. Shape `batch width`.
            hidden: Per question, numbers of facts that are taken not to be there.

        Returns:
            Recalls in order.
        """
        return self._recalled(questions, self._pooled(questions, queries), hidden)

    def _pooled(self, questions: Sequence[Question], queries: Floats) -> Floats:
        """Return the questions' vectors as the memory wants them, from those by the knowledge base's encoder."""
        is_shared = self._own_encoder is self._encoder()
        return queries if is_shared else self.encode([question.text for question in questions])

    def are_learned(self, questions: Sequence[Question]) -> list[bool]:
        """Return of each question whether it is, but for its form, one that a fact was learned with."""
        with self._database.read():
            asked = {kind: self.ledger.asks(kind, [q.text for q in questions if q.kind is kind]) for kind in Kind}
        return [question.text in asked[question.kind] for question in questions]

    def is_used(self) -> bool:
        """Return whether there is a slot: without one no network needs to be loaded."""
        with self._database.read() as connection:
            return connection.execute("SELECT 1 FROM slots LIMIT 1").fetchone() is not None

    def unreadable(self) -> str:
        """Return why the networks in use cannot read the slots, as the KernelError says it; empty where they can."""
        if not self.is_used():
            return ""
        try:
            with self._database.read():
                self.slots.refresh()
        except KernelError as error:
            return str(error)
        return ""

    def _recalled(
        self, questions: Sequence[Question], pooled: Floats, hidden: Sequence[Collection[int]] | None = None
    ) -> list[Recall]:
        epoch, documents = self._database.epoch, Documents(self._database.connection)
        return [
            replace(found, citations=cited(found.fact, documents), epoch=epoch)
            for found in self.slots.recall(questions, pooled, hidden)
        ]

    def grounds(
        self,
        questions: Sequence[Question],
        queries: Floats,
        recalls: Sequence[Recall],
        n: int,
        hidden: Sequence[Collection[int]] | None = None,
    ) -> list[tuple[tuple[Passage, float], ...]]:
        """Return the words that facts rest on, inside an open transaction: what is recalled first, then what is near.

        Args:
            questions: What is asked.
            queries: Their vectors by the knowledge base's encoder. Shape `batch width`.
            recalls: What memory says to them.
            n: Passages at most, per question.
            hidden: Per question, numbers of facts that are taken not to be there.

        Returns:
            Per question passages, each with its fact's cosine.
        """
        if not questions:
            return []
        documents = Documents(self._database.connection)
        pooled = self._pooled(questions, queries)
        near = self.slots.nearest(questions, pooled, n * FACTS_PER_PASSAGE, hidden)
        return [
            grounds(
                recall, list(self.ledger.by_numbers([number for number, _ in of_one]).items()), of_one, documents, n
            )
            for recall, of_one in zip(recalls, near, strict=True)
        ]

    def listed(self, search: str = "", limit: int | None = None) -> list[Fact]:
        """Return facts in the order they were learned, those that hold `search` where it is given."""
        with self._database.read():
            return self.ledger.facts(search, limit)

    def forget(self, fact_ids: Sequence[str]) -> int:
        """Remove facts with their slots and texts, in one epoch; no network is needed for it.

        Args:
            fact_ids: Ids of facts.

        Returns:
            How many were removed.

        Raises:
            FactError: There is no such fact; then none is removed.
        """
        if not fact_ids:
            return 0
        with self._database.write() as connection:
            try:
                numbers = [self.ledger.number(fact_id) for fact_id in dict.fromkeys(fact_ids)]
            except FactError as error:
                raise FactError(f"{error}; nothing was forgotten") from error
            erase_slots(connection, numbers)
            self.ledger.remove(numbers)
            self._database.owe_scrub()
        self._database.scrub()
        return len(numbers)

    def is_clean(self) -> bool:
        """Return whether all text that was deleted has left the file, which another process can keep from happening."""
        with self._database.read() as connection:
            return connection.execute("SELECT 1 FROM parameters WHERE name = 'unscrubbed'").fetchone() is None

    def capacity(self) -> Capacity:
        """Return how full the memory is, and how well addressing finds facts now and at ten times as many."""
        with self._database.read():
            return measured(self.slots, self._database.connection)

    def rewrite(self, weights: Path | None, progress: Progress) -> LearnReport:
        """Write all slots anew, in one epoch, with the kernel of a file below this folder, or the shipped one."""
        memory = self._memory_with(weights)
        name = None if weights is None else weights.relative_to(self._folder).as_posix()
        report = rewrite(self._database, memory, self.encode, name, progress)
        self._memory = (weights, None), memory
        return report

    def close(self) -> None:
        """Write the uses that were counted, before the database is closed; safe to call twice."""
        self._write_uses()

    def count(self, recalls: Sequence[Recall]) -> None:
        """Count a use of the fact of each recall that is probable enough; `close` writes what is not yet written.

        Args:
            recalls: What was answered with, once each.
        """
        threshold = self._config.memory.threshold
        with self._uses_lock:
            self._uses.update(r.fact.id for r in recalls if r.fact is not None and r.probability >= threshold)
            is_due = self._uses.total() >= USES_PER_WRITE
        if is_due:
            self._write_uses()

    def _write_uses(self) -> None:
        with self._uses_lock:
            uses, self._uses = self._uses, Counter()
        if uses and not self._is_written(uses):
            with self._uses_lock:
                self._uses.update(uses)

    def _is_written(self, uses: Counter[str]) -> bool:
        """Add uses to the ledger's, and return whether that could be done now."""
        if self._database.connection.in_transaction:  # perhaps the caller's own: a second one cannot begin inside it
            return False
        try:
            with self._database.aside():
                self.ledger.count_uses(uses)
        except KnowledgeError:  # somebody else is writing, or the medium is read-only: they are counted later
            return False
        return True


def cited(fact: Fact | None, documents: Documents) -> tuple[Citation, ...]:
    """Return the place in a document that a fact rests on; its document's first passage where the place is not known.

    Args:
        fact: The fact.
        documents: The corpus, in the same transaction.

    Returns:
        One citation, or none where the fact came from no document, or is not memorised any more.
    """
    if fact is None or fact.source.page is None or fact.state is not FactState.MEMORISED:
        return ()
    held = documents.text_of(fact.source.passage_id or fact.source.page)
    if held is None or not held[2]:
        return ()
    page, text, passages = held
    passage = next((p for p in passages if p.id == fact.source.passage_id), passages[0])
    start, end = fact.source.start, fact.source.end
    if start is None or end is None:
        start, end = passage.start, passage.end
    return (Citation(passage.id, page, passage.title, start, end, text[start:end], passage.sheet),)
