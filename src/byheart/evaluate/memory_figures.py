"""From what a memory said to figures: coverage at a precision, false answers, facts memorised.

Owns names of these measures. `right@precision0.95` and `wrong@precision0.95` say what becomes of a part of the queries
at the one threshold that gives 95 % precision over all of them; `coverage@precision0.95` is for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from byheart.evaluate import selective
from byheart.evaluate.bases import Base
from byheart.evaluate.calibration import calibration_error
from byheart.evaluate.cosine_cache import SYSTEM as CACHE
from byheart.evaluate.figures import Figure, Subject
from byheart.evaluate.intervals import binomial
from byheart.evaluate.memory_queries import Query
from byheart.evaluate.recalling import Said
from byheart.evaluate.selective import Rated
from byheart.evaluate.session import Session
from byheart.types import FactState, NewFact

MEMORY = "byheart"
PRECISIONS = (0.95, 0.98, 0.99)
HEADLINE = 0.95


@dataclass(frozen=True, slots=True)
class Compared:
    """What the memory and the cache said to the same queries.

    Attributes:
        queries: What was asked.
        said: What was said, by system.
    """

    queries: tuple[Query, ...]
    said: Mapping[str, tuple[Said, ...]]

    def rated(self, system: str) -> Rated:
        """Return the queries with what a system made of them."""
        said = self.said[system]
        return Rated.of(
            [-np.inf if one.fact is None else one.score for one in said],
            [is_right(query, one) for query, one in zip(self.queries, said, strict=True)],
            [query.fact is not None for query in self.queries],
            [query.group for query in self.queries],
        )

    def chosen(self, places: Sequence[int]) -> Compared:
        """Return a part, by places in the queries."""
        said = {system: tuple(of_all[i] for i in places) for system, of_all in self.said.items()}
        return Compared(tuple(self.queries[i] for i in places), said)

    def thresholds(self) -> dict[str, float]:
        """Return each system's threshold for the headline's precision over these queries."""
        return {system: selective.threshold_at_precision(self.rated(system), HEADLINE) for system in self.said}


def is_right(query: Query, said: Said) -> bool:
    """Return whether what was said is the fact that answers the query."""
    return query.fact is not None and said.fact == query.fact


def coverage_figures(session: Session, split: str, compared: Compared) -> list[Figure]:
    """Return each system's coverage at each precision, the lead of the memory, and the share right if all is answered.

    Args:
        session: The run.
        split: Name of the queries.
        compared: What was said to them; some are known.

    Returns:
        Figures; `n` counts known and unknown queries, coverage is a share of the known ones.
    """
    rated = {system: compared.rated(system) for system in compared.said}
    figures = [_first_figure(Subject(session, split, system), of_system) for system, of_system in rated.items()]
    for precision in PRECISIONS:
        name = f"coverage@precision{precision}"
        for system, of_system in rated.items():
            covered = selective.coverage_interval(of_system, precision, session.rng())
            figures.append(Subject(session, split, system).figure(name, "share", covered))
        if CACHE in rated:
            lead = selective.coverage_lead(rated[MEMORY], rated[CACHE], precision, session.rng())
            figures.append(Subject(session, split, MEMORY).figure(f"{name} above {CACHE}", "difference", lead))
    return figures


def _first_figure(subject: Subject, rated: Rated) -> Figure:
    """Return the share of known queries whose fact comes first, however unsure the system is."""
    return subject.figure("first", "share", binomial(int(rated.right.sum()), int(rated.known.sum())))


def auc_figures(session: Session, split: str, compared: Compared) -> list[Figure]:
    """Return how well each system's scores tell known queries from unknown ones."""
    return [
        Subject(session, split, system).figure(
            "auc", "share", selective.auc_interval(compared.rated(system), session.rng())
        )
        for system in compared.said
    ]


def part_figures(session: Session, split: str, part: Compared, thresholds: Mapping[str, float]) -> list[Figure]:
    """Return the shares of some queries answered right and answered wrong, at thresholds chosen on all of them.

    Args:
        session: The run.
        split: Name of the part.
        part: What was said to them.
        thresholds: By system.

    Returns:
        Figures; none of right answers where no query is known.
    """
    figures = []
    for system, threshold in thresholds.items():
        subject, rated = Subject(session, split, system), part.rated(system)
        answered = (rated.scores >= threshold) & np.isfinite(rated.scores)
        counts = {"wrong": int((answered & ~rated.right).sum())}
        if rated.known.any():
            counts = {"right": int((answered & rated.right).sum()), **counts}
        figures += [
            subject.figure(f"{name}@precision{HEADLINE}", "share", binomial(count, len(part.queries)))
            for name, count in counts.items()
        ]
    return figures


def configured_figures(session: Session, split: str, compared: Compared) -> list[Figure]:
    """Return how far the memory can be trusted as configured: at its default threshold, and as a probability.

    Args:
        session: The run.
        split: Name of the queries.
        compared: What was said to them.

    Returns:
        Share of known queries answered right, share of unknown ones answered, precision among the answered, and
        calibration error; none that would be about no query.
    """
    subject, rated = Subject(session, split, MEMORY), compared.rated(MEMORY)
    answered = (rated.scores >= session.base.config.memory.threshold) & np.isfinite(rated.scores)
    shares = {
        "coverage": (answered & rated.right, rated.known),
        "false_memory_answers": (answered & ~rated.known, ~rated.known),
        "answer_precision": (answered & rated.right, answered),
    }
    figures = [
        subject.figure(name, "share", binomial(int(counted.sum()), int(among.sum())))
        for name, (counted, among) in shares.items()
        if among.any()
    ]
    offered = np.isfinite(rated.scores)
    if offered.any():
        error = calibration_error(rated.scores[offered], rated.right[offered], session.rng())
        figures.append(subject.figure("ece", "share", error))
    return figures


def memorised(base: Base) -> set[str]:
    """Return the ids of the facts that memory answers with."""
    return {fact.id for fact in base.facts() if fact.state is FactState.MEMORISED}


def memorised_figure(session: Session, split: str, facts: Sequence[NewFact]) -> Figure:
    """Return the share of facts that memory took; `session` is over the base that learned them."""
    held = memorised(session.base)
    share = binomial(sum(fact.id in held for fact in facts), len(facts))
    return Subject(session, split, MEMORY).figure("memorised", "share", share)


def by_kind(queries: Sequence[Query]) -> dict[str, list[int]]:
    """Return places of queries by kind, in order of first use."""
    places: dict[str, list[int]] = {}
    for i, query in enumerate(queries):
        places.setdefault(query.kind, []).append(i)
    return places
