"""Asking a memory a suite's queries, resumable, and one by one against the clock; and what is kept of a recall.

Owns what counts as an answer of a memory. Scores nothing.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from byheart.evaluate.bases import Base
from byheart.evaluate.memory_queries import Query
from byheart.evaluate.resume import ResultLog
from byheart.evaluate.session import BATCH, WARM_UP, Session
from byheart.reports import Progress
from byheart.types import Question, Recall

WHOLE = "recall"


@dataclass(frozen=True, slots=True)
class Said:
    """What a system said to one query.

    Attributes:
        fact: Id of the fact it answers with, None where it has none to offer.
        score: How sure it is: a probability or a cosine.
        answer: The answer in words.
        pages: Documents it cites, best first.
    """

    fact: str | None
    score: float
    answer: str | None = None
    pages: tuple[str, ...] = ()


def recall(session: Session, name: str, queries: Sequence[Query]) -> list[Said]:
    """Return what the memory says; queries finished in an earlier run under the same settings are not asked again.

    Args:
        session: The run, over the base that holds the facts.
        name: Name of the queries, part of the log's name.
        queries: What is asked.

    Returns:
        One per query.
    """
    depends_on = {"suite": session.suite, "system": "memory", "queries": name, **session.identity}
    with ResultLog(session.work / f"memory {name}.jsonl", depends_on) as finished:
        missing = [query for query in queries if query.id not in finished.done]
        for start in range(0, len(missing), BATCH):
            batch = missing[start : start + BATCH]
            recalls = session.base.recall_many([query.question for query in batch])
            finished.add({q.id: asdict(_said(found)) for q, found in zip(batch, recalls, strict=True)})
            done = len(queries) - len(missing) + start + len(batch)
            session.progress(done, len(queries), f"{session.suite}: {name}")
        return [_read(finished.done[query.id]) for query in queries]


def clock_recalls(base: Base, questions: Sequence[Question], progress: Progress) -> list[dict[str, float]]:
    """Return how long each question takes when memory is asked it alone, after a few that are not counted.

    Args:
        base: The knowledge base.
        questions: What is asked, at least one.
        progress: Called with how much is done.

    Returns:
        Wall-clock seconds per question: `recall` for the whole call, and one entry per step the memory names.
    """
    warm_up = questions[:WARM_UP]
    timings = []
    for number, question in enumerate([*warm_up, *questions]):
        start = time.perf_counter()
        found = base.recall_many([question])[0]
        seconds = time.perf_counter() - start
        if number >= len(warm_up):
            timings.append({WHOLE: seconds, **{step.name: step.seconds for step in found.seconds}})
        progress(number + 1, len(questions) + len(warm_up), "recalls timed")
    return timings


def _said(found: Recall) -> Said:
    fact = None if found.fact is None or found.answer is None else found.fact.id
    pages = tuple(dict.fromkeys(citation.page for citation in found.citations))
    return Said(fact, found.probability, found.answer, pages)


def _read(output: dict[str, Any]) -> Said:
    return Said(**{**output, "pages": tuple(output["pages"])})
