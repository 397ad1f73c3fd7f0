"""Suite `support`: a help desk over 55 articles, by retrieval alone and by memory alone.

Owns the corpus, and what is reported of retrieval; what is reported of memory is in `memory_support`. There are no
training questions: the fusion weight is the configured one.
"""

from __future__ import annotations

from pathlib import Path

from byheart.corpus.collections import support_documents
from byheart.evaluate.bases import Corpus
from byheart.evaluate.datasets import support_tasks
from byheart.evaluate.figures import Figure
from byheart.evaluate.memory_queries import support_facts
from byheart.evaluate.memory_support import memory_figures
from byheart.evaluate.retrieval import rank, recall_figures
from byheart.evaluate.session import Session

KS = (1, 3, 5)
DEPTH = 50  # passages searched: articles are long, and one article's passages fill several places


def corpus(data: Path) -> Corpus:
    """Return the English help articles, split as any user's documents are, and the facts learned from them."""
    return Corpus("support", support_documents(data), {}, facts=support_facts(data))


def measure(session: Session) -> list[Figure]:
    """Return the suite's figures.

    Args:
        session: The run.

    Returns:
        Recall of the right article among the first articles, by three retrievers, for each style of asking, for
        questions about what is in no fact, and for questions in other languages; then what memory makes of all queries.
    """
    splits = {name: session.limited(tasks) for name, tasks in support_tasks(session.data).items()}
    rankings = rank(session, [task for tasks in splits.values() for task in tasks], DEPTH)
    figures = [
        figure for name, tasks in splits.items() for figure in recall_figures(session, name, tasks, rankings, KS)
    ]
    return figures + memory_figures(session)
