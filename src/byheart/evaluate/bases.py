"""The knowledge base that a suite runs on: built from the suite's corpus and facts, completed after a kill, tuned once.

Owns what evaluation needs of a knowledge base, as a Protocol, and what its outputs depend on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from byheart import config as settings
from byheart.config import Config
from byheart.decisions import Decision, Route, Wishes
from byheart.errors import ConfigError, EvaluationError
from byheart.interfaces import Encoder
from byheart.reports import AddReport, Calibrated, Capacity, LearnReport, Progress, RemoveReport, no_progress
from byheart.types import Answer, Document, Fact, Hit, NewFact, Question, Recall

TUNED_MARK = "tuned-for-suite.txt"
LEARNED_MARK = "learned-for-suite.txt"
PACKAGE = Path(__file__).resolve().parent.parent
_NOT_ANSWERING = (
    *("evaluate", "train", "analysis", "serve", "fakes.py"),
    *("cli.py", "cli_memory.py", "cli_research.py", "show.py", "show_memory.py", "terminal.py"),
)


class Base(Protocol):
    """A knowledge base, as far as suites use it."""

    @property
    def config(self) -> Config:
        """The settings."""

    @property
    def epoch(self) -> int:
        """Number of the last committed transaction."""

    @property
    def encoder(self) -> Encoder:
        """The encoder of questions and passages."""

    def add_documents(
        self, documents: Iterable[Document], origin: str = "api", progress: Progress = no_progress
    ) -> AddReport:
        """Add what is not there with this content."""

    def tune(self, questions: Sequence[Question], passage_ids: Sequence[str]) -> object:
        """Fit the fusion weight."""

    def ask_many(
        self, questions: Sequence[Question], *, closed_book: bool = False, route: Route | None = None
    ) -> list[Answer]:
        """Return one answer per question."""

    def decide_many(
        self, questions: Sequence[Question], wishes: Sequence[Wishes]
    ) -> list[list[Decision] | ConfigError]:
        """Return which way questions would go under each wish, or why it cannot be kept."""

    def calibrate(
        self, questions: Sequence[Question], gold: Sequence[Sequence[str]], progress: Progress = no_progress
    ) -> Calibrated:
        """Fit the gate to held-out questions."""

    def configure(self, key: str, value: object) -> Config:
        """Change a setting."""

    def snapshot(self, target: str | Path) -> Path:
        """Write a whole copy to a new folder."""

    def remove(self, *names: str | Path) -> RemoveReport:
        """Remove documents."""

    def search_many(
        self, questions: Sequence[Question], k: int, *, dense_weight: float | None = None
    ) -> list[tuple[Hit, ...]]:
        """Return up to `k` hits per question: 0 is BM25 alone, 1 dense alone, None the fitted weight."""

    def learn(self, facts: Iterable[NewFact], progress: Progress = no_progress) -> LearnReport:
        """Learn facts; what is known already is left alone."""

    def recall_many(self, questions: Sequence[Question]) -> list[Recall]:
        """Return what memory alone says, one recall per question."""

    def facts(self) -> list[Fact]:
        """Return all facts, memorised or not."""

    def forget(self, *fact_ids: str) -> int:
        """Remove facts, and return how many."""

    def capacity(self) -> Capacity:
        """Return how full the memory is, and its recall."""

    def close(self) -> None:
        """Close it."""


OpenBase = Callable[[Path, Mapping[str, object]], Base]


@dataclass(frozen=True, slots=True)
class Corpus:
    """What a suite's knowledge base holds.

    Attributes:
        name: The suite's, under which the documents are added.
        documents: All of them.
        settings: Settings that differ from the defaults.
        tuning: Training questions and the passage that answers each; none leaves the fusion weight as configured.
        facts: What its memory holds, and nothing else; none leaves the memory alone.
    """

    name: str
    documents: Sequence[Document]
    settings: Mapping[str, object]
    tuning: tuple[Sequence[Question], Sequence[str]] = ((), ())
    facts: Sequence[NewFact] = ()


def open_base(folder: Path, changed: Mapping[str, object]) -> Base:
    """Open the knowledge base in a folder, or create an empty one.

    Args:
        folder: Its folder.
        changed: Settings of a new one that differ from the defaults.

    Returns:
        The open knowledge base.
    """
    from byheart.folder import init
    from byheart.knowledge import KnowledgeBase
    from byheart.store.database import FILE

    if (folder / FILE).is_file():
        return KnowledgeBase(folder)
    config = Config()
    for key, value in changed.items():
        config = config.replace(key, value)
    return init(folder, config)


def complete(base: Base, folder: Path, corpus: Corpus, progress: Progress = no_progress) -> None:
    """Add what is missing of a corpus, tune the fusion weight unless that was done, and learn what is missing of facts.

    Args:
        base: The open knowledge base.
        folder: Its folder; a file in it says that it was tuned.
        corpus: What it must hold.
        progress: Called with how much is done.

    Raises:
        EvaluationError: A document can't be added, such as when its id is taken by another one; or the memory holds
            facts that are not the suite's.
    """
    report = base.add_documents(corpus.documents, origin=corpus.name, progress=progress)
    if report.refused:
        first = report.refused[0]
        raise EvaluationError(
            f"{len(report.refused)} documents can't be added to {folder}, first {first.source}: {first.reason}; "
            "pass a new folder with --kb"
        )
    mark = folder / TUNED_MARK
    is_tuned = mark.is_file() and not report.added and not report.updated
    if len(corpus.tuning[0]) and not is_tuned:
        base.tune(*corpus.tuning)
        mark.write_text(
            f"{corpus.name}: fusion weight fitted on {len(corpus.tuning[0]):,} training questions\n", "utf-8"
        )
    if corpus.facts:
        _learn(base, folder, corpus, progress)


def was_learned_alike(folder: Path) -> bool:
    """Return whether the facts in a suite's folder were learned by this code with these weights."""
    mark = folder / LEARNED_MARK
    return mark.is_file() and mark.read_text("utf-8") == _writers()


