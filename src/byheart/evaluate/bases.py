"""The knowledge base that a suite runs on: built from the suite's corpus, completed after a kill, tuned once.

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
from byheart.errors import EvaluationError
from byheart.reports import AddReport, Progress, no_progress
from byheart.types import Answer, Document, Hit, Question

TUNED_MARK = "tuned-for-suite.txt"
_NOT_ANSWERING = ("evaluate", "train", "analysis", "serve", "cli.py", "show.py", "fakes.py")


class Base(Protocol):
    """A knowledge base, as far as suites use it."""

    @property
    def config(self) -> Config:
        """The settings."""

    @property
    def epoch(self) -> int:
        """Number of the last committed transaction."""

    def add_documents(
        self, documents: Iterable[Document], origin: str = "api", progress: Progress = no_progress
    ) -> AddReport:
        """Add what is not there with this content."""

    def tune(self, questions: Sequence[Question], passage_ids: Sequence[str]) -> object:
        """Fit the fusion weight."""

    def ask_many(self, questions: Sequence[Question], *, closed_book: bool = False) -> list[Answer]:
        """Return one answer per question."""

    def search_many(
        self, questions: Sequence[Question], k: int, *, dense_weight: float | None = None
    ) -> list[tuple[Hit, ...]]:
        """Return up to `k` hits per question: 0 is BM25 alone, 1 dense alone, None the fitted weight."""

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
    """

    name: str
    documents: Sequence[Document]
    settings: Mapping[str, object]
    tuning: tuple[Sequence[Question], Sequence[str]] = ((), ())


def open_base(folder: Path, changed: Mapping[str, object]) -> Base:
    """Open the knowledge base in a folder, or create an empty one.

    Args:
        folder: Its folder.
        changed: Settings of a new one that differ from the defaults.

    Returns:
        The open knowledge base.
    """
    from byheart.knowledge import KnowledgeBase, init
    from byheart.store.database import FILE

    if (folder / FILE).is_file():
        return KnowledgeBase(folder)
    config = Config()
    for key, value in changed.items():
        config = config.replace(key, value)
    return init(folder, config)


def complete(base: Base, folder: Path, corpus: Corpus, progress: Progress = no_progress) -> None:
    """Add what is missing of a corpus, and tune the fusion weight unless that was done.

    Args:
        base: The open knowledge base.
        folder: Its folder; a file in it says that it was tuned.
        corpus: What it must hold.
        progress: Called with how much is done.

    Raises:
        EvaluationError: A document can't be added, such as when its id is taken by another one.
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


def identity(base: Base, folder: Path) -> dict[str, object]:
    """Return all that a knowledge base's outputs depend on.

    Args:
        base: The open knowledge base.
        folder: Its folder.

    Returns:
        Names and values: folder, epoch, settings, and hashes of the shipped weights and of the code that answers.
    """
    from byheart.reader.compact import shipped_weights

    return {
        "folder": str(folder.resolve()),
        "epoch": base.epoch,
        "config": settings.dumps(base.config),
        "weights": _digest([shipped_weights()]),
        "code": _digest(sorted(_answering_code())),
    }


def _answering_code() -> list[Path]:
    package = Path(__file__).resolve().parent.parent
    return [path for path in package.rglob("*.py") if path.relative_to(package).parts[0] not in _NOT_ANSWERING]


def _digest(paths: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        if path.is_file():
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
