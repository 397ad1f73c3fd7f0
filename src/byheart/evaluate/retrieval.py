"""Retrieval measured three ways: BM25 alone, dense alone, and both fused.

Owns the names of the three and how they are compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from byheart.evaluate.datasets import Task
from byheart.evaluate.figures import Figure, Subject, recall_columns
from byheart.evaluate.session import Session, search

ENGINES: Mapping[str, float | None] = {"bm25": 0.0, "dense": 1.0, "hybrid": None}
FUSED = "hybrid"


@dataclass(frozen=True, slots=True)
class Rankings:
    """What the three found.

    Attributes:
        by_engine: Documents by task id, by engine.
    """

    by_engine: Mapping[str, Mapping[str, tuple[str, ...]]]

    def of(self, engine: str, tasks: Sequence[Task]) -> list[tuple[str, ...]]:
        """Return the documents an engine found for each task, best first."""
        return [self.by_engine[engine][task.id] for task in tasks]


def rank(session: Session, tasks: Sequence[Task], k: int) -> Rankings:
    """Return what BM25, dense and fused retrieval find for each task.

    Args:
        session: The run.
        tasks: What is searched for; a task that occurs twice is searched for once.
        k: Passages per task.

    Returns:
        The three rankings.
    """
    unique = list({task.id: task for task in tasks}.values())
    return Rankings(
        {
            name: dict(zip((t.id for t in unique), search(session, name, unique, k, weight), strict=True))
            for name, weight in ENGINES.items()
        }
    )


def recall_figures(
    session: Session, split: str, tasks: Sequence[Task], rankings: Rankings, ks: Sequence[int]
) -> list[Figure]:
    """Return recall of a gold document at each depth for the three, and by how much fusing is above either alone.

    Args:
        session: The run.
        split: Name of the tasks.
        tasks: What was searched for, at least one.
        rankings: What was found.
        ks: Depths.

    Returns:
        Figures.
    """
    columns = {name: recall_columns(tasks, rankings.of(name, tasks), ks) for name in ENGINES}
    figures = [figure for name in ENGINES for figure in Subject(session, split, name).means(columns[name])]
    fused = Subject(session, split, FUSED)
    return figures + [
        fused.lead(measure, (columns[FUSED][measure], columns[other][measure]), other)
        for measure in columns[FUSED]
        for other in ENGINES
        if other != FUSED
    ]