def mark_learner(folder: Path) -> None:
    """Note in a suite's folder which code and weights learn its facts."""
    (folder / LEARNED_MARK).write_text(_writers(), "utf-8")


def identity(base: Base, folder: Path) -> dict[str, object]:
    """Return all that a knowledge base's outputs depend on.

    Args:
        base: The open knowledge base.
        folder: Its folder.

    Returns:
        Names and values: folder, epoch, settings, and hashes of the shipped weights and of the code that answers.
    """
    return {
        "folder": str(folder.resolve()),
        "epoch": base.epoch,
        "config": settings.dumps(base.config),
        "weights": _digest(_shipped_weights()),
        "code": _digest(_answering_code()),
    }


def _learn(base: Base, folder: Path, corpus: Corpus, progress: Progress) -> None:
    """Learn what is missing; what other code or other weights wrote, or refused, is forgotten first."""
    held, wanted = [fact.id for fact in base.facts()], {fact.id for fact in corpus.facts}
    strangers = [fact_id for fact_id in held if fact_id not in wanted]
    if strangers:
        raise EvaluationError(
            f"{folder} holds {len(strangers)} facts that are not the suite's, first {strangers[0]!r}; "
            "pass a new folder with --kb"
        )
    if not was_learned_alike(folder):
        base.forget(*held)
        mark_learner(folder)
    base.learn(corpus.facts, progress)


def _writers() -> str:
    return f"code {_digest(_answering_code())}, weights {_digest(_shipped_weights())}\n"


def _answering_code() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if path.relative_to(PACKAGE).parts[0] not in _NOT_ANSWERING)


def _shipped_weights() -> list[Path]:
    return sorted(path for folder in PACKAGE.rglob("weights") for path in folder.iterdir() if path.is_file())


def _digest(paths: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        if path.is_file():
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
