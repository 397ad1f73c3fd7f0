"""What long work tells: reports of adding, removing and learning, sizes, and progress.

Owns the shape of what a command prints when it is done. Knows nothing of models, databases or files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Refusal:
    """A file or record that was not added, and why.

    Attributes:
        source: Path or record.
        reason: What was wrong and what to do.
    """

    source: str
    reason: str


@dataclass(frozen=True, slots=True)
class AddReport:
    """What `add` did, page by page; every input is in exactly one of the groups.

    Attributes:
        added: Pages new to the knowledge base.
        updated: Pages whose content changed.
        unchanged: Pages already there with this content.
        removed: Pages under an added folder whose file is gone.
        refused: What could not be read, with reasons.
        notices: Things a user should know, such as text split because it was too long for the encoder.
        passages_added: Passages written.
        passages_removed: Passages deleted.
        epoch: Epoch after the add.
    """

    added: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    refused: tuple[Refusal, ...] = ()
    notices: tuple[str, ...] = ()
    passages_added: int = 0
    passages_removed: int = 0
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class RemoveReport:
    """What `remove` did.

    Attributes:
        removed: Pages that are gone.
        missing: Names that matched no page.
        passages_removed: Passages deleted.
        epoch: Epoch after the removal.
        notices: Things a user should know, such as that traces of the text cannot leave the file yet.
    """

    removed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    passages_removed: int = 0
    epoch: int = 0
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LearnReport:
    """What `learn` did, fact by fact; every fact is in exactly one of the groups.

    Attributes:
        memorised: Ids of facts that memory now recalls exactly.
        unchanged: Ids of facts that were there already.
        extended: Ids of facts that got further paraphrases.
        refused: Facts that memory could not take, with reasons; in the ledger all the same where they are well formed.
        conflicts: Facts whose question is held with another answer; nothing was changed.
        notices: Things a user should know, such as that a source was not found.
        refined: Facts whose slot had to be corrected after reading it back.
        epoch: Epoch after learning.
        seconds: Seconds the whole took.
    """

    memorised: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    extended: tuple[str, ...] = ()
    refused: tuple[Refusal, ...] = ()
    conflicts: tuple[Refusal, ...] = ()
    notices: tuple[str, ...] = ()
    refined: int = 0
    epoch: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Calibrated:
    """What calibrating the gate saw.

    Attributes:
        n: Questions.
        recalled: Questions for which memory had a candidate: what a risk is promised on.
        new: Those among them that come for the first time and in words that memory did not learn: it is promised on
            these alone, too.
        right: Share of right answers, per route.
        lowest_risk: The lowest of `gate.risk.RISKS` that these questions promise at confidence .95; None for none.
        epoch: Epoch after it.
    """

    n: int
    recalled: int
    new: int
    right: Mapping[str, float]
    lowest_risk: float | None
    epoch: int


@dataclass(frozen=True, slots=True)
class Trained:
    """What joint training gave.

    Attributes:
        n: Questions trained on.
        held_out: Questions with answers kept for calibration.
        unanswered: Questions without answers, of which those held out calibrate, too.
        loss_before: Objective on the questions trained on, in nats per question, before.
        loss_after: After.
        held_out_before: Negative log-likelihood on the questions held out, before.
        held_out_after: After.
        undone: Parts that did not help on the questions held out, and are as they were: memory, retriever.
        routes: Mean probability of each route after it.
        price: Of one retrieval, in probability of being right.
        lowest_risk: As in `Calibrated`, of the questions held out.
        epoch: Epoch after it.
    """

    n: int
    held_out: int
    unanswered: int
    loss_before: float
    loss_after: float
    held_out_before: float
    held_out_after: float
    undone: tuple[str, ...]
    routes: Mapping[str, float]
    price: float
    lowest_risk: float | None
    epoch: int


@dataclass(frozen=True, slots=True)
class Capacity:
    """How full the memory is.

    Attributes:
        facts: Facts in the ledger.
        memorised: Facts that memory answers with.
        slots: Slots in use.
        cells_used: Cells that hold a slot.
        cells_full: Cells that hold no more.
        cells: All cells.
        bytes_per_fact: Bytes of slots per memorised fact.
        recall: Share of facts with paraphrases that are among the candidates when asked by one of these, whose own slot
            is hidden; None where no fact has a paraphrase.
        recall_at_ten_times: The same, predicted for ten times as many facts.
    """

    facts: int
    memorised: int
    slots: int
    cells_used: int
    cells_full: int
    cells: int
    bytes_per_fact: float
    recall: float | None
    recall_at_ten_times: float | None


@dataclass(frozen=True, slots=True)
class Status:
    """Sizes and versions of a knowledge base.

    Attributes:
        path: Folder.
        epoch: Number of the last committed transaction.
        format_version: Number of the last migration.
        documents: Documents.
        passages: Passages.
        facts: Facts.
        terms: Distinct index terms.
        bytes_on_disk: Size of all files in the folder.
        encoder: Name of the encoder.
        encoder_hash: SHA-256 of the encoder's weights, shortened.
        index: Name of the index engine.
        reader: Name of the reader.
    """

    path: str
    epoch: int
    format_version: int
    documents: int
    passages: int
    facts: int
    terms: int
    bytes_on_disk: int
    encoder: str
    encoder_hash: str
    index: str
    reader: str


class Progress(Protocol):
    """Called by long work: how much is done, of how much, and what."""

    def __call__(self, done: int, total: int, what: str) -> None:
        """Report that `done` of `total` units of `what` are finished."""


def no_progress(done: int, total: int, what: str) -> None:
    """Ignore a progress report."""
