"""Knowledge bases beside the suite's own, for suites that learn more than one set of facts.

Owns their folders. A killed run finds them as far as they were filled; a finished one leaves none.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from byheart.evaluate import bases
from byheart.evaluate.bases import Base, Corpus, OpenBase
from byheart.evaluate.session import Session
from byheart.types import NewFact


@dataclass(frozen=True, slots=True)
class Spares:
    """Spare knowledge bases of one run, without documents.

    Attributes:
        folder: Where they are.
        open_base: Opens one.
    """

    folder: Path
    open_base: OpenBase

    @contextmanager
    def opened(self, name: str, *, anew: bool = False) -> Iterator[Base]:
        """Open one, and close it in the end.

        Args:
            name: Its name; what an earlier, killed run learned into it with the same code and weights is there.
            anew: Whether it must be empty.

        Yields:
            The open knowledge base.
        """
        folder = self.folder / name
        if anew or not bases.was_learned_alike(folder):
            shutil.rmtree(folder, ignore_errors=True)
        base = self.open_base(folder, {})
        try:
            bases.mark_learner(folder)
            yield base
        finally:
            base.close()

    @contextmanager
    def holding(self, session: Session, name: str, facts: Sequence[NewFact]) -> Iterator[Session]:
        """Open one that holds exactly these facts, those learned that were missing.

        Args:
            session: The suite's run.
            name: Its name.
            facts: The facts.

        Yields:
            The run over this knowledge base.
        """
        with self.opened(name) as base:
            folder = self.folder / name
            bases.complete(base, folder, Corpus(session.suite, (), {}, facts=facts), session.progress)
            yield replace(session, base=base, identity=bases.identity(base, folder))

    @contextmanager
    def copied(self, session: Session, name: str) -> Iterator[Session]:
        """Open a whole copy of a run's knowledge base, made anew, and remove it in the end.

        Args:
            session: The run.
            name: The copy's name.

        Yields:
            The run over the copy.
        """
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        session.base.snapshot(folder)
        base = self.open_base(folder, {})
        try:
            yield replace(session, base=base, identity=bases.identity(base, folder))
        finally:
            base.close()
            shutil.rmtree(folder, ignore_errors=True)

    def remove(self) -> None:
        """Remove all of them."""
        shutil.rmtree(self.folder, ignore_errors=True)
