"""Suite `support`: a help desk over 55 articles, retrieval only.

Owns what is reported of it. There are no training questions: the fusion weight is the configured one.
"""

from __future__ import annotations

from pathlib import Path

from byheart.corpus.collections import support_documents
from byheart.evaluate.bases import Corpus
from byheart.evaluate.datasets import support_tasks
from byheart.evaluate.figures import Figure
from byheart.evaluate.retrieval import rank, recall_figures
from byheart.evaluate.session import Session

KS = (1, 3, 5)
DEPTH = 50  # passages searched: articles are long, and one article's passages fill several places


def corpus(data: Path) -> Corpus:
    """Return the English help articles, split as any user's documents are."""
    return Corpus("support", support_documents(data), {})


def measure(session: Session) -> list[Figure]:
    """Return the suite's figures.

    Args:
        session: The run.

    Returns:
        Recall of the right article among the first articles, by three retrievers, for each style of asking, for
        questions about what is in no fact, and for questions in other languages.
    """
    splits = {name: session.limited(tasks) for name, tasks in support_tasks(session.data).items()}
    rankings = rank(session, [task for tasks in splits.values() for task in tasks], DEPTH)
    return [figure for name, tasks in splits.items() for figure in recall_figures(session, name, tasks, rankings, KS)]
