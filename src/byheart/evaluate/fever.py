"""Suite `fever`: claims to check against 7,100 evidence sentences.

Owns what is reported of it. Reader and fusion weight may learn from the test file's claims only; all dev claims are
reported on, and the evaluation split alone beside them, which later systems with a memory share.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from byheart.corpus.collections import WHOLE, fever_documents, whole_passage_id
from byheart.corpus.splits import FeverSplit, fever_split
from byheart.evaluate.bases import Corpus
from byheart.evaluate.datasets import Task, fever_tasks, fever_training_tasks
from byheart.evaluate.figures import Figure, Subject, cost_figures, timing_figures, trust_figures
from byheart.evaluate.retrieval import rank, recall_figures
from byheart.evaluate.session import Outcome, Session, ask, clock

KS = (1, 3, 5)
TIMED = 200
TUNED_ON = 2_000
SYSTEMS = {"always-retrieve": False, "closed-book": True}


def corpus(data: Path) -> Corpus:
    """Return the suite's documents, and the training claims that the fusion weight is fitted on."""
    documents = fever_documents(data)
    by_page = {document.page: document for document in documents}
    training = [task for task in fever_training_tasks(data, documents) if task.sources][:TUNED_ON]
    passages = [whole_passage_id(by_page[min(task.sources)]) for task in training]
    return Corpus("fever", documents, WHOLE, ([task.question for task in training], passages))


def measure(session: Session) -> list[Figure]:
    """Return the suite's figures.

    Args:
        session: The run.

    Returns:
        For all dev claims and for the evaluation split: recall of any gold sentence by three retrievers, accuracy,
        trust and cost of always-retrieve and closed-book. Seconds for the evaluation split.
    """
    tasks = fever_tasks(session.data, fever_documents(session.data))
    evaluation = [task for task in tasks if fever_split(task.id) is FeverSplit.EVALUATION]
    splits = {"dev": session.limited(tasks), "evaluation": session.limited(evaluation)}
    asked = list({task.id: task for split in splits.values() for task in split}.values())
    rankings = rank(session, asked, max(KS))
    outcomes = {
        system: dict(zip((t.id for t in asked), ask(session, system, asked, closed_book=closed), strict=True))
        for system, closed in SYSTEMS.items()
    }
    figures = []
    for split, members in splits.items():
        figures += recall_figures(session, split, members, rankings, KS)
        found = {system: [held[task.id] for task in members] for system, held in outcomes.items()}
        figures += _verdict_figures(session, split, members, found)
    for system, closed in SYSTEMS.items():
        timings = clock(session, splits["evaluation"][:TIMED], closed_book=closed)
        figures += timing_figures(Subject(session, "evaluation", system), timings)
    return figures


def _verdict_figures(
    session: Session, split: str, tasks: Sequence[Task], outcomes: dict[str, list[Outcome]]
) -> list[Figure]:
    right = {
        system: [float(outcome.text in task.gold.answers) for task, outcome in zip(tasks, found, strict=True)]
        for system, found in outcomes.items()
    }
    figures = []
    for system, found in outcomes.items():
        subject = Subject(session, split, system)
        figures += subject.means({"accuracy": right[system]})
        figures += trust_figures(subject, found, right[system])
        figures += cost_figures(subject, found)
    lead, other = SYSTEMS
    return [*figures, Subject(session, split, lead).lead("accuracy", (right[lead], right[other]), other)]
