"""Suite `frequency`: what memory and retrieval each add, by how popular a fact is.

Owns the traffic and the bins. 1,000 PopQA facts are documents among 7,100 sentences of FEVER. Past traffic asks in
proportion to popularity; memory learns what was asked at least twice, as a knowledge base that learns from its log
would. Then every fact is asked once. Facts are split in two by hash: on three in ten the gate is calibrated.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from byheart.corpus.collections import WHOLE, fever_documents
from byheart.corpus.datasets import Popular, popqa
from byheart.corpus.splits import share
from byheart.decisions import Route
from byheart.evaluate import routing
from byheart.evaluate.bases import Corpus
from byheart.evaluate.figures import Figure, Subject
from byheart.evaluate.intervals import mean
from byheart.evaluate.routing import Request, System
from byheart.evaluate.session import Session
from byheart.evaluate.spares import Spares
from byheart.types import Document, NewFact, Question

PAST = 3_000  # requests of past traffic
LEAST = 2  # times a fact was asked before it is learned
BINS = 5
CALIBRATION = 0.3
NEVER = float("inf")  # no fact is so popular


def corpus(data: Path) -> Corpus:
    """Return the PopQA facts as documents, among FEVER's sentences."""
    held = [
        Document(f"popqa/{row.id}", row.subject, f"{row.subject}: {row.relation} {row.answer}.") for row in popqa(data)
    ]
    return Corpus("frequency", (*held, *fever_documents(data)), WHOLE)


def learned(data: Path, seed: int) -> list[NewFact]:
    """Return what memory learns: facts that past traffic asked at least twice, in proportion to popularity."""
    rows = popqa(data)
    asked = Counter(random.Random(seed).choices(range(len(rows)), [row.views for row in rows], k=PAST))
    return [NewFact(_wording(rows[i]), rows[i].answer, id=f"popqa-{rows[i].id}") for i in asked if asked[i] >= LEAST]


def measure(session: Session, spares: Spares) -> list[Figure]:
    """Return the figures.

    Args:
        session: The run.
        spares: Where the knowledge base with facts is kept.

    Returns:
        All systems over all reported facts; per bin of popularity what memory and retrieval each add to accuracy.
    """
    rows = popqa(session.data)
    requests = {row.id: Request(row.id, "popqa", Question.parse(row.question), row.answers) for row in rows}
    held = [row for row in rows if share(f"frequency/{row.id}") < CALIBRATION]
    reported = [row for row in rows if share(f"frequency/{row.id}") >= CALIBRATION][: session.limit]
    with spares.copied(session, "popular") as copied:
        copied.base.learn(learned(session.data, session.seed), session.progress)
        copied.base.calibrate([requests[row.id].question for row in held], [row.answers for row in held])
        asked = [requests[row.id] for row in reported]
        found = routing.told(copied, "popqa", asked)
        decisions = routing.decided(copied, asked)
        systems = [
            *routing.systems(found, {"byheart": decisions}),
            _by_popularity(copied, reported, held, [requests[row.id] for row in held], found),
        ]
        figures = routing.routed_figures(copied, "facts", asked, systems)
        ours = next(system for system in systems if system.name == "byheart")
        return [*figures, *_bins(copied, reported, asked, ours)]


def _by_popularity(
    session: Session,
    reported: Sequence[Popular],
    held: Sequence[Popular],
    calibration: Sequence[Request],
    found: routing.Told,
) -> System:
    """Return the baseline that asks memory from a popularity on, the one that is best on the calibration questions."""
    told = routing.told(session, "popqa-calibration", calibration, [Route.MEMORY, Route.RETRIEVAL])
    views, asked = ([float(row.views) for row in rows] for rows in (held, reported))
    _, routes = routing.threshold_routes(views, told.right(Route.MEMORY), told.right(Route.RETRIEVAL), asked, NEVER)
    return System("popularity", routes, found.chosen(routes))


def _bins(session: Session, rows: Sequence[Popular], requests: Sequence[Request], system: System) -> list[Figure]:
    order = np.argsort([row.views for row in rows], kind="stable")
    figures = []
    for number, places in enumerate(np.array_split(order, BINS), start=1):
        right = [float(requests[i].is_right(system.outcomes[i])) for i in places]
        by_memory = [r * (not system.outcomes[i].retrievals) for r, i in zip(right, places, strict=True)]
        subject = Subject(session, f"bin{number}", "byheart")
        lowest = float(rows[int(places[0])].views)
        figures.append(subject.figure("popularity", "page views", mean([lowest], session.rng())))
        figures += subject.means(
            {
                "accuracy": right,
                "gain_memory": by_memory,
                "gain_retrieval": [r - m for r, m in zip(right, by_memory, strict=True)],
                "answered_without_retrieval": [float(not system.outcomes[i].retrievals) for i in places],
            }
        )
    return figures


def _wording(row: Popular) -> str:
    """Return the question in other words than the data set asks it: memory has to know it again."""
    return f"What is the {row.relation} of {row.subject}?"
